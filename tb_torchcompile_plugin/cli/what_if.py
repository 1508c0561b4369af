"""`tb-torchcompile what-if LOGDIR`: what could be mended in one span, and how long its steps would take then."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from tb_torchcompile_plugin.analysis.causes.scenario import Offer, Scenario, own_offer, scenario
from tb_torchcompile_plugin.analysis.ranks.one_rank import rank_offer, rank_what_if
from tb_torchcompile_plugin.api.catalog import Ids, Runs, newest_span
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.cli.text_what_if import print_scenario
from tb_torchcompile_plugin.errors import NotFound
from tb_torchcompile_plugin.job.job import one_rank

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
