"""The digest of a rank: made of its trace and compile data, once, so that a job can be looked at without them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.job.digest import digest_pb2 as pb
from tb_torchcompile_plugin.job.digest.file import (
    LARGEST,
    ROOM,
    UNLIMITED,
    Room,
    fitting,
    left_out,
    packed,
    squeezed,
)
from tb_torchcompile_plugin.job.digest.host_costs import compile_ns, computes, host_costs, launched
from tb_torchcompile_plugin.job.digest.rank_calls import Group, Kind, RankCalls, rank_calls
from tb_torchcompile_plugin.job.digest.rank_digest import OwnSteps, RankGpu, rank_gpu
from tb_torchcompile_plugin.profile.columns import codes_of, distinct, sums
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import device_names
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES

MOST_RANKS = 1 << 20  # that a damaged number may claim
_TOP = 20  # kernels by their time
_NEVER, _BEFORE = 1 << 62, -(1 << 62)
_NOTHING = np.zeros(0, np.int64)
_OF_COMPILATION = ("phases", "stack", "metrics", "restart_reasons")  # what a job does not ask


def digest(profile: Profile) -> pb.Digest:
    """Of one rank, of at most 100 kB: of a long recording its first steps. Raises whatever a question about its
    trace raises."""
    whole = _digest(profile, UNLIMITED)
    return whole if whole.ByteSize() <= LARGEST else _digest(profile, ROOM)


def _digest(profile: Profile, room: Room) -> pb.Digest:
    made = _identified(profile)
    windows, calls = profile.of(StepWindows), profile.of(rank_calls)
    most, what = (len(windows), "steps") if len(windows) else (len(calls.row), "collectives")
    parts, count = fitting(partial(_beginning, profile), most, room.calls)
    made.steps, part = parts[1], _until(profile, count)
    made.notices.extend(left_out(what, count, most))
    _add_compiled(made, profile, room.compiled)
    _add_host(made, profile, part, len(parts[0]) + room.host)
    return made


def _beginning(profile: Profile, count: int) -> list[bytes]:
    """The collectives, and the steps, of so many steps."""
    part = _until(profile, count)
    return [_section(_calls(part.calls, _NOTHING)), _section(_steps(profile, part))]


def _add_compiled(made: pb.Digest, profile: Profile, room: int) -> None:
    if (summary := profile.summary) is None:
        return
    most = max(len(summary.compilations), len(summary.recompiles), len(summary.graph_breaks))
    parts, count = fitting(lambda count: [_section(_compiled(summary, count))], most, room)
    (made.compiled,) = parts
    made.notices.extend(left_out("compilations", count, most))


def _add_host(made: pb.Digest, profile: Profile, part: _Beginning, room: int) -> None:
    """And with it the collectives, which hold the cuts."""
    at = profile.of(cuts)
    at = at[at <= part.until]
    steps = profile.of(host_lane).steps

    def sections(count: int) -> list[bytes]:
        mine = at[: _whole_steps(profile, at, count)]
        return [
            _section(one) for one in (_calls(part.calls, mine), _host(profile, mine), _kernels(profile, mine))
        ]

    (made.calls, made.host, made.kernels), count = fitting(sections, len(at), room)
    if (count := _whole_steps(profile, at, count)) == len(profile.of(cuts)):
        made.host_steps = steps
        return
    made.host_steps = int((_step_ends(profile) <= at[:count].max(initial=_BEFORE)).sum())
    kept = (made.host_steps, steps) if made.host_steps else (count, len(profile.of(cuts)))
    what = "steps of the host" if made.host_steps else "stretches of the host's time between collectives"
    made.notices.extend(left_out(what, *kept))


def _step_ends(profile: Profile) -> Int64s:
    """Of the steps of the host's lane."""
    lane = profile.of(host_lane)
    return lane.begin[lane.marks][1:]


def _whole_steps(profile: Profile, at: Int64s, count: int) -> int:
    """How many of these cuts to take, so that no step is cut in two: at most so many, at least one step's if any."""
    if count in (0, len(at)):
        return count
    ends = _step_ends(profile)
    whole = ends[ends <= at[count - 1]]
    return int(np.searchsorted(at, whole[-1], side="right")) if len(whole) else count


class _Beginning(NamedTuple):
    """What of a recording goes into its digest. windows: how many steps; until: from when on nothing does."""

    windows: int
    calls: RankCalls
    until: int


def _until(profile: Profile, count: int) -> _Beginning:
    """Of so many steps; without any, of so many collectives."""
    windows, calls = profile.of(StepWindows), profile.of(rank_calls)
    moments = np.where(calls.launch >= 0, calls.launch, calls.begin) - profile.trace.base_ns
    ends = windows.starts if len(windows) else moments
    if count == len(ends):
        return _Beginning(len(windows), calls, _NEVER)
    rows = np.flatnonzero(moments < ends[count])
    return _Beginning(min(count, len(windows)), _some(calls, rows), int(ends[count]) - 1)


