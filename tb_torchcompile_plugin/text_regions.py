"""Compiled regions, graph breaks and what ran eager in one span, in a terminal."""

from __future__ import annotations

from rich.console import Console

from tb_torchcompile_plugin.report import SpanReport
from tb_torchcompile_plugin.text_table import place, table

_EAGER_SHOWN = 15


def print_regions(console: Console, span: SpanReport) -> None:
    """Breaks with their price, the calls of regions with theirs, and operators outside of them."""
    _print_breaks(console, span)
    _print_calls(console, span)
    _print_guards_and_recompiles(console, span)
    _print_eager(console, span)


def _print_breaks(console: Console, span: SpanReport) -> None:
    table(
        console,
        "graph breaks by cost",
        (
            "~where",
            "~kind",
            "~reason",
            "~compile ids",
            ">calls",
            ">a step",
            ">host µs",
            ">mean µs a step",
            ">median",
            ">p95",
            ">% of steps",
            ">GPU idle µs",
        ),
        (
            (
                place(row.file, row.line),
                row.kind,
                row.reason,
                ", ".join(row.compile_ids),
                row.calls,
                row.calls_per_step,
                row.host_us,
                row.step_mean_us,
                row.step_median_us,
                row.step_p95_us,
                row.share_percent,
                row.gpu_idle_us,
            )
            for row in span.graph_break_sites
        ),
    )


def _print_calls(console: Console, span: SpanReport) -> None:
    table(
        console,
        f"compiled regions{_beside_work(span)}",
        (
            "compile id",
            ">calls",
            ">guards µs",
            ">wrapper µs",
            ">graph µs",
            ">GPU µs",
            ">backward calls",
            ">backward µs",
            ">backward GPU µs",
        ),
        (
            (
                row.compile_id,
                row.calls,
                row.guard_us,
                row.overhead_us,
                row.graph_us,
                row.gpu_us,
                row.backward_calls,
                row.backward_cpu_us,
                row.backward_gpu_us,
            )
            for row in span.compiled_regions
        ),
    )


def _beside_work(span: SpanReport) -> str:
    """What guards and wrappers take of the steps, or of the span; "" where that is not known."""
    beside = span.call_overhead
    if beside is None or beside.guard_percent is None:
        return ""
    guards = f": guards {beside.guard_us:.3f} µs, {beside.guard_percent:.2f} % of the {beside.window}"
    if beside.overhead_us is None or beside.overhead_percent is None:
        return guards
    return f"{guards}; wrappers {beside.overhead_us:.3f} µs, {beside.overhead_percent:.2f} %"


def _print_guards_and_recompiles(console: Console, span: SpanReport) -> None:
    table(
        console,
        "guards by version and versions alive",
        ("compile id", ">versions", ">calls", ">median µs", ">max µs"),
        (
            (row.compile_id, row.entries, row.calls, row.median_us, row.max_us)
            for row in span.guard_scans or ()
        ),
    )
    table(
        console,
        "recompiles, from the start of the span",
        ("compile id", ">start µs", "when", "step"),
        ((row.compile_id, row.start_us, row.where, row.step) for row in span.recompile_moments or ()),
    )


def _print_eager(console: Console, span: SpanReport) -> None:
    found = span.eager
    share = "" if found.share_percent is None else f", {found.share_percent:.2f} % of the {found.window}"
    table(
        console,
        f"ran eager, {min(len(found.ops), _EAGER_SHOWN)} of {len(found.ops)} operators: "
        f"{found.host_us:.3f} µs of host time{share}",
        ("~operator", "kind", "~called in", ">calls", ">host µs", ">GPU µs"),
        (
            (
                row.name,
                row.kind,
                row.file and f"{row.function} {place(row.file, row.line)}",
                row.calls,
                row.host_us,
                row.device_us,
            )
            for row in found.ops[:_EAGER_SHOWN]
        ),
    )
