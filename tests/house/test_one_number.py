"""One question has one number: whatever a route, the report, the first screen or the full text shows of it is what one
function answers. `test_every_recording` asks the routes about all recordings.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from profiles import answered, spans_in
from recordings import Recording
from shown_numbers import QUESTIONS, Shown, different, values_of
from tb_torchcompile_plugin.analysis.causes.break_costs import saved_us, source_with_costs
from tb_torchcompile_plugin.analysis.causes.overview import overview
from tb_torchcompile_plugin.analysis.compare.compare import compare
from tb_torchcompile_plugin.analysis.compare.sides import Sides, make_side
from tb_torchcompile_plugin.analysis.compile.recompiles import recompile_report
from tb_torchcompile_plugin.analysis.formatting import duration
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_table
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import StepReport, step_breakdown
from tb_torchcompile_plugin.api.report import Report, SpanReport, read_report
from tb_torchcompile_plugin.cli.text import print_report
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_time
from terminal import screen_lines

pytestmark = pytest.mark.slow

DATA = Path(__file__).parents[1] / "data"
CASES = ("pytorch163093_plateau", "recompile_count", "sglangomni1304_no_ops", "threads_recorded")


def printed(
    folder: Path, report: Report, profile: Profile, capsys: pytest.CaptureFixture[str]
) -> tuple[Shown, ...]:
    """Return what the report, the first screen and the full text show of the only span of a folder."""
    lines = screen_lines(report, str(folder), 400)
    print_report(report)
    text = " ".join(capsys.readouterr().out.split())
    shown = [Shown("screen", line, {}) for line in lines] + [Shown("full text", text, {})]
    return *shown, *values_of(msgspec.to_builtins(report), "report")


@pytest.mark.parametrize("name", ["breaks", "resnet18", "handler_breaks", *CASES])
def test_and_the_report_and_both_texts_show_it(
    recording: Recording, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = DATA / "cases" / name if name in CASES else recording(name)
    (profile, *others) = spans_in(folder)
    report = read_report(str(folder))
    more = printed(folder, report, profile, capsys)
    step = profile.of(step_time)
    first = f"{duration(step.step_us)} {'per step' if step.steps else 'in this span'}"
    assert others == [] and any(first in row.value for row in more if row.where == "screen")
    assert different(profile, more) == set()


COMPARED = {
    "compile_s": "compile time",
    "recompiles": "recompiles",
    "graph_breaks": "graph breaks",
    "compilations": "compilations",
    "graph_break_direct_us": "direct cost",
}


@pytest.mark.parametrize("name", ["breaks", "recompile_count", "pytorch163093_plateau"])
def test_and_a_comparison_shows_it(recording: Recording, name: str) -> None:
    (profile,) = spans_in(DATA / "cases" / name if name in CASES else recording(name))
    side = make_side(profile)
    figures = {row.name: row.value.baseline for row in compare(Sides(side, side)).figures}
    expected = {figure: QUESTIONS[question].answer(profile) for figure, question in COMPARED.items()}
    expected["graph_break_us"] = profile.of(saved_us)
    assert {figure: figures.get(figure) for figure in expected} == expected


def broken(profile: Profile, ask: Callable[[Profile], Any], **changes: Any) -> set[str]:
    """Return where a number is found to differ if one panel shows other ones."""
    other = msgspec.structs.replace(profile.of(ask), **changes)
    fresh = answered(Profile(profile.trace, profile.data, profile.span), ask, other)
    return {where for where, *_ in different(fresh)}


def test_a_panel_with_a_number_of_its_own_is_found(recording: Recording) -> None:
    (profile,) = spans_in(recording("breaks"))
    report: StepReport = profile.of(step_breakdown)
    slower = msgspec.structs.replace(report.step_time, step_us=1.05 * report.step_time.step_us)
    assert broken(profile, step_breakdown, step_time=slower) == {"step.step_time.step_us"}
    assert report.times is not None
    times = msgspec.structs.replace(report.times, mean_us=1.05 * report.times.mean_us)
    assert broken(profile, step_breakdown, times=times) == {"step.times.mean_us"}


def test_a_second_count_and_a_second_cost_are_found(recording: Recording) -> None:
    (profile,) = spans_in(recording("breaks"))
    sentences = ("3 recompiles cost 1.00 s of compile time.",)
    assert broken(profile, recompile_report, sentences=sentences) == {"recompiles.sentences"}
    program = profile.of(source_with_costs)
    (row, *_) = (row for row in program.rows if row.breaks)
    mark = msgspec.structs.replace(row.breaks[0], cost_us=1.0)
    rows = [msgspec.structs.replace(row, breaks=[mark])]
    assert broken(profile, source_with_costs, rows=rows) == {"your_code.rows.breaks.cost_us"}
    assert broken(profile, overview, headline="6 compilations took 4.56 s.") == {"overview.headline"}


def test_launches_are_counted_alike(recording: Recording) -> None:
    """Those of a category are those of its kernels, also by the report."""
    (profile,) = spans_in(recording("breaks"))
    (run,) = read_report(str(recording("breaks"))).runs
    (span,) = run.workers[0].spans
    assert isinstance(span, SpanReport)
    for rows in (profile.of(kernel_table).rows, span.kernels):
        counts = Counter[tuple[Any, str]]()
        for row in rows:
            counts[row.device, row.category] += row.launches
        assert counts == {(row.device, row.category): row.launches for row in span.kernel_categories}


@pytest.mark.parametrize("run", ["late_loader", "python_late_rank", "uneven_work"])
def test_a_step_of_a_job_has_one_length(recording: Recording, run: str) -> None:
    """That of its slowest rank, on which all predictions of the job are based."""
    report = read_report(str(recording("jobs") / run))
    (job,) = (row.job for row in report.runs if row.job)
    lengths = [row.step_us for row in job.by_rank if row.step_us is not None]
    assert job.step_us == max(lengths)
    assert [row.predicted.step_us for row in job.findings if row.predicted] == pytest.approx(
        [job.step_us for row in job.findings if row.predicted]
    )
    waited = [row.evidence.get("waited_us_per_step", 0.0) for row in job.findings]
    assert max(waited) <= job.step_us
    spans = [row.spans[0] for run_ in report.runs for row in run_.workers]
    ranks = [span.step_time.step_us for span in spans if isinstance(span, SpanReport)]
    assert lengths == pytest.approx(ranks)