def _some(calls: RankCalls, rows: Int64s) -> RankCalls:
    kinds, kind = np.unique(calls.kind[rows], return_inverse=True)
    return RankCalls(
        row=calls.row[rows],
        begin=calls.begin[rows],
        end=calls.end[rows],
        launch=calls.launch[rows],
        seq=calls.seq[rows],
        kind=kind,
        comms=calls.comms[rows],
        kinds=[calls.kinds[one] for one in kinds.tolist()],
    )


def _section(
    message: pb.CallSection | pb.StepSection | pb.HostSection | pb.KernelSection | CompileSummary,
) -> bytes:
    return squeezed(message.SerializeToString(deterministic=True))


def _identified(profile: Profile) -> pb.Digest:
    """Whose it is, as far as the trace tells."""
    trace = profile.trace
    begin, end = trace.window()
    made = pb.Digest(
        base_ns=trace.base_ns,
        begin_ns=begin,
        end_ns=end,
        notices=[
            pb.DigestNotice(problem=one.problem, kept=one.kept, next_step=one.next_step)
            for one in trace.notices
        ],
    )
    for name in ("rank", "world_size"):
        if (known := claimed(trace, name)) is not None:
            setattr(made, name, known)
    if host := host_of(trace.metadata):
        made.host_name = host
    if device := next(iter(device_names(trace).values()), None):
        made.device_name = device
    if profile.summary and profile.summary.environment.torch_version:
        made.torch_version = profile.summary.environment.torch_version
    if profile.span:
        made.trace_name, made.trace_bytes = profile.span.file.name, profile.span.file.size
    return made


def claimed(trace: Trace, name: str) -> int | None:
    """What a trace tells of its place in the job, None where it does not, or is damaged."""
    known = trace.distributed.get(name)
    return known if isinstance(known, int) and 0 <= known < MOST_RANKS else None


def host_of(metadata: Mapping[str, object]) -> str | None:
    """Where it was recorded, as the trace's header names it."""
    name = metadata.get("host_name") or metadata.get("hostname")
    return str(name) if name else None


def _calls(calls: RankCalls, at: Int64s) -> pb.CallSection:
    groups = list(dict.fromkeys(kind.group for kind in calls.kinds if kind.group))
    return pb.CallSection(
        groups=[
            pb.ProcessGroup(name=group.name, ranks=packed(np.array(group.ranks, np.int64)))
            for group in groups
        ],
        kinds=[_kind(kind, groups) for kind in calls.kinds],
        columns=packed(calls.begin, calls.end, calls.launch, calls.seq, calls.kind, calls.comms),
        cuts=packed(at),
    )


def _kind(kind: Kind, groups: list[Group]) -> pb.CollectiveKind:
    return pb.CollectiveKind(
        operation=kind.operation,
        group=groups.index(kind.group) + 1 if kind.group else 0,
        dtype=kind.dtype,
        message_bytes=kind.message_bytes,
        source=kind.source,
        destination=kind.destination,
    )


def _steps(profile: Profile, part: _Beginning) -> pb.StepSection:
    windows, compiling = profile.of(StepWindows), profile.of(compile_ns)
    mine = slice(part.windows)
    names = windows.names[mine]
    compiled = np.array([compiling[name] for name in names], np.int64)
    gpu = _first_steps(profile.of(rank_gpu), part.windows)
    return pb.StepSection(
        names=names,
        windows=packed(windows.starts[mine], windows.ends[mine], compiled),
        gpu=packed(*gpu.steps) if gpu else None,
        exposed=packed(*gpu.exposed) if gpu else b"",
    )


def _first_steps(gpu: RankGpu | None, count: int) -> RankGpu | None:
    if gpu is None or not (gpu.steps.window < count).any():
        return None
    mine = gpu.steps.window < count
    steps = OwnSteps(*(column[mine] for column in gpu.steps))
    inside = gpu.exposed.starts < steps.end.max()
    return RankGpu(steps, gpu.exposed if mine.all() else Intervals(*(one[inside] for one in gpu.exposed)))


def cuts(profile: Profile) -> Int64s:
    """Between which moments what the host did is compared with other ranks: where all that was recorded begins, or a
    step, and where a collective is launched; as far as the lane of its calls goes."""
    windows, calls, lane = profile.of(StepWindows), profile.of(rank_calls), profile.of(host_lane)
    launches = calls.launch[calls.launch >= 0] - profile.trace.base_ns
    moments = np.unique(np.concatenate(([profile.trace.window()[0]], windows.starts, launches)))
    return np.asarray(moments[moments <= lane.begin[-1]] if len(lane) else moments[:0], np.int64)


