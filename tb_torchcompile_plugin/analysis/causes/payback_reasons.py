"""Why does compiling not bring more? What of a step it cannot make shorter, and what it adds, largest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.causes.change import Bools, Change
from tb_torchcompile_plugin.analysis.causes.fix import slice_times, time_inside
from tb_torchcompile_plugin.analysis.causes.scenario import recording_cost
from tb_torchcompile_plugin.analysis.causes.what_if import after_ns, why_nothing
from tb_torchcompile_plugin.analysis.compile.break_costs import graph_break_costs
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
from tb_torchcompile_plugin.profile.model.model import Model
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
_LEAST_PERCENT = 1.0  # of a step
_FULL_PERCENT = 70.0  # of a device's bandwidth: a kernel that reaches it has nothing to gain


class WhyNot(msgspec.Struct, frozen=True):
    """time_us: of a step, on the GPU or on the host; percent: of a step. None where it has no price. where: the
    operators, kernels or symbols that most of it is of."""

    cause: Obstacle
    time_us: float | None
    percent: Annotated[float | None, head("Of a step")]
    says: Annotated[str, head("What it is", grow=True)]
    where: Annotated[str, head("Mostly", grow=True)]


def why_not(profile: Profile) -> list[WhyNot]:
    """Of a run that compiled something. Rows of less than a hundredth of a step are left out."""
    rows = [row for ask in (_library, _full, _eager, _guards, _breaks) for row in ask(profile)]
    priced = [row for row in rows if (row.percent or 0.0) >= _LEAST_PERCENT]
    ranked = sorted(priced, key=lambda row: -(row.time_us or 0.0))
    return [*_nothing(profile), *ranked, *_recompiles(profile), *_dynamic(profile)]


class _Window(NamedTuple):
    """The profiled time: how many steps, 0 where they were not marked, and how long they are together (us)."""

    steps: int
    wall_us: float


def _window(profile: Profile) -> _Window:
    steps = len(profile.of(StepWindows))
    ns = int(profile.of(step_ns).sum()) if steps else profile.of(profiled_time).total_ns
    return _Window(steps, ns / 1000)


def _row(profile: Profile, cause: Obstacle, us: float, says: str, where: str = "") -> WhyNot:
    """us: of all steps. says: what stands before the time."""
    window = profile.of(_window)
    each, share = us / max(window.steps, 1), 100 * us / window.wall_us if window.wall_us else None
    part = "" if share is None else f", {percent(share)} of it"
    return WhyNot(
        cause,
        each,
        share,
        f"{says} {duration(each)} {'a step' if window.steps else 'in this span'}{part}",
        where,
    )


def gpu_ns(profile: Profile, categories: tuple[Category, ...] = ()) -> int:
    """Summed over the kernels that the steps launched, of these categories or of all."""
    total = 0
    for rows in profile.of(kernel_launches):
        wanted = np.isin(rows.category, [CATEGORIES.index(name) for name in categories or CATEGORIES])
        counted = wanted & launched_in(profile, rows)
        total += int(rows.dur[counted].sum()) if rows.device != "cpu" else 0
    return total


def _library(profile: Profile) -> Iterator[WhyNot]:
    ns = gpu_ns(profile, LIBRARY)
    if ns:
        rows = [row for row in profile.of(kernel_table).rows if row.category in LIBRARY]
        names = dict.fromkeys(row.category for row in sorted(rows, key=lambda row: -row.time_us))
        yield _row(
            profile,
            "library",
            ns / 1000,
            f"Kernels of libraries ({', '.join(names)}), which are the same compiled or not, take",
            rows[0].name if rows else "",
        )


def _full(profile: Profile) -> Iterator[WhyNot]:
    full = [
        row
        for row in profile.of(kernel_table).rows
        if is_triton(row.category) and (row.bandwidth_percent or 0.0) >= _FULL_PERCENT
    ]
    share = sum(row.time_us for row in full) / (profile.of(_kernels_us) or 1.0)
    if full:
        yield _row(
            profile,
            "memory",
            share * gpu_ns(profile) / 1000,
            f"Generated kernels that move data as fast as the GPU can (from {percent(_FULL_PERCENT)} of its bandwidth "
            "on) take",
            full[0].name,
        )


def _kernels_us(profile: Profile) -> float:
    return sum(row.time_us for row in profile.of(kernel_table).rows if row.device != "cpu")


def _eager(profile: Profile) -> Iterator[WhyNot]:
    eager = profile.of(eager_time)
    if eager.host_us:
        first = next((op for op in eager.ops if op.kind != "in_region"), None)
        yield _row(
            profile,
            "eager",
            eager.host_us,
            "What is not compiled (optimizer, loss, operators outside of compiled code) keeps the host for",
            first.name if first else "",
        )


def _guards(profile: Profile) -> Iterator[WhyNot]:
    cost = profile.of(call_overhead)
    if cost is not None:
        calls = plural(round(cost.calls / max(cost.steps, 1)), "call")
        us = cost.guard_us + (cost.overhead_us or 0.0)
        yield _row(profile, "guards", us, f"Guards and wrappers of {calls} of compiled code take")


def _breaks(profile: Profile) -> Iterator[WhyNot]:
    costs = profile.of(graph_break_costs) or []
    if us := sum(cost.profiled_us for cost in costs):
        first = costs[0]
        where = f"{first.file}:{first.line}" if first.file else ""
        yield _row(profile, "breaks", us, "Between graphs that break, the host spends", where)


def _nothing(profile: Profile) -> Iterator[WhyNot]:
    if not profile.of(compiled_calls):
        yield WhyNot("nothing", None, None, "Nothing that runs in the profiled time is compiled", "")


def _recompiles(profile: Profile) -> Iterator[WhyNot]:
    rows = profile.summary.recompiles if profile.summary else ()
    if rows:
        says = f"{plural(len(rows), 'recompile')}: each is paid for, and each call tries the guards of all versions"
        yield WhyNot("recompiles", None, None, says, f"{rows[0].file}:{rows[0].line}" if rows[0].file else "")


def _dynamic(profile: Profile) -> Iterator[WhyNot]:
    """Sizes that are not fixed in the graphs that ran."""
    ran = {call.compile_id for call in every(profile.of(region_calls))}
    made = profile.summary.shape_events if profile.summary else ()
    names = sorted({row.symbol for row in made if row.kind in SYMBOLS and row.key.compile_id in ran})
    if names:
        says = f"{plural(len(names), 'size is', 'sizes are')} dynamic: kernels for any size are slower"
        yield WhyNot("dynamic", None, None, says, ", ".join(names[:3]))


# How long would a step take without torch.compile? Its model, with every fused kernel as the operators that
# it is of. Each operator reads and writes its tensors by itself, at the bandwidth that the fused kernel
# reached; its launch takes the host as long as an operator's does. What compiled code spends beside its
# launches, on guards and wrappers, is gone. Kernels of libraries are the same. How much memory an operator
# moves and what its launch takes is not known to the digit: so there are bounds.


_SHORTEST_NS = 1_500  # of a kernel, however little it does
_TRITON = [code for code, name in enumerate(CATEGORIES) if is_triton(name)]


class Assumed(NamedTuple):
    """Of one eager operator. tensors: how many it reads and writes. launch_ns: of the host."""

    tensors: float
    launch_ns: int


USUAL, LEAST, MOST = Assumed(2.25, 10_000), Assumed(1.5, 5_000), Assumed(3.0, 18_000)


class EagerStep(NamedTuple):
    """A predicted eager step (µs), and between what it may be. operators: of a step, that generated kernels are of."""

    step_us: float
    low_us: float
    high_us: float
    operators: float


class _Fused(NamedTuple):
    """Of each work of the queue: of how many operators it is (0: of none that is known), and how many tensors it moves
    itself."""

    operators: Int64s
    tensors: Int64s


def uncompiled(profile: Profile) -> EagerStep | None:
    """None where nothing can be predicted, where no generated kernel ran, and where their code is not known."""
    if profile.of(why_nothing):
        return None
    fused = profile.of(_fused)
    if not fused.operators.any():
        return None
    cost = profile.of(recording_cost)
    times = [after_ns(profile, _unfused(profile, one), cost) / 1000 for one in (USUAL, LEAST, MOST)]
    operators = int(fused.operators.sum()) / profile.of(host_lane).steps
    return EagerStep(times[0], min(times), max(times), operators)


def _unfused(profile: Profile, assumed: Assumed) -> Change:
    queue, lane, fused = profile.of(gpu_queue), profile.of(host_lane), profile.of(_fused)
    mine = fused.operators > 0
    alone = fused.operators * assumed.tensors / np.maximum(fused.tensors, 1)
    longer = np.where(fused.operators > 1, np.maximum(alone, 1.0), 1.0)
    dur = np.maximum((queue.dur * longer).astype(np.int64), fused.operators * _SHORTEST_NS)
    launches = np.zeros(len(lane), np.int64)
    np.add.at(launches, queue.point[mine], fused.operators[mine])
    beside = profile.of(_beside_operators)

    def change(model: Model) -> Model:
        return model._replace(
            host=np.maximum(model.host - beside, 0),
            own=np.where(launches > 0, launches * assumed.launch_ns, model.own),
            dur=np.where(mine, dur, model.dur),
        )

    return change


def _beside_operators(profile: Profile) -> Int64s:
    """Of each piece of host time the part that compiled code spends and no operator of a library in it."""
    rows = [call.index for call in profile.of(compiled_calls)]
    rows += [index for index, _ in profile.of(Ownership).backwards]
    inside = time_inside(profile, slice_times(profile, np.array(rows, np.int64)))
    return np.where(_is_operator(profile)[profile.of(host_pieces).row], 0, inside)


def _is_operator(profile: Profile) -> Bools:
    """Which slices are calls of ATen's operators; none where nothing was recorded (-1)."""
    trace = profile.trace
    aten = mask_of(trace.names, lambda name: name.startswith(ATEN))[trace.name]
    return np.append(aten & mask_of(trace.cats, OPERATOR.__eq__)[trace.cat], False)


