"""One question has one number: whatever a route, a sentence or the first screen says of a step is `step_time`.

Every span route is asked, and every field and sentence of its answer is looked through by name and by words. A new
panel that shows a step time in a field called `step_us`, or in a sentence, is compared without a change here; a second
number that means something else must have another name, or be listed below with what it means.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from profiles import answered
from recordings import Recording
from tb_torchcompile_plugin.analysis.formatting import duration, percent
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import utilization
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import StepReport, step_breakdown
from tb_torchcompile_plugin.api.report import SpanReport, read_report
from tb_torchcompile_plugin.api.routes import ROUTES, SPAN
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.cli.answers.screen import screen
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_time

DATA = Path(__file__).parents[1] / "data"
# Those of the benchmark suite are asked for their findings elsewhere, and have the same code.
RECORDINGS = sorted(
    {path.name.partition(".")[0] for path in DATA.rglob("*.tar.xz") if "exam" not in path.parts}
)
TIME = r"\d[\d.,]* (?:ns|µs|ms|s|min|h)\b"
# What a sentence says of a step as it is now; what it says of a step after a fix, or of another run, is none of it.
NOW = (
    rf"^Step ({TIME})",
    rf"\b[Aa] step takes ({TIME})(?! (?:instead|compiled|eager))",
    rf"\ba step takes {TIME} instead of ({TIME})",
    rf"({TIME}) → {TIME} a step",
    rf"^(?:A )?[Ss]tep (?:takes )?({TIME})",
)
PROFILED = rf"({TIME}) while profiling"
BUSY = r"GPU busy ([<\d. ]+ %)"
# Steps after something, in sentences that do not name the present one.
ELSEWHERE = ("With ", "with ", "without ", "Without ")


class Found(NamedTuple):
    """A number that an answer shows."""

    where: str
    says: str
    expected: str


def fields(answer: Any, where: str) -> Iterator[tuple[str, str, Any]]:
    """Yield each value of an answer with where it is and the name of its field."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            yield from fields(value, f"{where}.{name}")
            yield where, name, value
    elif isinstance(answer, list | tuple):
        for row in answer:
            yield from fields(row, where)
            if isinstance(row, str):
                yield where, "", row


def different(profile: Profile, lines: tuple[str, ...] = ()) -> list[Found]:
    """Every number about the present step that is not the one of `step_time`."""
    step, use = profile.of(step_time), profile.of(utilization)
    found = []
    answers: list[tuple[str, str, Any]] = [("screen", "", line) for line in lines]
    for name, route in ROUTES.items():
        if route.subject is SPAN and all(parameter.optional for parameter in route.parameters):
            answers += fields(msgspec.to_builtins(profile.of(route.ask)), name)
    for where, name, value in answers:
        if name == "step_us" and isinstance(value, float):
            found.append(Found(f"{where}.{name}", f"{value:.2f}", f"{step.step_us:.2f}"))
        if isinstance(value, str) and step.steps:
            shown = [text for pattern in NOW for text in re.findall(pattern, value)]
            found += [Found(where, text, duration(step.step_us)) for text in shown]
            found += [Found(where, text, duration(step.profiled_us)) for text in re.findall(PROFILED, value)]
            if use and len(use.means) == 1 and use.mean.busy_percent is not None:
                busy = percent(use.mean.busy_percent)
                found += [Found(where, text.strip(), busy) for text in re.findall(BUSY, value)]
    return [row for row in found if row.says != row.expected]


def profiles_of(logdir: Path) -> Iterator[Profile]:
    session = Session([("", str(logdir))])
    for run in session.runs().runs:
        for worker in run.workers:
            for span in worker.spans:
                yield session.profile(run.run, worker.worker, span.span)
    session.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDINGS)
def test_a_step_has_one_length(recording: Recording, name: str) -> None:
    assert [row for profile in profiles_of(recording(name)) for row in different(profile)] == []


@pytest.mark.parametrize("name", ["breaks", "resnet18", "handler_breaks"])
def test_and_the_first_screen_shows_it(recording: Recording, name: str) -> None:
    (profile, *_) = profiles_of(recording(name))
    report = read_report(str(recording(name)))
    lines = tuple(line.text for line in screen(report, str(recording(name)), 400))
    assert any(line.startswith(f"Step {duration(profile.of(step_time).step_us)}") for line in lines)
    assert different(profile, lines) == []


def test_a_panel_with_a_clock_of_its_own_is_found(recording: Recording) -> None:
    (profile,) = profiles_of(recording("breaks"))
    report: StepReport = profile.of(step_breakdown)
    slower = msgspec.structs.replace(report.step_time, step_us=1.05 * report.step_time.step_us)
    fresh = Profile(profile.trace, profile.data, profile.span)
    broken = answered(fresh, step_breakdown, msgspec.structs.replace(report, step_time=slower))
    assert {row.where for row in different(broken)} == {"step_breakdown.step_time.step_us"}


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDINGS)
def test_parts_of_the_step_sum_to_it(recording: Recording, name: str) -> None:
    for profile in profiles_of(recording(name)):
        step, report = profile.of(step_time), profile.of(step_breakdown)
        parts = sum(part.time_us for part in report.mean_parts if part.kind != "profiler")
        assert not report.mean_parts or parts == pytest.approx(step.step_us, rel=1e-9)
        whole = sum(part.time_us for part in report.mean_parts)
        assert not report.mean_parts or whole == pytest.approx(step.profiled_us, rel=1e-9)


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
    spans = [row.spans[0] for run_ in report.runs for row in run_.workers]
    ranks = [span.step_time.step_us for span in spans if isinstance(span, SpanReport)]
    assert lengths == pytest.approx(ranks)
