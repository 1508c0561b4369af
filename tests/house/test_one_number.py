"""One question has one number: whatever a route, sentence or screen shows of it is what one function answers.

Every route about a span or its compile data is asked, with parameters chosen from what other routes answer, and so are
the report, the first screen and the full text. Each field and sentence is looked through by name and by words, so a new
panel is compared without a change here. A number that means something else needs another name; a length of a step that
is none must be listed in OTHER_LENGTHS with what it is.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import partial
from math import isclose
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from profiles import answered, spans_in
from recordings import Recording
from tb_torchcompile_plugin.analysis.causes.break_costs import (
    break_sites,
    cost_of_breaks,
    direct_us,
    saved_us,
    source_with_costs,
)
from tb_torchcompile_plugin.analysis.causes.overview import overview
from tb_torchcompile_plugin.analysis.compare.compare import compare
from tb_torchcompile_plugin.analysis.compare.sides import Sides, make_side
from tb_torchcompile_plugin.analysis.compile.compile_time import compile_overlap, count_compilations, total_s
from tb_torchcompile_plugin.analysis.compile.graph_breaks import count_sites
from tb_torchcompile_plugin.analysis.compile.recompiles import count_recompiles, recompile_report
from tb_torchcompile_plugin.analysis.formatting import duration, percent, seconds
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import utilization
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_table
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import StepReport, step_breakdown
from tb_torchcompile_plugin.analysis.timeline.timeline import Timeline
from tb_torchcompile_plugin.api.report import Report, SpanReport, read_report
from tb_torchcompile_plugin.api.routes import ROUTES, SPAN, SPAN_OR_WORKER, TIMELINE, WORKER
from tb_torchcompile_plugin.cli.text import print_report
from tb_torchcompile_plugin.generated_code.generated_code import GeneratedCode
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_time
from tb_torchcompile_plugin.reader.compile_data import CompileData
from terminal import screen_lines

DATA = Path(__file__).parents[1] / "data"
# Those of the benchmark suite are asked for their findings elsewhere, and have the same code.
RECORDINGS = sorted(
    {path.name.partition(".")[0] for path in DATA.rglob("*.tar.xz") if "exam" not in path.parts}
)
CASES = ("pytorch163093_plateau", "recompile_count", "sglangomni1304_no_ops", "threads_recorded")
TIME = r"\d[\d.,]* (?:ns|µs|ms|s|min|h)\b"
# What a sentence says of a step as it is now; what it says of a step after a fix, or of another run, is none of it.
NOW = (
    rf"(?:-bound|Bound by GPU \d+): ({TIME}) per step",
    rf"\b[Aa] step takes ({TIME})(?! (?:instead|compiled|eager))",
    rf"\ba step takes {TIME} instead of ({TIME})",
    rf"({TIME}) → {TIME} a step",
)


class Shown(NamedTuple):
    """A value that an answer shows."""

    where: str  # "span.graph_break_sites.saves_us"
    value: Any
    row: dict[str, Any]  # that holds it

    @property
    def name(self) -> str:
        """The name of its field."""
        return self.where.rpartition(".")[2]


class Question(NamedTuple):
    """A question, the one function that answers it, and where the answer is shown."""

    answer: Callable[
        [Profile], float | None
    ]  # None where it is unknown: then nothing may be shown as a number
    fields: str  # a pattern of names, "" for none
    sentences: tuple[str, ...] = ()  # patterns, whose group is the number in words
    words: Callable[[float], str] = "{:,}".format
    with_field: str = ""  # that the row holds, too: the evidence of other findings has fields of this name

    def is_answered_by(self, shown: Shown) -> bool:
        """Whether it is a field with a number that answers this."""
        is_number = isinstance(shown.value, int | float)
        return (
            is_number and bool(re.fullmatch(self.fields, shown.name)) and self.with_field in ("", *shown.row)
        )


def of_log(count: Callable[[CompileData], float | None]) -> Callable[[Profile], float | None]:
    """Answer by the compile data of the worker."""
    return lambda profile: profile.data.of(count) if profile.data else None


def of_steps(name: str) -> Callable[[Profile], float | None]:
    """Answer by the step time where the span has steps."""
    return lambda profile: getattr(profile.of(step_time), name) if profile.of(step_time).steps else None


def compile_s(profile: Profile) -> float | None:
    """Return the compile time; of an eager run that of the compiled one with which it is compared."""
    own = profile.data.of(total_s) if profile.data else None
    other = profile.baseline_run.read().data if own is None and profile.baseline_run else None
    return other.of(total_s) if other else own


def saved(profile: Profile) -> float | None:
    cost = profile.of(cost_of_breaks)
    return cost.gain_us if cost else None


def most_expensive(profile: Profile) -> float | None:
    return max((row.saves_us for row in profile.of(break_sites) if row.saves_us is not None), default=None)


def inside(profile: Profile) -> float | None:
    overlap = profile.of(compile_overlap)
    return overlap.inside_us if overlap and overlap.window != "this span" else None


def busy(profile: Profile) -> float | None:
    use = profile.of(utilization)
    return use.mean.busy_percent if use and len(use.means) == 1 else None


QUESTIONS = {
    "step": Question(lambda profile: profile.of(step_time).step_us, "step_us"),
    "step in words": Question(of_steps("step_us"), "", NOW, duration),
    "profiled step": Question(of_steps("profiled_us"), "", (rf"({TIME}) while profiling",), duration),
    "GPU busy": Question(busy, "", (r"GPU busy ([<\d.]+ %)",), percent),
    "graph breaks": Question(count_sites, "graph_breaks", (r"\b([\d,]+) graph break sites?\b",)),
    "cost of breaks": Question(
        saved,
        "gain_us_per_step",
        (rf"graph break sites? costs? about ({TIME})",),
        partial(duration, digits=2),
        with_field="breaks",
    ),
    "most expensive break": Question(most_expensive, "most_expensive_us_per_step"),
    "direct cost": Question(
        direct_us, "direct_us_per_step", (rf"direct cost is ({TIME}) per step",), duration
    ),
    "recompiles": Question(of_log(count_recompiles), "recompiles", (r"\b([\d,]+) recompiles? cost",)),
    "compilations": Question(
        of_log(count_compilations),
        "(distinct_)?compilations",
        (r"\b([\d,]+) compilations? took", r"\(([\d,]+) compilations?\)"),
    ),
    "compile time": Question(
        compile_s,
        "total_s|compile_s|blocked_s",
        (rf"\bcompilations? took ({TIME})", rf"\bCompile ({TIME})", rf"\bit cost ({TIME})"),
        seconds,
    ),
    "compiled inside": Question(
        inside,
        "inside_us",
        (rf"({TIME}) of (?:it inside|the compile time falls into)(?! this span)",),
        duration,
    ),
}
LENGTHS = r".*(step|mean|wall).*_us"
# Fields whose names match those above, and that answer another question, with what they are.
OTHERS = {
    "*.steps.wall_us": "one step on the host, or its verdict",
    "*.steps.verdict.wall_us": "the same",
    "*gpu_utilization.verdict.wall_us": "all steps together",
    "span.wall_us": "the trace",
    "*.spans.wall_us": "the same",
    "*kernels*.mean_us": "one launch",
    "*operators*.mean_us": "one call",
    "*.graph_break_sites.step_*_us": "the direct cost of one site",
    "*.compile_functions.total_s": "one function of torch",
    "*collectives*.mean_us": "one collective",
    "*.callers.*": "what one call compiles",
    "*dynamic_shapes.sizes.compile_s": "the compilations of one size",
    "*dynamic_shapes.guards.recompiles": "those of one guard",
    "*findings.evidence.compil*": "those that the finding is about",
    "*findings.evidence.recompiles": "the same",
}


def values_of(answer: Any, where: str, row: dict[str, Any]) -> Iterator[Shown]:
    """Yield each number and sentence of an answer."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            yield from values_of(value, f"{where}.{name}", answer)
    elif isinstance(answer, list | tuple):
        for value in answer:
            yield from values_of(value, where, row)
    else:
        yield Shown(where, answer, row)


