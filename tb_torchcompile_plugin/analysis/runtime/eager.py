"""Show what ran eagerly in the profiled steps, by operator and by the user's function that called it.

See `eager_roots` for what counts as eager. Where the trace has no steps, the span is the window.
"""

from collections.abc import Iterator
from typing import Annotated, Literal, get_args

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.compile.compilations import Problem, problems
from tb_torchcompile_plugin.analysis.formatting import column_head, duration, percent
from tb_torchcompile_plugin.profile.columns import (
    Cover,
    Int64s,
    covered_ns,
    distinct,
    host_slices,
    mask_of,
    share_percent,
    sums,
    us,
    values_at,
    within,
)
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.host.eager_roots import EagerRoots, Roots
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, profiled_time
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.nest import first_ancestor
from tb_torchcompile_plugin.torch_names import operators, python_frames, slices

EagerKind = Literal["operator", "backward", "optimizer", "data_loading", "graph_break"]
EagerReason = Literal["graph_break", "recompile_limit", "skipped", "failed", "profiler_hook", "not_compiled"]
_KINDS: tuple[EagerKind, ...] = get_args(EagerKind)
# Why a function runs eagerly, by the kind of the compilation's problem.
_REASONS: dict[str, EagerReason] = {"limit": "recompile_limit", "skipped": "skipped", "failed": "failed"}


class EagerOp(msgspec.Struct, frozen=True):
    """One outermost operator, called from one function."""

    name: Annotated[str, column_head("Operator")]
    kind: EagerKind  # backward: a node of autograd; graph_break: in a compiled region between its graphs
    # This and the next two: the user's innermost function around it; None without Python stacks.
    function: Annotated[str | None, column_head("Called in", grow=True)]
    file: str | None
    line: int | None  # its first line
    why: EagerReason | None  # not_compiled: torch.compile never got that function; None where unknown
    calls: Annotated[int, column_head(total=True)]
    host_us: Annotated[float, column_head(bar=True, total=True)]
    # The GPU events that it launched; None without GPU.
    device_us: Annotated[float | None, column_head(total=True)]


class EagerTime(msgspec.Struct, frozen=True):
    """What ran eagerly, without what ran in regions (`graph_break`): that is a cost of graph breaks."""

    headline: str
    host_us: float  # summed over threads
    share_percent: float | None  # of the steps or the span, in which any thread ran eager operators
    device_us: float | None
    device_share_percent: float | None
    ops: Annotated[list[EagerOp], column_head("Eager operators")]


def eager_time(profile: Profile) -> EagerTime:
    """Return what ran eagerly. Operators: most host time first, those in regions last."""
    roots, steps, windows = profile.of(EagerRoots), profile.of(StepWindows), profile.of(profiled_time)
    outside, inside = (
        part.where(within(windows, part.start) >= 0) for part in (roots.outside, roots.in_regions)
    )
    gpu = len(profile.of(gpu_work).index) > 0
    host_us, device_ns = us(outside.host_ns.sum()), int(outside.device_ns.sum())
    share = share_percent(covered_ns(roots.running, *windows).sum(), windows.total_ns)
    device_share = share_percent(device_ns, roots.launched_ns(steps)) if gpu else None
    return EagerTime(
        headline=_headline(profile, len(outside.row), host_us, share, device_share),
        host_us=host_us,
        share_percent=share,
        device_us=us(device_ns) if gpu else None,
        device_share_percent=device_share,
        ops=sorted(
            [*_ops(profile, outside, gpu), *_ops(profile, inside, gpu, "graph_break")],
            key=lambda op: (op.kind == "graph_break", -op.host_us, op.name),
        ),
    )


def _headline(
    profile: Profile, calls: int, host_us: float, share: float | None, device_share: float | None
) -> str:
    """Return "Eager operators take 486 µs per step on the host (8.08 % of the steps) and 12.7 % of GPU time."."""
    steps = len(profile.of(StepWindows))
    window = "steps" if steps else "span"
    if not calls:
        return f"Nothing ran eagerly in the profiled {window}."
    host = f"{duration(host_us / steps)} per step" if steps else duration(host_us)
    part = "" if share is None else f" ({percent(share)} of the {window})"
    gpu = "" if device_share is None else f" and {percent(device_share)} of GPU time"
    has_stacks = slices.PYTHON_FUNCTION in profile.trace.cats
    more = "" if has_stacks else " Profile with with_stack=True to see which of your functions called them."
    return f"Eager operators take {host} on the host{part}{gpu}.{more}"


def _ops(profile: Profile, roots: Roots, gpu: bool, kind: EagerKind | None = None) -> Iterator[EagerOp]:
    """Yield one row for each operator, kind and calling function."""
    trace = profile.trace
    conditions = [
        Cover(trace, host_slices(trace, slices.is_optimizer)).holds(roots.row),
        Cover(trace, host_slices(trace, slices.is_data_loading)).holds(roots.row),
        mask_of(trace.names, operators.is_backward)[trace.name[roots.row]],
    ]
    kinds = np.select(conditions, [2, 3, 1], 0)  # codes into `_KINDS`
    keys, row_of = distinct(trace.name[roots.row], kinds, _callers(trace, roots.row))
    reported = profile.data.of(problems) if profile.data else []
    by_function = grouped((row for row in reported if row.ran_eager), lambda row: row.function)
    count = keys.shape[1]
    host, device = (sums(row_of, ns, count) for ns in (roots.host_ns, roots.device_ns))
    calls = np.bincount(row_of, minlength=count)
    for row, (name, code, caller) in enumerate(keys.T.tolist()):
        frame = python_frames.frame_of(trace.names[caller]) if caller >= 0 else None
        file, line, function, _ = frame or (None, None, None, None)
        yield EagerOp(
            name=operators.node_name(trace.names[name]),
            kind=kind or _KINDS[code],
            function=function,
            file=file,
            line=line,
            why="graph_break" if kind else _why(by_function, frame),
            calls=int(calls[row]),
            host_us=us(host[row]),
            device_us=us(device[row]) if gpu else None,
        )


def _why(
    by_function: dict[str, list[Problem]], frame: python_frames.PythonFrame | None
) -> EagerReason | None:
    """Return why a function ran eagerly; by_function: the problems after which torch ran one eagerly."""
    if frame is None:
        return None
    if python_frames.is_profiler_hook(frame.function):
        return "profiler_hook"
    rows = by_function.get(frame.function, ())
    return next((_REASONS[row.kind] for row in rows if row.file.endswith(frame.file)), "not_compiled")


def _callers(trace: Trace, rows: Int64s) -> Int64s:
    """Return the name code of the user's innermost function around each slice, -1 without a stack."""
    is_frame = mask_of(trace.cats, slices.PYTHON_FUNCTION.__eq__)[trace.cat]
    is_user_frame = is_frame & mask_of(trace.names, python_frames.is_user_function)[trace.name]
    caller = first_ancestor(trace.parent, trace.parent[rows].astype(np.int64), is_user_frame)
    return values_at(trace.name, caller)
