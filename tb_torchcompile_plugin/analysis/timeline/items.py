"""When were graphs compiled, run and broken, when did steps run, and when was each GPU idle? As items on lanes.

Compilations come from the compile log or the summary, in Unix time, so they are shown also where the trace has nothing
of them, before its first event and after its last one.
"""

import os
from collections.abc import Iterator
from functools import partial

import numpy as np

from tb_torchcompile_plugin.analysis.compile import compile_time
from tb_torchcompile_plugin.analysis.runtime.gpu_idle import longest_slice
from tb_torchcompile_plugin.analysis.timeline.lanes import Item, ItemSlices, LaneKind
from tb_torchcompile_plugin.compile_log.record import forward_compilations, key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.profile.columns import us
from tb_torchcompile_plugin.profile.compiled import regions
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu.idle import Gaps, causes_of, idle_gaps
from tb_torchcompile_plugin.profile.host.thread_activity import HOST_KINDS, UNACCOUNTED, ThreadActivity
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, steps_by_gpu
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.torch_names.records import phase_of

_WORKERS = "Compile workers"
_MAX_GAPS = 500  # of each device, the longest: naming one takes a look at what its thread did


def has_unix_time(profile: Profile, origin: int) -> bool:
    """Return whether the trace's clock is that of the compile log."""
    return profile.trace.base_ns + origin >= compile_time.EPOCH_FROM_NS


def item_lanes(profile: Profile, origin: int) -> Iterator[tuple[LaneKind, str, list[Item]]]:
    """Return kind, title and items of the lanes that have any, top to bottom.

    origin: the trace's time at the timeline's zero.
    """
    trace = profile.trace
    steps = [
        Item(trace.names[trace.name[row]], int(trace.ts[row]) - origin, int(trace.dur[row]), "step", int(row))
        for row in profile.of(StepWindows).rows
    ]
    lanes: list[tuple[LaneKind, str, list[Item]]] = [
        ("steps", "Steps", steps),
        ("regions", "Compiled regions", _regions(profile, origin)),
        ("breaks", "Graph breaks", _breaks(profile, origin)),
    ]
    if profile.summary is not None and has_unix_time(profile, origin):
        epoch = profile.trace.base_ns + origin
        lanes.append(("recompiles", "Recompiles", _recompiles(profile.summary, epoch)))
        lanes += [("phases", title, items) for title, items in _phases(profile.summary, epoch)]
    return (lane for lane in lanes if lane[2])


def steps_on_gpus(profile: Profile, origin: int) -> dict[int, list[Item]]:
    """Return the profiled steps on the clock of each device: from the first work that a step launched to the next."""
    steps = profile.of(StepWindows)
    items = {}
    for gpu in profile.of(steps_by_gpu) if len(steps.rows) else ():
        columns = zip(gpu.step.tolist(), gpu.begin.tolist(), gpu.length.tolist())
        items[gpu.device] = [
            Item(
                name=steps.names[step],
                start=begin - origin,
                dur=length,
                color="step",
                row=int(steps.rows[step]),
                facts={"host_us": us(steps.ends[step] - steps.starts[step])},
            )
            for step, begin, length in columns
        ]
    return items


def _regions(profile: Profile, origin: int) -> list[Item]:
    trace, ownership = profile.trace, profile.of(Ownership)
    compiled = profile.summary.compilations if profile.summary else ()
    # Where torch used a compile id again, the newest function counts.
    functions = {row.key.compile_id: row.function for row in sorted(compiled, key=lambda row: row.key.epoch)}
    items = [
        Item(
            name=f"{call.compile_id} {functions.get(call.compile_id, '')}".rstrip(),
            start=call.start - origin,
            dur=call.end - call.start,
            color="region",
            row=call.index,
            compile_id=call.compile_id,
            facts={
                "user_us": us(call.own_ns),
                "guard_us": us(call.guard_ns),
                "overhead_us": us(call.overhead_ns),
                "graph_us": us(call.graph_ns),
                "resume": call.resume,
            },
        )
        for call in regions.all_calls(profile.of(regions.region_calls))
    ]
    for row, code in ownership.backwards:
        compile_id, start, dur = ownership.names[code], int(trace.ts[row]) - origin, int(trace.dur[row])
        items.append(Item(f"{compile_id} backward", start, dur, "backward_region", row, compile_id))
    return items


