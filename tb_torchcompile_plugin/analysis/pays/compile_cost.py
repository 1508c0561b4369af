"""How long did compiling hold the program up, and how long with caches that hold nothing, or everything?

Blocked: the wall time in which any thread of the process compiled, tuned kernels or recorded CUDA graphs; the threads
of one process wait for one another. What compile workers do beside it counts only as far as the process waits for it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis.compile_time.caches import saved_ns
from tb_torchcompile_plugin.compile_log.summary_pb2 import CacheResult, CompileSummary
from tb_torchcompile_plugin.profile.intervals import Intervals, union
from tb_torchcompile_plugin.profile.units import to_seconds
from tb_torchcompile_plugin.reader.compile_data import CompileData


class CompileCost(NamedTuple):
    """Seconds. cold: with empty caches; warm: with caches that hold everything, None where this run does not tell.
    hits: of `lookups` in caches. whole: whether all compilations were timed; else more was spent."""

    blocked_s: float
    cold_s: float | None
    warm_s: float | None
    hits: int
    lookups: int
    whole: bool


def compile_cost(data: CompileData) -> CompileCost | None:
    """None where no compilation has a known duration."""
    made = data.summary.compilations
    known = [row for row in made if row.HasField("duration_ns")]
    if not known:
        return None
    blocked = blocked_s(data.summary)
    firsts, whole = _first_lookups(data.summary), len(known) == len(made)
    results = [row.result for lookups in firsts for row in lookups]
    hits = results.count("hit")
    cold = blocked + to_seconds(sum(ns for lookups in firsts for ns in saved_ns(lookups)))
    warm = blocked if hits and hits == len(results) else None
    return CompileCost(blocked, cold if whole else None, warm, hits, len(results), whole)


def _first_lookups(summary: CompileSummary) -> list[list[CacheResult]]:
    """By compilation the first of each key: what a process stored itself, it finds with empty caches, too."""
    known: set[tuple[str, str]] = set()
    firsts = []
    for row in sorted(summary.compilations, key=lambda row: row.start_ns):
        firsts.append([one for one in row.cache if (one.cache, one.key) not in known])
        known.update((one.cache, one.key) for one in row.cache)
    return firsts


def blocked_s(summary: CompileSummary) -> float:
    """Of what has a start, the union over all threads; of what has none, the sum."""
    made = [row for row in summary.compilations if row.HasField("duration_ns")]
    timed = [(row.start_ns, row.duration_ns) for row in made if row.HasField("start_ns")]
    timed += [
        (row.start_ns, row.duration_ns)
        for row in summary.spans
        if not row.worker_process and not row.unfinished
    ]
    untimed = sum(row.duration_ns for row in made if not row.HasField("start_ns"))
    return to_seconds(untimed + _covered(timed).total_ns)


def _covered(timed: list[tuple[int, int]]) -> Intervals:
    columns = np.array(timed, np.int64).reshape(-1, 2)
    return union(columns[:, 0], columns[:, 0] + columns[:, 1])
