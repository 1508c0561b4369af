"""Which columns does a job need of a rank? They are made from its trace and compile data, once.

The digest of a rank holds 100 kB at most. Of a long recording it holds whole steps from the first one on: their number
is halved until they fit, so that the ranks of a job, which recorded about the same, mostly hold the same steps.
"""

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.job.digest import digest_pb2 as pb
from tb_torchcompile_plugin.job.digest import rank_digest
from tb_torchcompile_plugin.job.digest.file import LARGEST, left_out
from tb_torchcompile_plugin.job.digest.rank_calls import Calls, communication_rows, rank_calls
from tb_torchcompile_plugin.profile.columns import (
    Floats,
    Int64s,
    Intervals,
    Mask,
    codes_of,
    covered_ns,
    distinct,
    ranges,
    subtract,
    sums,
)
from tb_torchcompile_plugin.profile.gpu_work import busy, device_names, gpu_work, layers
from tb_torchcompile_plugin.profile.model.attribution import Attribution, attributions_of, culprits
from tb_torchcompile_plugin.profile.model.launch_sequence import gpu_queue, host_segments, launch_sequence
from tb_torchcompile_plugin.profile.model.model import model
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import compile_ns, gpu_steps, marked_steps, step_time
from tb_torchcompile_plugin.reader.trace.kineto import Trace


class HostCosts(NamedTuple):
    """What the launch sequence was busy with, as columns.

    There are three parts, one behind the other and each in order of time: the pieces between its calls, the calls' own
    time, and their waiting.
    """

    begin: Int64s
    end: Int64s
    code: Int64s  # index into `blamed`
    reach: Int64s  # when all that is before it, in its part, has ended
    blamed: list[Attribution]
    bounds: tuple[int, int, int, int]  # of the three parts
    waits_order: Int64s  # the calls in the order in which they begin to wait

    def window(self, begin: int, end: int) -> tuple[Int64s, Int64s]:
        """Return the rows that have time in a window, and how much of each."""
        parts = []
        for first, last in pairwise(self.bounds):
            low = int(np.searchsorted(self.reach[first:last], begin, side="right"))
            high = int(np.searchsorted(self.begin[first:last], end))
            parts.append(np.arange(first + low, first + max(low, high)))
        rows = np.concatenate(parts)
        ns = np.minimum(self.end[rows], end) - np.maximum(self.begin[rows], begin)
        return rows, np.maximum(ns, 0)

    def summed(self, rows: Int64s, ns: Int64s | Floats) -> dict[Attribution, float]:
        """Return the sums by what is blamed, which may be in the list twice, for pieces and for calls."""
        codes, code = np.unique(self.code[rows], return_inverse=True)
        sums: dict[Attribution, float] = defaultdict(float)
        for index, total in zip(codes.tolist(), np.bincount(code, ns, len(codes)).tolist()):
            sums[self.blamed[index]] += total
        return sums


def host_costs(profile: Profile) -> HostCosts:
    """Return what the launch sequence of a rank was busy with."""
    lane, pieces = profile.of(launch_sequence), profile.of(host_segments)
    between, at = profile.of(culprits), attributions_of(profile, lane.row)
    code = at.code + len(between.culprits)
    waiting_from = np.minimum(lane.begin + profile.of(model).own, lane.end)
    waits = np.argsort(waiting_from, kind="stable")
    ends = pieces.end, waiting_from, lane.end[waits]
    count = len(pieces.point)
    return HostCosts(
        np.concatenate((pieces.begin, lane.begin, waiting_from[waits])),
        np.concatenate(ends),
        np.concatenate((between.code, code, code[waits])),
        np.concatenate([np.maximum.accumulate(part) for part in ends]),
        # The key of a compiled graph is another one on each rank.
        [
            culprit._replace(name="") if culprit.cause == "graph" else culprit
            for culprit in (*between.culprits, *at.culprits)
        ],
        (0, count, count + len(lane), count + 2 * len(lane)),
        waits,
    )