def _breaks(profile: Profile, origin: int) -> list[Item]:
    resume_lines = profile.of(regions.resumes)
    if resume_lines is None:
        return []
    reported = profile.summary.graph_breaks if profile.summary else ()
    reasons = {row.key.compile_id: row.reason for row in reported}
    gaps = list(regions.all_breaks(profile.of(regions.region_calls)))
    items = []
    for gap, host in zip(gaps, regions.break_host_ns(profile, gaps).tolist(), strict=True):
        compile_id, resumed = gap.call.compile_id, gap.resumed
        file, line = resume_lines.place(compile_id, resumed.compile_id)
        items.append(
            Item(
                name=f"{os.path.basename(file)}:{line}" if file else f"{compile_id} → {resumed.compile_id}",
                start=gap.start - origin,
                dur=gap.end - gap.start,
                color="break",
                row=resumed.index,
                compile_id=compile_id,
                facts={
                    "host_us": us(host),
                    "resume_guard_us": us(resumed.guard_ns),
                    "resume_overhead_us": us(resumed.overhead_ns),
                    "resume_compile_id": resumed.compile_id,
                    "reason": reasons.get(compile_id, ""),
                    "file": file,
                    "line": line,
                },
            )
        )
    return items


def _recompiles(summary: CompileSummary, epoch: int) -> list[Item]:
    compiled = forward_compilations(summary)
    items = []
    for row in summary.recompiles:
        frame = compiled.get(key_of(row.key))
        if frame is not None and frame.HasField("start_ns"):
            duration = us(frame.duration_ns) if frame.HasField("duration_ns") else None
            items.append(
                Item(
                    name=f"recompile {row.key.compile_id}",
                    start=frame.start_ns - epoch,
                    dur=0,
                    color="recompile",
                    compile_id=row.key.compile_id,
                    epoch=row.key.epoch,
                    facts={"reasons": list(row.reasons), "duration_us": duration, "function": frame.function},
                )
            )
    return items


def _phases(summary: CompileSummary, epoch: int) -> Iterator[tuple[str, list[Item]]]:
    """Return title and items of each thread that compiled, and of all worker processes together."""
    rows = sorted(summary.spans, key=lambda row: (row.start_ns, -row.duration_ns))
    threads = dict.fromkeys(row.thread for row in rows if not row.worker_process)
    titles = {thread: f"Compile phases, thread {number}" for number, thread in enumerate(threads, 1)}
    if set(threads) <= {0}:  # of a log, which has no thread ids
        titles = dict.fromkeys(threads, "Compile phases")
    lanes = grouped(rows, lambda row: _WORKERS if row.worker_process else titles[row.thread])
    for title in [*titles.values(), _WORKERS]:
        items = []
        around: list[tuple[int, str]] = []  # (end, phase) of the spans that are still open
        for row in lanes.get(title, ()):
            while around and around[-1][0] <= row.start_ns:
                around.pop()
            phase = phase_of(row.name) or (around[-1][1] if around else "other")
            around.append((row.start_ns + row.duration_ns, phase))
            fields = ("function", "kernel", "unfinished")
            facts = {"phase": phase, **{name: getattr(row, name) for name in fields}}
            items.append(
                Item(
                    name=f"{row.name}: {row.kernel}" if row.kernel else row.name,
                    start=row.start_ns - epoch,
                    dur=row.duration_ns,
                    color=f"phase_{phase}",
                    compile_id=row.key.compile_id or None,
                    epoch=row.key.epoch,
                    facts={name: value for name, value in facts.items() if value},
                )
            )
        if items:
            yield title, items


def gaps_of_gpus(profile: Profile, origin: int) -> dict[int, tuple[ItemSlices, int]]:
    """Return the longest gaps between two GPU events of each device, and how many shorter ones are left out.

    Each is named after what the host did meanwhile, when it is to be drawn: a timeline opens before that is known.
    """
    slices = {}
    for device, gaps in profile.of(idle_gaps).items():
        inner = gaps.inner()
        if len(inner):
            longest = inner.take(np.sort(np.argsort(inner.starts - inner.ends, kind="stable")[:_MAX_GAPS]))
            items = partial(_gap_items, profile, longest, origin)
            drawn = ItemSlices(longest.starts - origin, longest.ends - longest.starts, items)
            slices[device] = drawn, max(0, len(inner) - _MAX_GAPS)
    return slices


def _gap_items(profile: Profile, gaps: Gaps, origin: int) -> list[Item]:
    trace = profile.trace
    items = []
    columns = zip(gaps.starts.tolist(), gaps.ends.tolist(), gaps.track.tolist())
    for (start, end, track), ns in zip(columns, causes_of(gaps, profile.of(ThreadActivity)).tolist()):
        row = longest_slice(trace, track, start, end) if track >= 0 else None
        cause = HOST_KINDS[max(range(len(ns)), key=ns.__getitem__)]
        items.append(
            Item(
                name="idle"
                if row is None or cause == HOST_KINDS[UNACCOUNTED]
                else trace.names[trace.name[row]],
                start=start - origin,
                dur=end - start,
                color=f"gap_{cause}",
                row=row,
                facts={f"{name}_us": us(time) for name, time in zip(HOST_KINDS, ns, strict=True) if time},
            )
        )
    return items
