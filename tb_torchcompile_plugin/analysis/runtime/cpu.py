"""Show which CPU threads worked.

A thread works while an operator, a compiled graph or the compiler is recorded on it. No trace records OpenMP's threads
inside a kernel.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import duration, percent, plural
from tb_torchcompile_plugin.profile.columns import by_track
from tb_torchcompile_plugin.profile.gpu_work import busy
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, share_percent, us
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.torch_names.slices import OPERATOR


class CpuThread(msgspec.Struct, frozen=True):
    """A thread that worked."""

    thread: str
    busy_us: float
    busy_percent: float | None  # of the span
    calls: int  # of operators, and of what is recorded as operators are


class Cpu(msgspec.Struct, frozen=True):
    """Threads, the busiest first."""

    sentences: tuple[str, ...]
    threads: tuple[CpuThread, ...]


def cpu(profile: Profile) -> Cpu:
    """Return the threads of a span, whether it has a GPU or not."""
    trace, index = profile.trace, profile.trace.select(cat=(OPERATOR,))
    first, last = trace.window()
    threads: list[CpuThread] = []
    working: list[Intervals] = []
    for track, rows in by_track(trace, index):
        working.append(busy(trace, rows))
        name = trace.tracks[track].thread_name.strip() or f"thread {trace.tracks[track].tid}"
        time = working[-1].total_ns
        threads.append(CpuThread(name, us(time), share_percent(time, last - first), len(rows)))
    threads.sort(key=lambda thread: -thread.busy_us)
    return Cpu((_threads_sentence(threads, working, last - first),), tuple(threads))


def _threads_sentence(threads: Sequence[CpuThread], working: Sequence[Intervals], span_ns: int) -> str:
    """Return "2 threads did work, main most of all (98 % of 242 ms). Two or more worked at once for 3.00 % …"."""
    if not threads:
        return "No operators, compiled graphs or compiler phases were recorded on any thread."
    most, part = threads[0], ""
    if most.busy_percent is not None:
        part = f" ({percent(most.busy_percent)} of {duration(us(span_ns))})"
    if len(threads) == 1:
        return f"One thread did all the recorded work: {most.thread}{part}."
    times: Int64s = np.concatenate([edges for intervals in working for edges in intervals])
    change = np.concatenate([np.r_[np.ones_like(starts), -np.ones_like(ends)] for starts, ends in working])
    order = np.argsort(times, kind="stable")
    running = np.cumsum(change[order])[:-1]
    together_ns = int(np.diff(times[order])[running >= 2].sum())
    together = percent(share_percent(together_ns, span_ns) or 0.0)
    return (
        f"{plural(len(threads), 'thread')} worked, {most.thread} the most{part}. Two or more worked at the same "
        f"time for {together} of the span."
    )
