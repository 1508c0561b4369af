"""`tb-torchcompile what-if LOGDIR`: what could be fixed in one span, and how long its steps would take then."""

from collections.abc import Callable, Sequence
from functools import partial

from tb_torchcompile_plugin.analysis.causes.scenario import PossibleFixes, Scenario, scenario, span_fixes
from tb_torchcompile_plugin.analysis.ranks.job_report import rank_offer, rank_what_if
from tb_torchcompile_plugin.api.catalog import Ids, newest_span, no_trace
from tb_torchcompile_plugin.api.session import Session, open_logdir
from tb_torchcompile_plugin.cli.text_table import print_json, print_lines, print_table, stdout_console
from tb_torchcompile_plugin.errors import WrongArgument, quoted
from tb_torchcompile_plugin.job.job import members, one_rank

# Of the traces of a job: those of a larger one are not read for one of its ranks.
_MAX_JOB_BYTES = 500_000_000
_FIX_COLUMNS = ("sentence", "after_us", "low_us", "high_us", "gain_percent", "id")


def show_what_if(logdir: str, chosen: Ids, selected: Sequence[str], as_json: bool) -> None:
    """Print the fixes of the newest span that fits, and the step with the picked ones.

    chosen: run, worker and span, each "" for any. Raises UserError, and WrongArgument for a fix that is not there.
    """
    (run, worker, span), answer = scenario_of(open_logdir(logdir), logdir, chosen, selected)
    if as_json:
        print_json(answer)
    else:
        print_scenario(f"run {run}  worker {worker}  span {span}", answer)


def scenario_of(session: Session, logdir: str, chosen: Ids, selected: Sequence[str]) -> tuple[Ids, Scenario]:
    """Return the newest span that fits, and its step with the picked fixes. Raises UserError and WrongArgument."""
    run, worker, span = newest_span(session.runs(), logdir, *chosen)
    if not span:
        raise no_trace(logdir)
    offer, evaluate = _offer(session, run, worker, span)
    ids = [row.id for row in offer.rows]
    answer = evaluate(tuple(_full_id(start, ids) for start in selected))
    if answer.unknown:
        wrong = quoted(", ".join(answer.unknown))
        known = f"Available: {', '.join(map(repr, ids))}" if ids else ""
        listed = known or answer.why_nothing or "No fix makes it faster"
        raise WrongArgument(f"there is no fix {wrong} in this span", next_step=listed.rstrip("."))
    return (run, worker, span), answer


def _offer(
    session: Session, run: str, worker: str, span: str
) -> tuple[PossibleFixes, Callable[[tuple[str, ...]], Scenario]]:
    """Return the fixes and how to evaluate them: for a rank within its job, where that is read quickly."""
    ranks = {row[1:]: row.rank for row in members(session.catalog.workers(run), span)}
    rank = ranks.get((worker, span))
    is_small = sum(session.trace_file(run, *ids).size for ids in ranks) <= _MAX_JOB_BYTES
    job = session.job(run, span) if rank is not None and is_small else None
    if job is None or rank is None or rank not in job.numbers:
        profile = session.profile(run, worker, span)
        return profile.of(span_fixes), partial(scenario, profile)
    rank_data = job.of(one_rank, rank)
    return rank_data.of(rank_offer), partial(rank_what_if, rank_data)


def _full_id(start: str, ids: list[str]) -> str:
    """Return the only id with this start, because tables shorten long ids."""
    matches = [id for id in ids if id.startswith(start.rstrip("…"))]
    return matches[0] if len(matches) == 1 and start not in ids else start


def print_scenario(where: str, scenario: Scenario) -> None:
    """Print the step, its fixes, and the combined gain of the selected ones."""
    console = stdout_console()
    print_lines(console, where)
    if scenario.why_nothing is not None:
        print_lines(console, f"{scenario.headline} {scenario.why_nothing}")
        return
    error = (
        f"The replayed step differs from the recorded one by {scenario.replay_error_percent or 0.0:.2f} %."
    )
    print_lines(console, f"{scenario.headline} {error}")
    console.print()
    more = f" ({scenario.left_out} with smaller gains are omitted)" if scenario.left_out else ""
    print_table(console, f"fixes{more}", scenario.fixes, None, _FIX_COLUMNS)
    for row in scenario.fixes:
        if row.id in scenario.selected:
            print_lines(console, f"{row.sentence}:")
            print_lines(console, *filter(None, (row.next_step, row.note)), indent="  ")
    for when, picture in (("now", scenario.now), ("after", scenario.after)):
        if picture:
            print_table(console, f"the step {when}: host", picture.host)
            print_table(console, f"the step {when}: GPUs", picture.gpus)
