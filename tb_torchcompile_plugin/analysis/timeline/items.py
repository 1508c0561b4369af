"""What the timeline knows of torch.compile and of steps, as items on lanes of their own.

Compilations are told by the compile log or the summary, in Unix time, so they are shown also where the trace has
nothing of them, before its first event and behind its last one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

import numpy as np

from tb_torchcompile_plugin.analysis.compile.compile_time import (
    ALL_THREADS,
    EPOCH_FROM_NS,
    WORKERS,
    thread_labels,
)
from tb_torchcompile_plugin.analysis.runtime.gpu_idle import took
from tb_torchcompile_plugin.analysis.timeline.lanes import Item, ItemSlices, LaneKind
from tb_torchcompile_plugin.compile_log.record import forward_compilations, key_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary, PhaseSpan
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import every, every_break, host_ns, region_calls, resumes
from tb_torchcompile_plugin.profile.gpu.idle import Gaps, causes_of, idle_gaps
from tb_torchcompile_plugin.profile.host.thread_activity import CAUSES, NOTHING, ThreadActivity
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, step_slices, steps_by_gpu
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.torch_names.records import phase_of

_Lane = tuple[LaneKind, str, list[Item]]  # the kind and the title of a lane, and what is on it


def has_unix_time(profile: Profile, origin: int) -> bool:
    """Whether the trace's clock is that of the compile log."""
    return profile.trace.base_ns + origin >= EPOCH_FROM_NS


def item_lanes(profile: Profile, origin: int) -> Iterator[_Lane]:
    """The lanes that have something on them, top to bottom. origin: the trace's time at the timeline's zero."""
    lanes: list[_Lane] = [
        ("steps", "Steps", _steps(profile, origin)),
        ("regions", "Compiled regions", _regions(profile, origin)),
        ("breaks", "Graph breaks", _breaks(profile, origin)),
    ]
    summary = profile.summary
    if summary is not None and has_unix_time(profile, origin):
        epoch = profile.trace.base_ns + origin
        lanes.append(("recompiles", "Recompiles", _recompiles(summary, epoch)))
        lanes += [("phases", title, items) for title, items in _phases(summary, epoch)]
    return (lane for lane in lanes if lane[2])


def _steps(profile: Profile, origin: int) -> list[Item]:
    trace = profile.trace
    return [
        Item(trace.names[trace.name[row]], int(trace.ts[row]) - origin, int(trace.dur[row]), "step", int(row))
        for row in profile.of(step_slices)
    ]


def steps_on_gpus(profile: Profile, origin: int) -> dict[int, list[Item]]:
    """By device the profiled steps by its clock: from the first work that each launched there to that of the next."""
    steps = profile.of(StepWindows)
    return {
        gpu.device: [
            Item(
                steps.names[step],
                begin - origin,
                length,
                "step",
                row=int(steps.rows[step]),
                facts={"host_us": us(steps.ends[step] - steps.starts[step])},
            )
            for step, begin, length in zip(gpu.step.tolist(), gpu.begin.tolist(), gpu.length.tolist())
        ]
        for gpu in profile.of(steps_by_gpu)
    }


def _regions(profile: Profile, origin: int) -> list[Item]:
    functions = _functions(profile.summary)
    items = []
    for call in every(profile.of(region_calls)):
        facts = {
            "own_us": us(call.own_ns),
            "guard_us": us(call.guard_ns),
            "overhead_us": us(call.overhead_ns),
            "graph_us": us(call.graph_ns),
            "resume": call.resume,
        }
        name = f"{call.compile_id} {functions.get(call.compile_id, '')}".rstrip()
        length = call.end - call.start
        items.append(
            Item(name, call.start - origin, length, "region", call.index, call.compile_id, None, facts)
        )
    return items + _backwards(profile, origin)


def _backwards(profile: Profile, origin: int) -> list[Item]:
    trace, names = profile.trace, profile.of(Ownership).names
    return [
        Item(
            f"{names[code]} backward",
            int(trace.ts[row]) - origin,
            int(trace.dur[row]),
            "backward_region",
            row,
            names[code],
        )
        for row, code in profile.of(Ownership).backwards
    ]


def _breaks(profile: Profile, origin: int) -> list[Item]:
    known = profile.of(resumes)
    if known is None:
        return []
    reported = profile.summary.graph_breaks if profile.summary else ()
    reasons = {row.key.compile_id: row.reason for row in reported}
    items = []
    gaps = list(every_break(profile.of(region_calls)))
    for gap, host in zip(gaps, host_ns(profile, gaps).tolist(), strict=True):
        place = known.place(gap.call.compile_id, gap.resumed.compile_id)
        ids = f"{gap.call.compile_id} → {gap.resumed.compile_id}"
        name = f"{os.path.basename(place.file)}:{place.line}" if place.file else ids
        facts = {
            "host_us": us(host),
            "resume_guard_us": us(gap.resumed.guard_ns),
            "resume_overhead_us": us(gap.resumed.overhead_ns),
            "resume_compile_id": gap.resumed.compile_id,
            "reason": reasons.get(gap.call.compile_id, ""),
            "file": place.file,
            "line": place.line,
        }
        start, row = gap.start - origin, gap.resumed.index
        items.append(Item(name, start, gap.end - gap.start, "break", row, gap.call.compile_id, None, facts))
    return items