def launched(profile: Profile) -> Int64s:
    """Return when each piece of work was launched; ascending, as the queue is in the order of its launches."""
    return profile.of(launch_sequence).begin[profile.of(gpu_queue).point]


def computes(profile: Profile) -> Mask:
    """Return which work of a rank's queue is not a collective."""
    return ~np.isin(profile.of(gpu_queue).row, profile.of(communication_rows))


MOST_RANKS = 1 << 20  # a larger number in a trace is damage
_NEVER, _BEFORE = 1 << 62, -(1 << 62)  # ns, beyond all times
_UNUSED_OF_COMPILATION = ("phases", "stack", "metrics", "restart_reasons")
_UNUSED_OF_BREAK = ("stack", "text", "explanation", "hints")


def digest(profile: Profile) -> pb.Digest:
    """Return the digest of one rank as a message. Raises whatever a question about its trace raises."""
    return profile.of(_fitted)[1]


def digest_columns(profile: Profile) -> rank_digest.DigestColumns:
    """Return the columns of the same digest."""
    return profile.of(_fitted)[0]


class _Excerpt(NamedTuple):
    """How much of a recording its digest contains, from the first one on."""

    calls: int  # steps; where none are marked, collectives
    host: int  # the same, with the activity of the host
    compiled: int  # rows of each table of what was compiled


