"""Why does compiling not bring more? What of a step it cannot make shorter, and what it adds, largest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.change import (
    Change,
    in_sequence,
    with_call_time,
    with_durations,
    without_host_time,
)
from tb_torchcompile_plugin.analysis.causes.fix import slice_times, time_inside
from tb_torchcompile_plugin.analysis.causes.scenario import recording_cost
from tb_torchcompile_plugin.analysis.causes.what_if import after_ns, why_nothing
from tb_torchcompile_plugin.analysis.compile.graph_breaks import graph_break_costs
from tb_torchcompile_plugin.analysis.formatting import duration, percent, plural
from tb_torchcompile_plugin.analysis.runtime.compiled_regions import call_overhead
from tb_torchcompile_plugin.analysis.runtime.eager import eager_time
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import KernelName, kernel_name, launched_in
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_table
from tb_torchcompile_plugin.analysis.sheet import head
from tb_torchcompile_plugin.generated_code.generated_code import GraphCode
from tb_torchcompile_plugin.profile.columns import mask_of, places_in
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import (
    compiled_calls,
    every,
    generated_code,
    region_calls,
)
from tb_torchcompile_plugin.profile.gpu.launches import groups, kernel_launches
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane, host_pieces
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, profiled_time, step_ns
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, Category, is_triton
from tb_torchcompile_plugin.torch_names.operators import ATEN, only_looks
from tb_torchcompile_plugin.torch_names.records import SYMBOLS
from tb_torchcompile_plugin.torch_names.slices import OPERATOR

Obstacle = Literal[
    "nothing", "library", "memory", "eager", "guards", "breaks", "recompiles", "dynamic", "kernels"
]
LIBRARY: tuple[Category, ...] = ("gemm", "convolution", "attention", "communication")
_FULL_PERCENT = 70.0  # of a device's bandwidth: a kernel that reaches it has nothing to gain
_SHORTEST_NS = 1_500  # of a kernel, however little it does
_TRITON = [code for code, name in enumerate(CATEGORIES) if is_triton(name)]


class Assumed(NamedTuple):
    """What one eager operator is assumed to take; chosen by eye."""

    tensors: float  # that it reads and writes
    launch_ns: int  # of host time


USUAL, LEAST, MOST = Assumed(2.25, 10_000), Assumed(1.5, 5_000), Assumed(3.0, 18_000)


class WhyNot(msgspec.Struct, frozen=True):
    """One reason, with its price where it has one."""

    cause: Obstacle
    time_us: float | None  # per step, on the GPU or on the host
    percent: Annotated[float | None, head("Of a step")]
    says: Annotated[str, head("What it is", grow=True)]
    where: Annotated[str, head("Mostly", grow=True)]  # operators, kernels or symbols


def why_not(profile: Profile) -> list[WhyNot]:
    """Return the reasons for a run that compiled something; small ones are left out."""
    rows = [row for ask in (_library, _full, _eager, _guards, _breaks) for row in ask(profile)]
    priced = [row for row in rows if (row.percent or 0.0) >= thresholds.considered_percent]
    priced.sort(key=lambda row: -(row.time_us or 0.0))
    if not profile.of(compiled_calls):
        priced.insert(
            0, WhyNot("nothing", None, None, "Nothing that runs in the profiled time is compiled", "")
        )
    return [*priced, *_unpriced(profile)]


def _row(profile: Profile, cause: Obstacle, us: float, says: str, where: str = "") -> WhyNot:
    """Return a row for a time of all steps (µs); `says` precedes the time."""
    steps = len(profile.of(StepWindows))
    wall_ns = int(profile.of(step_ns).sum()) if steps else profile.of(profiled_time).total_ns
    each, share = us / max(steps, 1), 100 * us / (wall_ns / 1000) if wall_ns else None
    part = "" if share is None else f", {percent(share)} of it"
    text = f"{says} {duration(each)} {'a step' if steps else 'in this span'}{part}"
    return WhyNot(cause, each, share, text, where)


def _gpu_ns(profile: Profile, categories: tuple[Category, ...] = CATEGORIES) -> int:
    """Return the summed time of the kernels that the steps launched, of these categories."""
    codes, total = [CATEGORIES.index(name) for name in categories], 0
    for rows in profile.of(kernel_launches):
        if rows.device != "cpu":
            counted = np.isin(rows.category, codes) & launched_in(profile, rows)
            total += int(rows.dur[counted].sum())
    return total


def _library(profile: Profile) -> Iterator[WhyNot]:
    if ns := _gpu_ns(profile, LIBRARY):
        rows = [row for row in profile.of(kernel_table).rows if row.category in LIBRARY]
        names = dict.fromkeys(row.category for row in sorted(rows, key=lambda row: -row.time_us))
        says = f"Kernels of libraries ({', '.join(names)}), which are the same compiled or not, take"
        yield _row(profile, "library", ns / 1000, says, rows[0].name if rows else "")


def _full(profile: Profile) -> Iterator[WhyNot]:
    rows = [row for row in profile.of(kernel_table).rows if is_triton(row.category)]
    full = [row for row in rows if (row.bandwidth_percent or 0.0) >= _FULL_PERCENT]
    if full:
        total_us = sum(row.time_us for row in profile.of(kernel_table).rows if row.device != "cpu")
        share = sum(row.time_us for row in full) / (total_us or 1.0)
        says = (
            f"Generated kernels that move data as fast as the GPU can (from {percent(_FULL_PERCENT)} of its bandwidth "
            "on) take"
        )
        yield _row(profile, "memory", share * _gpu_ns(profile) / 1000, says, full[0].name)


def _eager(profile: Profile) -> Iterator[WhyNot]:
    eager = profile.of(eager_time)
    if eager.host_us:
        first = next((op for op in eager.ops if op.kind != "in_region"), None)
        says = "What is not compiled (optimizer, loss, operators outside of compiled code) keeps the host for"
        yield _row(profile, "eager", eager.host_us, says, first.name if first else "")


def _guards(profile: Profile) -> Iterator[WhyNot]:
    cost = profile.of(call_overhead)
    if cost is not None:
        calls = plural(round(cost.calls / max(cost.steps, 1)), "call")
        us = cost.guard_us + (cost.overhead_us or 0.0)
        yield _row(profile, "guards", us, f"Guards and wrappers of {calls} of compiled code take")


def _breaks(profile: Profile) -> Iterator[WhyNot]:
    costs = profile.of(graph_break_costs) or []
    if us := sum(cost.profiled_us for cost in costs):
        where = f"{costs[0].file}:{costs[0].line}" if costs[0].file else ""
        yield _row(profile, "breaks", us, "Between graphs that break, the host spends", where)


def _unpriced(profile: Profile) -> Iterator[WhyNot]:
    """Yield recompiles, and sizes that are not fixed in the graphs that ran."""
    rows = profile.summary.recompiles if profile.summary else ()
    if rows:
        says = f"{plural(len(rows), 'recompile')}: each is paid for, and each call tries the guards of all versions"
        yield WhyNot("recompiles", None, None, says, f"{rows[0].file}:{rows[0].line}" if rows[0].file else "")
    ran = {call.compile_id for call in every(profile.of(region_calls))}
    events = profile.summary.shape_events if profile.summary else ()
    names = sorted({row.symbol for row in events if row.kind in SYMBOLS and row.key.compile_id in ran})
    if names:
        says = f"{plural(len(names), 'size is', 'sizes are')} dynamic: kernels for any size are slower"
        yield WhyNot("dynamic", None, None, says, ", ".join(names[:3]))


class EagerStep(NamedTuple):
    """A predicted eager step (µs), with its range."""

    step_us: float
    low_us: float
    high_us: float
    operators: float  # per step, that generated kernels are made of


def uncompiled(profile: Profile) -> EagerStep | None:
    """Predict a step without torch.compile; None without a prediction, a generated kernel or its code.

    In the model each fused kernel becomes its operators. Each of those reads and writes its tensors by itself, at the
    bandwidth of the fused kernel; its launch takes the host as long as an operator's does. The guards and wrappers of
    compiled code are gone, kernels of libraries stay. What an operator moves and what its launch takes is not known
    exactly: so there is a range.
    """
    if profile.of(why_nothing):
        return None
    operators, _ = profile.of(_fused)
    if not operators.any():
        return None
    cost = profile.of(recording_cost)
    times = [after_ns(profile, _unfused(profile, assumed), cost) / 1000 for assumed in (USUAL, LEAST, MOST)]
    return EagerStep(times[0], min(times), max(times), int(operators.sum()) / profile.of(host_lane).steps)


def _unfused(profile: Profile, assumed: Assumed) -> Change:
    queue, lane, (operators, tensors) = profile.of(gpu_queue), profile.of(host_lane), profile.of(_fused)
    generated = operators > 0
    alone = operators * assumed.tensors / np.maximum(tensors, 1)
    longer = np.where(operators > 1, np.maximum(alone, 1.0), 1.0)
    dur = np.maximum((queue.dur * longer).astype(np.int64), operators * _SHORTEST_NS)
    launches = np.zeros(len(lane), np.int64)
    np.add.at(launches, queue.point[generated], operators[generated])
    return in_sequence(
        without_host_time(profile.of(_wrapper_ns)),
        with_call_time(launches > 0, launches * assumed.launch_ns),
        with_durations(np.flatnonzero(generated), dur[generated]),
    )


def _wrapper_ns(profile: Profile) -> Int64s:
    """Return the part of each host segment that compiled code spends outside of a library's operators."""
    trace = profile.trace
    rows = [call.index for call in profile.of(compiled_calls)]
    rows += [row for row, _ in profile.of(Ownership).backwards]
    inside = time_inside(profile, slice_times(profile, np.array(rows, np.int64)))
    aten = mask_of(trace.names, lambda name: name.startswith(ATEN))[trace.name]
    is_operator = aten & mask_of(trace.cats, OPERATOR.__eq__)[trace.cat]
    # Row -1, where nothing was recorded, is the last.
    return np.where(np.append(is_operator, False)[profile.of(host_pieces).row], 0, inside)


