"""When did each phase of compilation run, and inside which? The columns of an icicle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from tb_torchcompile_plugin.compile_log.summary_pb2 import PhaseSpan
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.arrays import Codes
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.records import Phase, phase_of

WORKERS = "compile workers"
ALL_THREADS = "all threads"


class PhaseColumns(msgspec.Struct, frozen=True):
    """One row a span, in order of time, as columns of equal length.

    `start_us` counts from the first span. `name`, `compile_id` (-1: none) and `thread` are places in the tables of
    `PhaseSpans`. `depth` is the row to draw in, from 0 in each thread: spans of one row never overlap.
    """

    start_us: list[float]
    duration_us: list[float]
    name: list[int]
    compile_id: list[int]
    epoch: list[int]
    thread: list[int]
    depth: list[int]
    worker_process: list[bool]
    unfinished: list[bool]


class PhaseSpans(msgspec.Struct, frozen=True):
    """The spans and the texts that they name. `origin_s`: Unix time of the first one, None without any.

    `name_phases`: the phase of each name, None where a span is of the phase of the one around it.
    """

    threads: list[str]
    names: list[str]
    name_phases: list[Phase | None]
    compile_ids: list[str]
    origin_s: float | None
    spans: PhaseColumns


def phase_spans(data: CompileData) -> PhaseSpans:
    """All spans. Work of compile worker processes is a thread of its own, the last one."""
    rows = sorted(data.summary.spans, key=lambda row: (row.start_ns, -row.duration_ns))
    origin = rows[0].start_ns if rows else 0
    threads = thread_labels(rows)
    names, ids = Codes(), Codes()
    name_codes = [names.code(row.name) for row in rows]
    lanes = [WORKERS if row.worker_process else threads[row.thread] for row in rows]
    labels = [*dict.fromkeys(threads.values()), *([WORKERS] if WORKERS in lanes else [])]
    return PhaseSpans(
        threads=labels,
        names=names.texts,
        name_phases=[phase_of(name) for name in names.texts],
        compile_ids=ids.texts,
        origin_s=origin / 1e9 if rows else None,
        spans=PhaseColumns(
            start_us=[us(row.start_ns - origin) for row in rows],
            duration_us=[us(row.duration_ns) for row in rows],
            name=name_codes,
            compile_id=[ids.code(row.key.compile_id) if row.key.compile_id else -1 for row in rows],
            epoch=[row.key.epoch for row in rows],
            thread=[labels.index(lane) for lane in lanes],
            depth=_depths(rows, lanes),
            worker_process=[row.worker_process for row in rows],
            unfinished=[row.unfinished for row in rows],
        ),
    )


def thread_labels(rows: Iterable[PhaseSpan]) -> dict[int, str]:
    """A label for each thread. A log does not tell threads apart: all its spans are of thread 0."""
    known = dict.fromkeys(row.thread for row in rows if not row.worker_process)
    if set(known) <= {0}:
        return dict.fromkeys(known, ALL_THREADS)
    return {thread: f"thread {number}" for number, thread in enumerate(known, 1)}


def _depths(rows: list[PhaseSpan], lanes: list[str]) -> list[int]:
    """The first row at or below all spans around it. Crossing spans (threads of a log) get rows of their own."""
    rows_of: dict[str, list[int]] = defaultdict(list)  # of each lane: when its rows are free again, in ns
    depths = []
    for row, lane in zip(rows, lanes, strict=True):
        ends = rows_of[lane]
        if lane == WORKERS:  # side by side, not inside one another
            depth = next((depth for depth, end in enumerate(ends) if end <= row.start_ns), len(ends))
        else:
            while ends and ends[-1] <= row.start_ns:
                ends.pop()
            depth = len(ends)
        ends[depth : depth + 1] = [row.start_ns + row.duration_ns]
        depths.append(depth)
    return depths