def _host(profile: Profile, at: Int64s) -> pb.HostSection:
    costs = profile.of(host_costs)
    until = _NEVER if len(at) == len(profile.of(cuts)) else at.max(initial=_BEFORE)
    codes = {one: code for code, one in enumerate(dict.fromkeys(costs.blamed))}
    code = np.array([codes[one] for one in costs.blamed] or [0], np.int64)[costs.code]
    working = slice(0, costs.bounds[2])
    parts = _shared_out(at, costs.begin[working], costs.end[working], code[working])
    waiting = np.flatnonzero((costs.end > costs.begin) & (costs.begin < until))
    waiting = waiting[waiting >= costs.bounds[2]]
    used, code_used = np.unique(np.concatenate((parts[1], code[waiting])), return_inverse=True)
    blamed = list(codes)
    return pb.HostSection(
        culprits=[
            pb.Culprit(cause=one.cause, name=one.name, file=one.file, line=max(one.line, 0))
            for one in (blamed[code] for code in used.tolist())
        ],
        parts=packed(parts[0], code_used[: len(parts[1])], parts[2]),
        waits=packed(costs.begin[waiting], costs.end[waiting], code_used[len(parts[1]) :]),
    )


def _shared_out(at: Int64s, begin: Int64s, end: Int64s, code: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """(stretch, code, ns): how much of the pieces of each code lies in each stretch between two cuts."""
    first = np.maximum(np.searchsorted(at, begin, side="right") - 1, 0)
    last = np.minimum(np.searchsorted(at, end), max(len(at) - 1, 0))
    count = np.maximum(last - first, 0)
    piece = np.repeat(np.arange(len(begin)), count)
    stretch = np.arange(len(piece)) - np.repeat(np.cumsum(count) - count, count) + first[piece]
    ns = np.minimum(end[piece], at[1:][stretch]) - np.maximum(begin[piece], at[:-1][stretch])
    keys, place = distinct(stretch, code[piece])
    total = sums(place, np.maximum(ns, 0), keys.shape[1])
    return keys[0][total > 0], keys[1][total > 0], total[total > 0]


def _kernels(profile: Profile, at: Int64s) -> pb.KernelSection:
    """By stretch what was launched in it."""
    trace, queue = profile.trace, profile.of(gpu_queue)
    stretch = np.searchsorted(at, profile.of(launched), side="right") - 1
    mine = np.flatnonzero(profile.of(computes) & (stretch >= 0) & (stretch < len(at) - 1))
    rows = queue.row[mine]
    names, kernel = distinct(trace.name[rows], codes_of(trace, "grid", rows))
    keys, place = distinct(stretch[mine], kernel)
    count = np.bincount(place, minlength=keys.shape[1])
    total = sums(place, queue.dur[mine], keys.shape[1])
    grids = [*(trace.texts.get("grid") or ()), ""]
    return pb.KernelSection(
        kernels=[pb.KernelName(name=trace.names[name], grid=grids[grid]) for name, grid in names.T.tolist()],
        columns=packed(*keys, count, total),
        top=_top(profile),
    )


def _top(profile: Profile) -> Iterable[pb.TopKernel]:
    """Of all GPUs of the rank, most time first."""
    known = [one for one in profile.of(kernel_launches) if one.device != "cpu"]
    if not known:
        return []
    name, category, dur = (
        np.concatenate([getattr(one, column) for one in known]) for column in ("name", "category", "dur")
    )
    keys, place = distinct(name, category)
    count, total = np.bincount(place, minlength=keys.shape[1]), sums(place, dur, keys.shape[1])
    return [
        pb.TopKernel(
            name=profile.trace.names[keys[0][row]],
            category=CATEGORIES[keys[1][row]],
            launches=int(count[row]),
            time_ns=int(total[row]),
        )
        for row in np.argsort(-total, kind="stable")[:_TOP].tolist()
    ]


def _compiled(summary: CompileSummary, count: int) -> CompileSummary:
    """What was compiled, with its guards and caches; without texts, graphs and phases. The first rows of each table."""
    rows = CompileSummary(
        environment=summary.environment,
        compilations=summary.compilations[:count],
        recompiles=summary.recompiles[:count],
        graph_breaks=summary.graph_breaks[:count],
    )
    for row in rows.compilations:
        for field in _OF_COMPILATION:
            row.ClearField(field)
        for lookup in row.cache:
            lookup.ClearField("differences")
    for broken in rows.graph_breaks:
        for field in ("stack", "text", "explanation", "hints"):
            broken.ClearField(field)
    return rows