def _fused(profile: Profile) -> _Fused:
    row = profile.of(gpu_queue).row
    operators, tensors = np.zeros((2, len(row)), np.int64)
    for rows in profile.of(kernel_launches):
        for places in groups(rows) if rows.device != "cpu" else ():
            if rows.category[places[0]] in _TRITON:
                at = places_in(row, rows.index[places])
                operators[at[at >= 0]], tensors[at[at >= 0]] = _made_of(
                    profile, kernel_name(profile, rows, places)
                )
    return _Fused(operators, tensors)


def _made_of(profile: Profile, kernel: KernelName) -> tuple[int, int]:
    """(operators, tensors) of one launch; zeros where the code of the kernel is not known."""
    made = profile.of(generated_code).find(kernel.name, kernel.compile_id, kernel.graph_key)
    if made is None:
        return 0, 0
    one = made.definition
    times = profile.of(_times_computed, made.code)
    nodes = sum(1 / times[node] for node in one.source_nodes if not only_looks(node))
    operators = max(round(nodes), 0 if one.source_nodes else _counted(one.aten_ops), 1)
    return operators, (one.signature or "").count("_ptr")


def _times_computed(profile: Profile, code: GraphCode) -> Counter[str]:
    """Of how many kernels of a graph each node is: a reduction in two parts is of one operator."""
    return Counter(node for one in code.definitions.values() for node in set(one.source_nodes))


def _counted(names: list[str]) -> int:
    return sum(not only_looks(name) for name in names)
