"""Which columns does a job need of a rank? They are made from its trace and compile data, once.

The digest of a rank holds 100 kB at most. Of a long recording it holds whole steps from the first one on: their number
is halved until they fit, so that the ranks of a job, which recorded about the same, mostly hold the same steps.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.job.digest import digest_pb2 as pb
from tb_torchcompile_plugin.job.digest import rank_digest
from tb_torchcompile_plugin.job.digest.file import LARGEST, ROOM, fitting, left_out
from tb_torchcompile_plugin.job.digest.host_costs import computes, host_costs, launched
from tb_torchcompile_plugin.job.digest.rank_calls import RankCalls, rank_calls
from tb_torchcompile_plugin.profile.columns import codes_of, distinct, ranges, sums
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import busy, device_names, gpu_work, layers
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, covered_ns, subtract
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import launch_sequence
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import compile_ns, gpu_steps, marked_steps, step_time
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES

MOST_RANKS = 1 << 20  # a larger number in a trace is damage
_TOP = 20  # kernels by their time, chosen by eye
_NEVER, _BEFORE = 1 << 62, -(1 << 62)  # ns, beyond all times
_UNUSED_OF_COMPILATION = ("phases", "stack", "metrics", "restart_reasons")
_UNUSED_OF_BREAK = ("stack", "text", "explanation", "hints")


def digest(profile: Profile) -> pb.Digest:
    """Return the digest of one rank as a message. Raises whatever a question about its trace raises."""
    return profile.of(_fitted)[1]


def digest_columns(profile: Profile) -> rank_digest.DigestColumns:
    """Return the columns of the same digest."""
    return profile.of(_fitted)[0]


def _fitted(profile: Profile) -> tuple[rank_digest.DigestColumns, pb.Digest]:
    columns = _columns(profile, profile.of(_all_of_it))
    message = rank_digest.message_from_columns(columns)
    if message.ByteSize() > LARGEST:
        columns = _columns(profile, _what_fits(profile))
        message = rank_digest.message_from_columns(columns)
    return columns, message


class _Excerpt(NamedTuple):
    """How much of a recording its digest holds, each from the first one on."""

    steps: int  # without marked steps: collectives
    compilations: int
    cuts: int


def _all_of_it(profile: Profile) -> _Excerpt:
    summary = profile.summary or CompileSummary()
    return _Excerpt(
        len(profile.of(marked_steps)) or len(profile.of(rank_calls).begin),
        max(len(summary.compilations), len(summary.recompiles), len(summary.graph_breaks)),
        len(profile.of(cuts)),
    )


def _what_fits(profile: Profile) -> _Excerpt:
    most, moments = profile.of(_all_of_it), profile.of(cuts)

    def trial(steps: int, compilations: int = 0, cuts: int = 0) -> pb.Digest:
        return rank_digest.message_from_columns(_columns(profile, _Excerpt(steps, compilations, cuts)))

    def call_size(count: int) -> int:
        message = trial(count)
        return len(message.calls) + len(message.steps)

    steps = fitting(call_size, most.steps, ROOM.calls)
    moments = moments[moments <= _beginning(profile, steps)[1]]

    def host_size(count: int) -> int:
        message = trial(steps, 0, _whole_steps(profile, moments, count))
        return len(message.calls) + len(message.host) + len(message.kernels)

    stretches = fitting(host_size, len(moments), len(trial(steps).calls) + ROOM.host)
    compilations = fitting(lambda count: len(trial(0, count).compiled), most.compilations, ROOM.compiled)
    return _Excerpt(steps, compilations, _whole_steps(profile, moments, stretches))


def _whole_steps(profile: Profile, moments: Int64s, count: int) -> int:
    """Return how many of these cuts to take, so that no step is cut in two: at most `count`, at least one step's."""
    if count in (0, len(moments)):
        return count
    ends = _step_ends(profile)
    whole = ends[ends <= moments[count - 1]]
    return int(np.searchsorted(moments, whole[-1], side="right")) if len(whole) else count


def _step_ends(profile: Profile) -> Int64s:
    """Return when the steps of the launch sequence end."""
    lane = profile.of(launch_sequence)
    return lane.begin[lane.marks][1:]


