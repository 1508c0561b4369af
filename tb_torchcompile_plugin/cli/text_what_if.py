"""What a step takes, what could be mended in it, and what that brings, as text."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console

from tb_torchcompile_plugin.analysis.causes.scenario import Scenario
from tb_torchcompile_plugin.analysis.formatting import duration
from tb_torchcompile_plugin.analysis.runtime.step_picture import Picture
from tb_torchcompile_plugin.cli.text_table import Plain, Whole, table


def print_scenario(where: str, scenario: Scenario) -> None:
    """Print the step, its fixes, and what the picked ones bring together."""
    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 200)
    console.print(Plain(where), soft_wrap=True)
    if scenario.step is None:
        console.print(Plain(f"{scenario.headline} {scenario.why_nothing}"), soft_wrap=True)
        return
    error = f"Replayed with an error of {scenario.step.replay_error_percent:.2f} %."
    console.print(Plain(f"{scenario.headline} {error}"), soft_wrap=True)
    console.print()
    _print_fixes(console, scenario)
    _print_pictures(console, [one for one in (scenario.now, scenario.after) if one])


def _print_fixes(console: Console, scenario: Scenario) -> None:
    more = f", {scenario.left_out} that bring less are left out" if scenario.left_out else ""
    table(
        console,
        f"fixes{more}",
        scenario.fixes,
        "picked what after low high gain_percent id",
        picked=lambda row: "x" if row.id in scenario.picked else "",
        what=lambda row: row.sentence,
        after=lambda row: duration(row.predicted.after_us),
        low=lambda row: duration(row.predicted.low_us),
        high=lambda row: duration(row.predicted.high_us),
        gain_percent=lambda row: row.predicted.gain_percent,
        id=lambda row: Whole(row.id),
    )
    for row in scenario.fixes:
        if row.id in scenario.picked:
            says = " ".join(filter(None, (row.next_step, row.note)))
            console.print(Plain(f"{row.sentence}:\n  {says}"), soft_wrap=True)


def _print_pictures(console: Console, pictures: Sequence[Picture]) -> None:
    """Where the step goes, one column now and one after."""
    columns = {name: _times(one) for name, one in zip(("now_us", "after_us"), pictures)}
    parts = list(dict.fromkeys(part for times in columns.values() for part in times))
    table(
        console,
        "where it goes: the host's parts sum to the step, and so do busy and idle of each GPU",
        parts,
        " ".join(("part", *columns)),
        part=lambda part: part,
        **{name: (lambda part, times=times: times.get(part, 0.0)) for name, times in columns.items()},
    )


def _times(picture: Picture) -> dict[str, float]:
    times: dict[str, float] = {}
    for part in picture.host:
        name = f"host: {part.cause.replace('_', ' ')}{f' {part.name}' if part.name else ''}"
        times[name] = times.get(name, 0.0) + part.time_us
    for gpu in picture.gpus:
        times |= {f"GPU {gpu.device}: busy": gpu.busy_us, f"GPU {gpu.device}: idle": gpu.idle_us}
    return times
