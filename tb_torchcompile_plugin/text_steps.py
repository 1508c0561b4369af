"""Steps as text: how long, how much that varies, where the time goes, and which were slow and why."""

from __future__ import annotations

import statistics

from rich.console import Console

from tb_torchcompile_plugin.step_report import StepBreakdown, StepReport
from tb_torchcompile_plugin.text_table import Plain, table

_STEPS_SHOWN = 6


def print_steps(console: Console, found: StepReport) -> None:
    """Nothing where nothing ran."""
    times = found.times
    if times:
        spread = "" if times.deviation_us is None else f" ± {times.deviation_us:.3f}"
        console.print(
            Plain(
                f"  step: median {times.median_us:.3f} µs, mean {times.mean_us:.3f}{spread}, "
                f"{times.min_us:.3f} to {times.max_us:.3f} in {times.steps}"
            )
        )
    _print_parts(console, found.steps or ([found.window] if found.window else []))
    table(
        console,
        "slow steps",
        ("step", ">µs beyond the median", ">times the median", "reason", ">explains µs", "~compile ids"),
        (
            (
                row.step,
                row.excess_us,
                row.times_median,
                row.reason or "no single one recorded",
                row.explained_us,
                ", ".join(row.compile_ids) or None,
            )
            for row in found.slow
        ),
    )


def _print_parts(console: Console, rows: list[StepBreakdown]) -> None:
    """One row a part, largest first; one column a step."""
    times = [{(part.kind, part.part): part.time_us for part in row.parts} for row in rows]
    parts = {key: statistics.fmean(time.get(key, 0) for time in times) for time in times for key in time}
    whole = sum(parts.values())
    shown = range(min(len(rows), _STEPS_SHOWN))
    table(
        console,
        "where a step goes, µs" if rows and rows[0].step else "where the span goes, µs",
        ("while", "~part", ">mean", ">%", *(f">{rows[number].step or 'span'}" for number in shown)),
        (
            (
                kind,
                part,
                mean,
                100 * mean / whole,
                *(times[number].get((kind, part), 0.0) for number in shown),
            )
            for (kind, part), mean in sorted(parts.items(), key=lambda item: -item[1])
        ),
    )