def _columns(profile: Profile, kept: _Excerpt) -> rank_digest.DigestColumns:
    (calls, _), moments = _beginning(profile, kept.steps), profile.of(cuts)[: kept.cuts]
    header = _identified(profile)
    what = "steps" if len(profile.of(marked_steps)) else "collectives"
    header.notices.extend(left_out(what, kept.steps, profile.of(_all_of_it).steps))
    if profile.summary:
        header.compiled = _compiled(profile.summary, kept.compilations)
        most = profile.of(_all_of_it).compilations
        header.notices.extend(left_out("compilations", kept.compilations, most))
    steps, stretches = profile.of(launch_sequence).steps, len(profile.of(cuts))
    if len(moments) < stretches:
        kept_steps = int((_step_ends(profile) <= moments.max(initial=_BEFORE)).sum())
        rows = ("steps of the host", kept_steps, steps)
        if not kept_steps:
            rows = ("stretches of the host's time between collectives", len(moments), stretches)
        header.notices.extend(left_out(*rows))
        steps = kept_steps
    header.host_steps = steps
    details = rank_digest.DigestDetails(_host(profile, moments), _kernels(profile, moments))
    return rank_digest.DigestColumns(header, calls, moments, *_steps(profile, kept.steps), details)


def _identified(profile: Profile) -> pb.Digest:
    """Return a message that holds only what the trace and the log tell of the rank."""
    trace = profile.trace
    begin, end = trace.window()
    message = pb.Digest(
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
    )
    step = profile.of(step_time)
    if step.steps:
        message.step_us = step.step_us
    if profile.span:
        message.trace_name, message.trace_bytes = profile.span.file.name, profile.span.file.size
    return message


def recorded_number(trace: Trace, name: str) -> int | None:
    """Return what a trace records of its place in the job, None where it does not, or is damaged."""
    number = trace.distributed.get(name)
    return number if isinstance(number, int) and 0 <= number < MOST_RANKS else None


def host_of(metadata: Mapping[str, object]) -> str | None:
    """Return the host that the trace's header names."""
    name = metadata.get("host_name") or metadata.get("hostname")
    return str(name) if name else None


def _beginning(profile: Profile, count: int) -> tuple[RankCalls, int]:
    """Return the collectives of the first `count` steps, or without steps as many; and until when they are (ns)."""
    windows, calls = profile.of(marked_steps), profile.of(rank_calls)
    moments = np.where(calls.launch >= 0, calls.launch, calls.begin) - profile.trace.base_ns
    ends = windows.starts if len(windows) else moments
    if count == len(ends):
        return calls, _NEVER
    rows = np.flatnonzero(moments < ends[count])
    kinds, kind = np.unique(calls.kind[rows], return_inverse=True)
    begin, end, launch, seq, _, comms = (column[rows] for column in calls[:-1])
    first = RankCalls(begin, end, launch, seq, kind, comms, [calls.kinds[code] for code in kinds.tolist()])
    return first, int(ends[count]) - 1


def _steps(profile: Profile, count: int) -> tuple[rank_digest.HostWindows, rank_digest.RankGpu | None]:
    """Return the first `count` steps on the host and on the GPU."""
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
    """Return (stretch, code, ns): how much of the pieces of each code lies in each stretch between two cuts."""
    first = np.maximum(np.searchsorted(moments, begin, side="right") - 1, 0)
    last = np.minimum(np.searchsorted(moments, end), max(len(moments) - 1, 0))
    piece, stretch = ranges(first, np.maximum(last - first, 0))
    ns = np.minimum(end[piece], moments[1:][stretch]) - np.maximum(begin[piece], moments[:-1][stretch])
    keys, key = distinct(stretch, code[piece])
    total = sums(key, np.maximum(ns, 0), keys.shape[1])
    return keys[0][total > 0], keys[1][total > 0], total[total > 0]


def _kernels(profile: Profile, moments: Int64s) -> rank_digest.KernelParts:
    """Return what was launched in each stretch."""
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
        top=profile.of(_top),
    )


def _top(profile: Profile) -> list[pb.TopKernel]:
    """Return the kernels of all GPUs of the rank, most time first."""
    devices = [launches for launches in profile.of(kernel_launches) if launches.device != "cpu"]
    if not devices:
        return []
    name, category, dur = (
        np.concatenate([getattr(launches, column) for launches in devices])
        for column in ("name", "category", "dur")
    )
    keys, key = distinct(name, category)
    count, total = np.bincount(key, minlength=keys.shape[1]), sums(key, dur, keys.shape[1])
    return [
        pb.TopKernel(
            name=profile.trace.names[keys[0][row]],
            category=CATEGORIES[keys[1][row]],
            launches=int(count[row]),
            time_ns=int(total[row]),
        )
        for row in np.argsort(-total, kind="stable")[:_TOP].tolist()
    ]


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
