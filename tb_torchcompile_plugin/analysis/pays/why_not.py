"""Why does compiling not bring more? What of a step it cannot make shorter, and what it adds, largest first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.compiled_regions.call_overhead import call_overhead
from tb_torchcompile_plugin.analysis.compiled_regions.eager import eager_time
from tb_torchcompile_plugin.analysis.graph_breaks.costs import graph_break_costs
from tb_torchcompile_plugin.analysis.kernels.kernels import kernel_table
from tb_torchcompile_plugin.analysis.kernels.per_step import launched_in
from tb_torchcompile_plugin.analysis.sheet import head
from tb_torchcompile_plugin.analysis.words import duration, percent, plural
from tb_torchcompile_plugin.profile.compiled.regions import compiled_calls, every, region_calls
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, profiled_time, step_ns
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, Category, is_triton
from tb_torchcompile_plugin.torch_names.records import SYMBOLS

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
