"""What of two spans can be compared, what cannot, and what besides the program differs between them?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tb_torchcompile_plugin.analysis.gpu_utilization import gpu_utilization
from tb_torchcompile_plugin.analysis.profile import Profile
from tb_torchcompile_plugin.summary_pb2 import CompileSummary


class Side(NamedTuple):
    """One side of a comparison: a span, and the compile data of its worker; None where there is none."""

    profile: Profile | None
    summary: CompileSummary | None


def side_of(profile: Profile) -> Side:
    return Side(profile, profile.summary)


def as_a_whole(a: Side, b: Side) -> bool:
    """Whether the whole spans are compared: a step of one against all of the other would tell nothing."""
    return not all(side.profile and side.profile.steps for side in (a, b))


def notes(a: Side, b: Side) -> list[str]:
    """Sentences, each about one thing that a reader of the tables must know."""
    found = []
    for name, side in (("A", a), ("B", b)):
        found += [f"{name} {what}" for what in (*_run_notes(side.profile), *_compile_notes(side.summary))]
    return [*found, *_differences(a, b)]


def _run_notes(profile: Profile | None) -> Iterator[str]:
    if profile is None:
        yield "has no trace: only what was compiled is compared."
        return
    if not profile.steps:
        yield (
            "has no profiled steps, as its profiler had no schedule: whole spans are compared, "
            "and nobody knows how much they vary."
        )
    elif len(profile.steps) == 1:
        yield "has one profiled step: nobody knows how much its steps vary."
    if not len(profile.work.index):
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


def _devices(profile: Profile) -> str:
    names = [row.name for row in gpu_utilization(profile.trace, profile.work) if row.name]
    return ", ".join(dict.fromkeys(names))