def _fused(profile: Profile) -> tuple[Int64s, Int64s]:
    """Return of how many operators each work of the queue is made, 0 for unknown, and how many tensors it moves."""
    queue_rows = profile.of(gpu_queue).row
    operators, tensors = np.zeros((2, len(queue_rows)), np.int64)
    for rows in profile.of(kernel_launches):
        for launches in groups(rows) if rows.device != "cpu" else ():
            if rows.category[launches[0]] in _TRITON:
                work = places_in(queue_rows, rows.index[launches])
                work = work[work >= 0]
                operators[work], tensors[work] = _made_of(profile, kernel_name(profile, rows, launches))
    return operators, tensors


def _made_of(profile: Profile, kernel: KernelName) -> tuple[int, int]:
    """Return the (operators, tensors) of one launch; zeros where the code of the kernel is unknown."""
    generated = profile.of(generated_code).find(kernel.name, kernel.compile_id, kernel.graph_key)
    if generated is None:
        return 0, 0
    definition = generated.definition
    times = profile.of(_kernels_by_node, generated.code)
    nodes = sum(1 / times[node] for node in definition.source_nodes if not only_looks(node))
    # Kernels without nodes are counted by operators instead.
    named = 0 if definition.source_nodes else sum(not only_looks(name) for name in definition.aten_ops)
    return max(round(nodes), named, 1), (definition.signature or "").count("_ptr")


def _kernels_by_node(profile: Profile, code: GraphCode) -> Counter[str]:
    """Return how many kernels of a graph each node is part of: a reduction in two parts is one operator."""
    return Counter(node for row in code.definitions.values() for node in set(row.source_nodes))
