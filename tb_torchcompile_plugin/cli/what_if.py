"""`tb-torchcompile what-if LOGDIR`: what could be mended in one span, and how long its steps would take then."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from rich.console import Console

from tb_torchcompile_plugin.analysis.causes.scenario import Offer, Scenario, own_offer, scenario
from tb_torchcompile_plugin.analysis.formatting import duration
from tb_torchcompile_plugin.analysis.ranks.one_rank import rank_offer, rank_what_if
from tb_torchcompile_plugin.analysis.runtime.step_picture import Picture
from tb_torchcompile_plugin.api.catalog import Ids, Runs, newest_span
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.cli.text_table import Plain, Whole, table
from tb_torchcompile_plugin.errors import NotFound
from tb_torchcompile_plugin.job.job import one_rank

# What a step takes, what could be mended in it, and what that brings, as text.


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


_JOB_BYTES = 500_000_000  # of the traces of a job: those of a larger one are not read for one of its ranks


class NoSuchFix(NotFound):
    """An id that no fix of this span has: a wrong argument."""


def show_what_if(logdir: str, chosen: Ids, picked: Sequence[str], as_json: bool) -> None:
    """Of the newest span that fits. chosen: run, worker and span, each "" for any. Raises UserError, and NoSuchFix."""
    session = Session([("", logdir)], ahead=False)
    (run, worker, span), answer = scenario_of(session, logdir, chosen, picked)
    if as_json:
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    else:
        print_scenario(f"run {run}  worker {worker}  span {span}", answer)


def scenario_of(session: Session, logdir: str, chosen: Ids, picked: Sequence[str]) -> tuple[Ids, Scenario]:
    """The span that is meant, and its step with the picked fixes made. Raises UserError, and NoSuchFix."""
    run, worker, span = newest_span(_only(session.runs(), chosen), logdir)
    if not span:
        raise NotFound(
            "there is no trace in it", file=logdir, next_step="Name a folder with one, or a trace file"
        )
    offer, ask = _question(session, run, worker, span)
    known = [row.id for row in offer.rows]
    answer = ask(tuple(_whole(one, known) for one in picked))
    if answer.unknown:
        raise _no_such_fix(answer, known)
    return (run, worker, span), answer


def _question(
    session: Session, run: str, worker: str, span: str
) -> tuple[Offer, Callable[[tuple[str, ...]], Scenario]]:
    """What is offered, and how to ask for it: of a rank as its job knows it, where that is soon read."""
    members = {(one.worker, one.span): one.rank for one in session.job_members(run, span)}
    rank = members.get((worker, span))
    small = sum(session.trace_file(run, *one).size for one in members) <= _JOB_BYTES
    job = session.job(run, span) if rank is not None and small else None
    if job is None or rank is None or rank not in job.numbers:
        profile = session.profile(run, worker, span)
        return profile.of(own_offer), partial(scenario, profile)
    about = job.of(one_rank, rank)
    return about.of(rank_offer), partial(rank_what_if, about)


def _only(runs: Runs, chosen: Ids) -> Runs:
    """Without all that was not chosen."""
    run, worker, span = chosen
    kept = [
        msgspec.structs.replace(
            one,
            workers=[
                msgspec.structs.replace(w, spans=[s for s in w.spans if span in ("", s.span)])
                for w in one.workers
                if worker in ("", w.worker)
            ],
        )
        for one in runs.runs
        if run in ("", one.run)
    ]
    if any(chosen) and not any(w.spans for one in kept for w in one.workers):
        names = [f"{r.run} {w.worker} {s.span}" for r in runs.runs for w in r.workers for s in w.spans]
        raise NotFound(
            f"there is no trace of {' '.join(filter(None, chosen))}",
            next_step=f"There are (run worker span): {', '.join(names) or 'none'}",
        )
    return msgspec.structs.replace(runs, runs=kept)


def _whole(begin: str, known: list[str]) -> str:
    """The id that begins so, where only one does: tables cut long ones."""
    matches = [one for one in known if one.startswith(begin.rstrip("…"))]
    return matches[0] if len(matches) == 1 and begin not in known else begin


def _no_such_fix(answer: Scenario, known: list[str]) -> NoSuchFix:
    wrong = ", ".join(map(repr, answer.unknown))
    ids = ", ".join(map(repr, known)) if known else answer.why_nothing or "none: nothing would make it faster"
    return NoSuchFix(f"there is no fix {wrong} in this span", next_step=f"There are {ids}")