def _fitted(profile: Profile) -> tuple[rank_digest.DigestColumns, pb.Digest]:
    """Halve the largest section until the digest fits."""
    kept = profile.of(_all_of_it)
    while True:
        columns = _columns(profile, kept)
        message = rank_digest.message_from_columns(columns)
        if message.ByteSize() <= LARGEST or not any(kept):
            return columns, message
        sizes = {
            "calls": len(message.calls) + len(message.steps),
            "host": len(message.host) + len(message.kernels),
            "compiled": len(message.compiled),
        }
        largest = max((name for name in sizes if getattr(kept, name)), key=lambda name: sizes[name])
        kept = kept._replace(**{largest: getattr(kept, largest) // 2})


def _all_of_it(profile: Profile) -> _Excerpt:
    summary, begins = profile.summary or CompileSummary(), profile.of(_begins)
    rows = max(len(summary.compilations), len(summary.recompiles), len(summary.graph_breaks))
    return _Excerpt(len(begins), len(begins), rows)


def _begins(profile: Profile) -> Int64s:
    """Return when the steps begin; where none are marked, the collectives."""
    windows, calls = profile.of(marked_steps), profile.of(rank_calls)
    moments = np.where(calls.launch >= 0, calls.launch, calls.begin) - profile.trace.base_ns
    return windows.starts if len(windows) else moments


def _until(profile: Profile, count: int) -> int:
    """Return when the first one of `_begins` begins that is left out."""
    begins = profile.of(_begins)
    return int(begins[count]) if count < len(begins) else _NEVER


def _columns(profile: Profile, kept: _Excerpt) -> rank_digest.DigestColumns:
    whole, header, moments = profile.of(_all_of_it), _identified(profile), profile.of(cuts)
    host, of_host, what = min(kept.host, kept.calls), whole.host, "collectives"
    moments = moments[moments <= _until(profile, host)]
    if len(profile.of(marked_steps)):
        of_host, what = profile.of(launch_sequence).steps, "steps"
        header.host_steps = host = min(host, of_host)
    if profile.summary:
        header.compiled = _compiled(profile.summary, kept.compiled)
    header.notices.extend(left_out(what, kept.calls, whole.calls))
    header.notices.extend(left_out("compilations", kept.compiled, whole.compiled))
    header.notices.extend(left_out(f"{what} of the host", host, of_host))
    details = rank_digest.DigestDetails(_host(profile, moments), _kernels(profile, moments))
    calls = _calls(profile, _until(profile, kept.calls))
    return rank_digest.DigestColumns(header, calls, moments, *_steps(profile, kept.calls), details)


def _identified(profile: Profile) -> pb.Digest:
    """Return a message with only the facts of the trace and the log about the rank."""
    trace, span, step = profile.trace, profile.span, profile.of(step_time)
    begin, end = trace.window()
    return pb.Digest(
        rank=recorded_number(trace, "rank"),
        world_size=recorded_number(trace, "world_size"),
        host_name=host_of(trace.metadata),
        device_name=next(iter(device_names(trace).values()), None) or None,
        torch_version=(profile.summary and profile.summary.environment.torch_version) or None,
        base_ns=trace.base_ns,
        begin_ns=begin,
        end_ns=end,
        notices=[
            pb.DigestNotice(problem=notice.problem, kept=notice.kept, next_step=notice.next_step)
            for notice in trace.notices
        ],
        step_us=step.step_us if step.steps else None,
        trace_name=span.file.name if span else None,
        trace_bytes=span.file.size if span else None,
    )


def recorded_number(trace: Trace, name: str) -> int | None:
    """Return what a trace records of its place in the job, None where it does not, or is damaged."""
    number = trace.distributed.get(name)
    return number if isinstance(number, int) and 0 <= number < MOST_RANKS else None


def host_of(metadata: Mapping[str, object]) -> str | None:
    """Return the host that the trace's header names."""
    name = metadata.get("host_name") or metadata.get("hostname")
    return str(name) if name else None


def _calls(profile: Profile, until: int) -> Calls:
    calls, trace = profile.of(rank_calls), profile.trace
    if until == _NEVER:
        return calls
    moments = np.where(calls.launch >= 0, calls.launch, calls.begin) - trace.base_ns
    rows = np.flatnonzero(moments < until)
    kinds, kind = np.unique(calls.kind[rows], return_inverse=True)
    return calls.take(rows)._replace(kind=kind, kinds=[calls.kinds[code] for code in kinds.tolist()])


def _steps(profile: Profile, count: int) -> tuple[rank_digest.HostWindows, rank_digest.RankGpu | None]:
    windows, compiling, gpu = profile.of(marked_steps), profile.of(compile_ns), profile.of(rank_gpu)
    names = windows.names[:count]
    host = rank_digest.HostWindows(
        names, windows.starts[:count], windows.ends[:count], compiling[: len(names)]
    )
    if gpu is None or not (gpu.steps.window < count).any():
        return host, None
    mask = gpu.steps.window < count
    if mask.all():
        return host, gpu
    steps = rank_digest.RankGpuSteps(*(column[mask] for column in gpu.steps))
    inside = gpu.exposed.starts < steps.end.max()
    return host, rank_digest.RankGpu(steps, Intervals(*(column[inside] for column in gpu.exposed)))


def rank_gpu(profile: Profile) -> rank_digest.RankGpu | None:
    """Return the steps on the slowest GPU; None where no step launched GPU work."""
    steps = profile.of(gpu_steps)
    if steps is None or not len(steps.step) or not len(profile.of(marked_steps)):
        return None
    work = profile.of(gpu_work)
    work = work.where(work.device == steps.device)
    active = layers(profile.trace, work)

    def inside(intervals: Intervals) -> Int64s:
        return covered_ns(intervals, steps.begin, steps.end)

    compute, memory = inside(active.compute), inside(active.memory)
    alone = inside(subtract(active.compute, busy(profile.trace, work.of("communication").index)))
    own = rank_digest.RankGpuSteps(
        window=steps.step,
        begin=steps.begin,
        end=steps.end,
        compute=alone,
        overlapped=compute - alone,
        exposed_memory=memory - inside(active.communication),
        idle=steps.length - memory,
    )
    return rank_digest.RankGpu(own, subtract(active.communication, active.compute))


def cuts(profile: Profile) -> Int64s:
    """Return between which moments what the host did is compared with other ranks.

    They are the begin of the recording and of each step, and each launch of a collective; as far as the launch
    sequence goes.
    """
    windows, calls, lane = profile.of(marked_steps), profile.of(rank_calls), profile.of(launch_sequence)
    launches = calls.launch[calls.launch >= 0] - profile.trace.base_ns
    moments = np.unique(np.concatenate(([profile.trace.window()[0]], windows.starts, launches)))
    return np.asarray(moments[moments <= lane.begin[-1]] if len(lane) else moments[:0], np.int64)


def _host(profile: Profile, moments: Int64s) -> rank_digest.HostParts:
    costs = profile.of(host_costs)
    until = _NEVER if len(moments) == len(profile.of(cuts)) else moments.max(initial=_BEFORE)
    codes = {blamed: code for code, blamed in enumerate(dict.fromkeys(costs.blamed))}
    code = np.array([codes[blamed] for blamed in costs.blamed] or [0], np.int64)[costs.code]
    working = slice(0, costs.bounds[2])
    parts = _by_stretch(moments, costs.begin[working], costs.end[working], code[working])
    waiting = np.flatnonzero((costs.end > costs.begin) & (costs.begin < until))
    waiting = waiting[waiting >= costs.bounds[2]]
    used, code_used = np.unique(np.concatenate((parts[1], code[waiting])), return_inverse=True)
    blamed = list(codes)
    return rank_digest.HostParts(
        blamed=[blamed[code]._replace(line=max(blamed[code].line, 0)) for code in used.tolist()],
        stretch=parts[0],
        code=code_used[: len(parts[1])],
        ns=parts[2],
        wait_begin=costs.begin[waiting],
        wait_end=costs.end[waiting],
        wait_code=code_used[len(parts[1]) :],
    )


def _by_stretch(moments: Int64s, begin: Int64s, end: Int64s, code: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Return (interval, code, ns): the time of each code in each interval between two cuts."""
    first = np.maximum(np.searchsorted(moments, begin, side="right") - 1, 0)
    last = np.minimum(np.searchsorted(moments, end), max(len(moments) - 1, 0))
    piece, stretch = ranges(first, np.maximum(last - first, 0))
    ns = np.minimum(end[piece], moments[1:][stretch]) - np.maximum(begin[piece], moments[:-1][stretch])
    keys, key = distinct(stretch, code[piece])
    total = sums(key, np.maximum(ns, 0), keys.shape[1])
    return keys[0][total > 0], keys[1][total > 0], total[total > 0]


def _kernels(profile: Profile, moments: Int64s) -> rank_digest.KernelParts:
    trace, queue = profile.trace, profile.of(gpu_queue)
    stretch = np.searchsorted(moments, profile.of(launched), side="right") - 1
    work = np.flatnonzero(profile.of(computes) & (stretch >= 0) & (stretch < len(moments) - 1))
    rows = queue.row[work]
    names, kernel = distinct(trace.name[rows], codes_of(trace, "grid", rows))
    keys, key = distinct(stretch[work], kernel)
    grids = [*(trace.texts.get("grid") or ()), ""]
    return rank_digest.KernelParts(
        kernels=[(trace.names[name], grids[grid]) for name, grid in names.T.tolist()],
        stretch=keys[0],
        kernel=keys[1],
        launches=np.bincount(key, minlength=keys.shape[1]),
        ns=sums(key, queue.dur[work], keys.shape[1]),
    )


def _compiled(summary: CompileSummary, count: int) -> bytes:
    """Return what was compiled, the first rows of each table; without texts, graphs and phases."""
    rows = CompileSummary(
        environment=summary.environment,
        compilations=summary.compilations[:count],
        recompiles=summary.recompiles[:count],
        graph_breaks=summary.graph_breaks[:count],
    )
    for row in rows.compilations:
        for field in _UNUSED_OF_COMPILATION:
            row.ClearField(field)
        for lookup in row.cache:
            lookup.ClearField("differences")
    for graph_break in rows.graph_breaks:
        for field in _UNUSED_OF_BREAK:
            graph_break.ClearField(field)
    return rank_digest.section_bytes(rows)