def first_kernels(profile: Profile) -> Iterator[tuple[Any, ...]]:
    for row in profile.of(kernel_table).rows[:2]:
        yield str(row.device), row.name, row.compile_id or "", row.graph_key or ""


def first_compilations(profile: Profile) -> Iterator[tuple[Any, ...]]:
    for row in profile.data.summary.compilations[:2] if profile.data else ():
        yield row.key.epoch, row.key.compile_id


def whole_window(profile: Profile) -> tuple[int, int]:
    return 0, profile.of(Timeline).duration


# The parameters of those routes that need some: of their first rows.
PARAMETERS: dict[str, Callable[[Profile], Iterator[tuple[Any, ...]]]] = {
    "kernel": first_kernels,
    "compilation": first_compilations,
    "guards": first_compilations,
    "code_kernels": lambda profile: (
        (graph.artifact,)
        for graph in (profile.data.of(GeneratedCode).graphs[:2] if profile.data else ())
        if graph.artifact is not None
    ),
    "timeline_range": lambda profile: iter([(whole_window(profile),)]),
    "timeline_slice": lambda profile: iter([(-1, int(row)) for row in profile.trace.call_rows[:2]]),
    "timeline_search": lambda profile: iter([("ProfilerStep", None, (), 0, 0, 10)]),
}


