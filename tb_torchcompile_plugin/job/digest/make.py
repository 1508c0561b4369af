"""The digest of a rank: made of its trace and compile data, once, so that a job can be looked at without them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.job.digest import digest_pb2 as pb
from tb_torchcompile_plugin.job.digest.compiling import compile_ns
from tb_torchcompile_plugin.job.digest.host_costs import computes, host_costs, launched
from tb_torchcompile_plugin.job.digest.packed import packed, squeezed
from tb_torchcompile_plugin.job.digest.rank_calls import Group, Kind, RankCalls, rank_calls
from tb_torchcompile_plugin.job.digest.rank_steps import rank_gpu
from tb_torchcompile_plugin.profile.columns import codes_of, distinct, sums
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import device_names
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.host_lane import host_lane
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES

_TOP = 20  # kernels by their time
_OF_COMPILATION = ("phases", "stack", "metrics", "restart_reasons")  # what a job does not ask


def digest(profile: Profile) -> pb.Digest:
    """Of one rank. Raises whatever a question about its trace raises."""
    trace = profile.trace
    begin, end = trace.window()
    made = pb.Digest(
        base_ns=trace.base_ns,
        begin_ns=begin,
        end_ns=end,
        host_steps=profile.of(host_lane).steps,
        calls=_section(_calls(profile.of(rank_calls), profile.of(cuts))),
        steps=_section(_steps(profile)),
        host=_section(_host(profile)),
        kernels=_section(_kernels(profile)),
        compiled=_section(_compiled(profile.summary)) if profile.summary else b"",
        notices=[
            pb.DigestNotice(problem=one.problem, kept=one.kept, next_step=one.next_step)
            for one in trace.notices
        ],
    )
    _identify(made, profile)
    return made


def _section(
    message: pb.CallSection | pb.StepSection | pb.HostSection | pb.KernelSection | CompileSummary,
) -> bytes:
    return squeezed(message.SerializeToString(deterministic=True))


def _identify(made: pb.Digest, profile: Profile) -> None:
    """Whose it is, as far as the trace tells."""
    trace = profile.trace
    for name in ("rank", "world_size"):
        known = trace.distributed.get(name)
        if isinstance(known, int) and 0 <= known < 1 << 20:
            setattr(made, name, known)
    if host := host_of(trace.metadata):
        made.host_name = host
    if device := next(iter(device_names(trace).values()), None):
        made.device_name = device
    if profile.summary and profile.summary.environment.torch_version:
        made.torch_version = profile.summary.environment.torch_version
    if profile.span:
        made.trace_name, made.trace_bytes = profile.span.file.name, profile.span.file.size


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


def _steps(profile: Profile) -> pb.StepSection:
    windows, gpu = profile.of(StepWindows), profile.of(rank_gpu)
    compiling = profile.of(compile_ns)
    return pb.StepSection(
        names=windows.names,
        windows=packed(
            windows.starts, windows.ends, np.array([compiling[name] for name in windows.names], np.int64)
        ),
        gpu=packed(*gpu.steps) if gpu else None,
        exposed=packed(*gpu.exposed) if gpu else b"",
    )


def cuts(profile: Profile) -> Int64s:
    """Between which moments what the host did is compared with other ranks: where all that was recorded begins, or a
    step, and where a collective is launched; as far as the lane of its calls goes."""
    windows, calls, lane = profile.of(StepWindows), profile.of(rank_calls), profile.of(host_lane)
    launches = calls.launch[calls.launch >= 0] - profile.trace.base_ns
    moments = np.unique(np.concatenate(([profile.trace.window()[0]], windows.starts, launches)))
    return np.asarray(moments[moments <= lane.begin[-1]] if len(lane) else moments[:0], np.int64)


def _host(profile: Profile) -> pb.HostSection:
    costs, at = profile.of(host_costs), profile.of(cuts)
    codes = {one: code for code, one in enumerate(dict.fromkeys(costs.blamed))}
    code = np.array([codes[one] for one in costs.blamed] or [0], np.int64)[costs.code]
    working = slice(0, costs.bounds[2])
    waiting = np.flatnonzero(costs.end > costs.begin)
    waiting = waiting[waiting >= costs.bounds[2]]
    return pb.HostSection(
        culprits=[
            pb.Culprit(cause=one.cause, name=one.name, file=one.file, line=max(one.line, 0)) for one in codes
        ],
        parts=packed(*_shared_out(at, costs.begin[working], costs.end[working], code[working])),
        waits=packed(costs.begin[waiting], costs.end[waiting], code[waiting]),
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


def _kernels(profile: Profile) -> pb.KernelSection:
    """By stretch what was launched in it."""
    trace, queue, at = profile.trace, profile.of(gpu_queue), profile.of(cuts)
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


def _compiled(summary: CompileSummary) -> CompileSummary:
    """What was compiled, with its guards and caches; without texts, graphs and phases."""
    rows = CompileSummary(
        environment=summary.environment,
        compilations=summary.compilations,
        recompiles=summary.recompiles,
        graph_breaks=summary.graph_breaks,
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
