"""What of two spans can be compared, what cannot, and what besides the program differs between them?"""

from __future__ import annotations

from collections.abc import Iterator

from tb_torchcompile_plugin.analysis.compare.pairs import change_percent, pair
from tb_torchcompile_plugin.analysis.compare.sides import Side
from tb_torchcompile_plugin.analysis.gpu_utilization.devices import gpus
from tb_torchcompile_plugin.analysis.what_if.step_words import slowed
from tb_torchcompile_plugin.analysis.words import duration
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import pace, profiled_steps, unrecorded_step_ns

_SLOWED = 1.1  # times as long: from there on recorded steps tell less than those that were not


def notes(a: Side, b: Side) -> list[str]:
    """Sentences, each about one thing that a reader of the tables must know."""
    lines = []
    for name, side in (("A", a), ("B", b)):
        lines += [f"{name} {what}" for what in (*_run_notes(side.profile), *_compile_notes(side.summary))]
    return [*lines, *_differences(a, b)]


def _run_notes(profile: Profile | None) -> Iterator[str]:
    if profile is None:
        yield "has no trace: only what was compiled is compared."
        return
    if not profile.of(profiled_steps):
        yield (
            "has no profiled steps, as its profiler had no schedule: whole spans are compared, "
            "and nobody knows how much they vary."
        )
    elif len(profile.of(profiled_steps)) == 1:
        yield "has one profiled step: nobody knows how much its steps vary."
    if (gpu := profile.of(pace)) is not None:
        yield (
            f"has a host that runs ahead: its steps are those of GPU {gpu.device}, "
            "each from the first work that it launched to that of the next."
        )
    if not len(profile.of(gpu_work).index):
        yield "has no GPU events: GPU time and kernels are not compared."
    if profile.trace.notices:
        yield "has a trace that is not complete: what is missing counts as not done."


def _compile_notes(summary: CompileSummary | None) -> Iterator[str]:
    if summary is None:
        yield (
            "has no compile data (an eager run has none): its graph breaks, recompiles and compile time are unknown."
        )


def _differences(a: Side, b: Side) -> Iterator[str]:
    versions = [side.summary.environment.torch_version if side.summary else "" for side in (a, b)]
    if all(versions) and versions[0] != versions[1]:
        yield f"A ran on torch {versions[0]}, B on torch {versions[1]}."
    devices = [_devices(side.profile) if side.profile else "" for side in (a, b)]
    if all(devices) and devices[0] != devices[1]:
        yield f"A ran on {devices[0]}, B on {devices[1]}: times of different devices."
    yield from _unrecorded(a, b)


def _unrecorded(a: Side, b: Side) -> Iterator[str]:
    """Recording slows some programs more than others: then the recorded steps do not tell which is faster. The notes
    are the host's, and say nothing where it runs ahead."""
    profiles = [side.profile for side in (a, b) if side.profile and side.profile.of(pace) is None]
    noted = [one.data.of(unrecorded_step_ns) if one.data else None for one in profiles]
    if len(profiles) < 2 or None in noted or not any(slowed(one, _SLOWED) for one in profiles):
        return
    of_a, of_b = ((ns or 0) / 1000 for ns in noted)
    change = change_percent(pair(of_a, of_b))
    yield (
        f"While nobody records a step of B takes {duration(of_b)}, one of A {duration(of_a)}{change}: recording slows "
        "them, and all else here is of recorded steps."
    )


def _devices(profile: Profile) -> str:
    names = [row.name for row in profile.of(gpus) if row.name]
    return ", ".join(dict.fromkeys(names))