def _recompiles(summary: CompileSummary, epoch: int) -> list[Item]:
    compiled = forward_compilations(summary)
    items = []
    for row in summary.recompiles:
        frame = compiled.get(key_of(row.key))
        if frame is not None and frame.HasField("start_ns"):
            duration = us(frame.duration_ns) if frame.HasField("duration_ns") else None
            facts = {"reasons": list(row.reasons), "duration_us": duration, "function": frame.function}
            name = f"recompile {row.key.compile_id}"
            start = frame.start_ns - epoch
            items.append(Item(name, start, 0, "recompile", None, row.key.compile_id, row.key.epoch, facts))
    return items


def _phases(summary: CompileSummary, epoch: int) -> Iterator[tuple[str, list[Item]]]:
    """Each thread that compiled, and all worker processes together."""
    rows = sorted(summary.spans, key=lambda row: (row.start_ns, -row.duration_ns))
    labels = thread_labels(rows)
    lanes = grouped(rows, lambda row: WORKERS if row.worker_process else labels[row.thread])
    for label in [*dict.fromkeys(labels.values()), WORKERS]:
        if label in lanes:
            yield _title(label), _phase_items(lanes[label], epoch)


def _title(label: str) -> str:
    """Short enough for the column of names."""
    if label in (WORKERS, ALL_THREADS):
        return "Compile phases" if label == ALL_THREADS else WORKERS.capitalize()
    return f"Compile phases, {label}"


def _phase_items(rows: list[PhaseSpan], epoch: int) -> list[Item]:
    items = []
    around: list[tuple[int, str]] = []  # (end, phase) of the spans that are still open
    for row in rows:
        end = row.start_ns + row.duration_ns
        while around and around[-1][0] <= row.start_ns:
            around.pop()
        phase = phase_of(row.name) or (around[-1][1] if around else "other")
        around.append((end, phase))
        facts = {"phase": phase, "function": row.function, "kernel": row.kernel, "unfinished": row.unfinished}
        known = {name: value for name, value in facts.items() if value}
        start, compile_id = row.start_ns - epoch, row.key.compile_id or None
        name = f"{row.name}: {row.kernel}" if row.kernel else row.name
        items.append(
            Item(name, start, row.duration_ns, f"phase_{phase}", None, compile_id, row.key.epoch, known)
        )
    return items


def _functions(summary: CompileSummary | None) -> dict[str, str]:
    """The function of each compile id; of the newest, where torch gave the id out anew."""
    rows = summary.compilations if summary else ()
    return {row.key.compile_id: row.function for row in sorted(rows, key=lambda row: row.key.epoch)}


# The idle time of each GPU as slices of a lane of its own, each named after what the host did meanwhile.


_MOST = 500  # of each device: each asks what its thread did


def gaps_of_gpus(profile: Profile, origin: int) -> dict[int, ItemSlices]:
    """By device its longest gaps between two GPU events. origin: the trace's time at the timeline's zero."""
    inner = {device: gaps.inner() for device, gaps in profile.of(idle_gaps).items()}
    return {device: _slices(profile, _longest(gaps), origin) for device, gaps in inner.items() if len(gaps)}


def gaps_left_out(profile: Profile) -> dict[int, int]:
    """By device how many shorter gaps have no slice."""
    return {device: max(0, len(gaps) - 2 - _MOST) for device, gaps in profile.of(idle_gaps).items()}


def _longest(gaps: Gaps) -> Gaps:
    chosen = np.argsort(gaps.starts - gaps.ends, kind="stable")[:_MOST]
    return gaps.take(np.sort(chosen))


def _slices(profile: Profile, gaps: Gaps, origin: int) -> ItemSlices:
    """What the host did meanwhile is asked when it is to be drawn: a timeline opens before that is known."""
    return ItemSlices(gaps.starts - origin, gaps.ends - gaps.starts, partial(_items, profile, gaps, origin))


def _items(profile: Profile, gaps: Gaps, origin: int) -> list[Item]:
    causes = causes_of(gaps, profile.of(ThreadActivity))
    return [_item(profile, gaps, place, ns.tolist(), origin) for place, ns in enumerate(causes)]


def _item(profile: Profile, gaps: Gaps, place: int, causes: list[int], origin: int) -> Item:
    trace = profile.trace
    start, end, track = int(gaps.starts[place]), int(gaps.ends[place]), int(gaps.track[place])
    row = took(trace, track, start, end) if track >= 0 else None
    cause = CAUSES[max(range(len(causes)), key=causes.__getitem__)]
    named = row is not None and cause != CAUSES[NOTHING]
    return Item(
        name=trace.names[trace.name[row]] if row is not None and named else "idle",
        start=start - origin,
        dur=end - start,
        color=f"gap_{cause}",
        row=row,
        facts={f"{name}_us": us(ns) for name, ns in zip(CAUSES, causes, strict=True) if ns},
    )