def answers(profile: Profile) -> Iterator[Shown]:
    """Ask every route about a span, its timeline or what its worker compiled."""
    abouts = {SPAN: profile, SPAN_OR_WORKER: profile, TIMELINE: profile.of(Timeline), WORKER: profile.data}
    for name, route in ROUTES.items():
        about = abouts.get(route.subject)
        if about is not None and issubclass(route.answer, msgspec.Struct):
            is_plain = all(parameter.optional for parameter in route.parameters)
            for arguments in [()] if is_plain else PARAMETERS[name](profile):
                answer = profile_answer(about, route.ask, arguments)
                yield from values_of(msgspec.to_builtins(answer), name, {})


def profile_answer(about: Any, ask: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return ask(about, *arguments) if arguments or isinstance(about, Timeline) else about.of(ask)


def different(profile: Profile, more: tuple[Shown, ...] = ()) -> set[tuple[str, str, str]]:
    """Return what is shown with another number than the one that answers its question: where, shown, expected."""
    expected = {question: QUESTIONS[question].answer(profile) for question in QUESTIONS}
    costs = {row.key: row.saves_us for row in profile.of(break_sites)}
    found = set()
    for shown in (*answers(profile), *more):
        if not any(fnmatchcase(shown.where, pattern) for pattern in OTHERS):
            found |= {*compared(shown, expected), *another_length(shown, expected)}
            is_mark = shown.name == "cost_us"  # on a line, which leads to the row of the site
            key = str(shown.row.get("row")).partition(":")[2] if is_mark else shown.row.get("key")
            if (
                shown.name in ("saves_us", "cost_us")
                and key in costs
                and shown.value not in (costs[key], None)
            ):
                found.add((shown.where, str(shown.value), str(costs[key])))
    return found


def another_length(shown: Shown, expected: dict[str, float | None]) -> Iterator[tuple[str, str, str]]:
    """Yield a field that is named as a length of a step and is none."""
    is_asked = any(re.fullmatch(question.fields, shown.name) for question in QUESTIONS.values())
    if not is_asked and re.fullmatch(LENGTHS, shown.name) and isinstance(shown.value, float):
        lengths = [expected[name] for name in ("step", "profiled step")]
        if not any(is_equal(shown.value, length) for length in lengths):
            yield shown.where, str(shown.value), "none of OTHERS"


def compared(shown: Shown, expected: dict[str, float | None]) -> Iterator[tuple[str, str, str]]:
    """Yield the numbers of a field or a sentence that are not the expected ones."""
    for name, question in QUESTIONS.items():
        number = expected[name]
        if isinstance(shown.value, str):
            says = "unknown" if number is None else question.words(number)
            texts = [text for pattern in question.sentences for text in re.findall(pattern, shown.value)]
            yield from ((shown.where, text, says) for text in texts if text != says)
        elif question.is_answered_by(shown) and not is_equal(shown.value, number):
            yield shown.where, str(shown.value), str(number)


def is_equal(value: float, number: float | None) -> bool:
    return number is not None and isclose(value, number, rel_tol=1e-9)


def printed(
    folder: Path, report: Report, profile: Profile, capsys: pytest.CaptureFixture[str]
) -> tuple[Shown, ...]:
    """Return what the report, the first screen and the full text show of the only span of a folder."""
    lines = screen_lines(report, str(folder), 400)
    print_report(report)
    text = " ".join(capsys.readouterr().out.split())
    shown = [Shown("screen", line, {}) for line in lines] + [Shown("full text", text, {})]
    return *shown, *values_of(msgspec.to_builtins(report), "report", {})


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDINGS)
def test_each_question_has_one_number(recording: Recording, name: str) -> None:
    assert [row for profile in spans_in(recording(name)) for row in different(profile)] == []


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


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDINGS)
def test_parts_of_the_step_sum_to_it(recording: Recording, name: str) -> None:
    for profile in spans_in(recording(name)):
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
    waited = [row.evidence.get("waited_us_per_step", 0.0) for row in job.findings]
    assert max(waited) <= job.step_us
    spans = [row.spans[0] for run_ in report.runs for row in run_.workers]
    ranks = [span.step_time.step_us for span in spans if isinstance(span, SpanReport)]
    assert lengths == pytest.approx(ranks)
