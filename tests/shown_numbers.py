"""Numbers that answers show, by the question that each of them answers, and whether one function says the same.

Every route about a span or its compile data is asked, with parameters chosen from what other routes answer. Each field
and sentence is looked through by name and by words, so a new panel is compared without a change here. A number that
means something else needs another name; a length of a step that is none must be listed in OTHERS with what it is.
"""

import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import cache, partial
from math import isclose
from typing import Any, NamedTuple

import msgspec

from tb_torchcompile_plugin.analysis.causes.break_costs import break_sites, cost_of_breaks, direct_us
from tb_torchcompile_plugin.analysis.compile.compile_time import compile_overlap, count_compilations, total_s
from tb_torchcompile_plugin.analysis.compile.graph_breaks import count_sites
from tb_torchcompile_plugin.analysis.compile.recompiles import count_recompiles
from tb_torchcompile_plugin.analysis.formatting import duration, percent, seconds
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import utilization
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_table
from tb_torchcompile_plugin.analysis.timeline.timeline import Timeline
from tb_torchcompile_plugin.api.routes import ROUTES, SPAN, SPAN_OR_WORKER, TIMELINE, WORKER
from tb_torchcompile_plugin.generated_code.generated_code import GeneratedCode
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_time
from tb_torchcompile_plugin.reader.compile_data import CompileData

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
        return isinstance(shown.value, int | float) and self.with_field in ("", *shown.row)


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
    "*dynamic_shapes.sizes.compile_s": "the compilations of one size",
    "*dynamic_shapes.guards.recompiles": "those of one guard",
    "*findings.evidence.compil*": "those that the finding is about",
    "*findings.evidence.recompiles": "the same",
}


def values_of(answer: Any, where: str) -> Iterator[Shown]:
    """Yield each number and sentence of an answer."""
    parts: list[tuple[Any, str, dict[str, Any]]] = [(answer, where, {})]
    while parts:
        part, where, row = parts.pop()
        if isinstance(part, dict):
            parts += [(value, f"{where}.{name}", part) for name, value in part.items()]
        elif isinstance(part, list | tuple):
            parts += [(value, where, row) for value in part]
        elif part is not None:
            yield Shown(where, part, row)


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
                yield from values_of(msgspec.to_builtins(answer), name)


def profile_answer(about: Any, ask: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return ask(about, *arguments) if arguments or isinstance(about, Timeline) else about.of(ask)


def different(profile: Profile, more: tuple[Shown, ...] = ()) -> set[tuple[str, str, str]]:
    """Return what is shown with another number than the one that answers its question: where, shown, expected."""
    expected = {question: QUESTIONS[question].answer(profile) for question in QUESTIONS}
    costs = {row.key: row.saves_us for row in profile.of(break_sites)}
    found = set()
    for shown in (*answers(profile), *more):
        if not means_something_else(shown.where):
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
    is_length = isinstance(shown.value, float) and re.fullmatch(LENGTHS, shown.name)
    if is_length and not questions_of(shown.name):
        lengths = [expected[name] for name in ("step", "profiled step")]
        if not any(is_equal(shown.value, length) for length in lengths):
            yield shown.where, str(shown.value), "none of OTHERS"


def compared(shown: Shown, expected: dict[str, float | None]) -> Iterator[tuple[str, str, str]]:
    """Yield the numbers of a field or a sentence that are not the expected ones."""
    for name, text in numbers_in(shown.value) if isinstance(shown.value, str) else ():
        number = expected[name]
        says = "unknown" if number is None else QUESTIONS[name].words(number)
        if text != says:
            yield shown.where, text, says
    for name in questions_of(shown.name):
        if QUESTIONS[name].is_answered_by(shown) and not is_equal(shown.value, expected[name]):
            yield shown.where, str(shown.value), str(expected[name])


@cache
def numbers_in(sentence: str) -> list[tuple[str, str]]:
    """Return the numbers of a sentence in words, each with the question that it answers."""
    return [
        (name, text)
        for name, question in QUESTIONS.items()
        for pattern in question.sentences
        for text in re.findall(pattern, sentence)
    ]


@cache
def questions_of(field: str) -> list[str]:
    """Those that fields of this name answer."""
    return [name for name, question in QUESTIONS.items() if re.fullmatch(question.fields, field)]


@cache
def means_something_else(where: str) -> bool:
    return any(fnmatchcase(where, pattern) for pattern in OTHERS)


def is_equal(value: float, number: float | None) -> bool:
    return number is not None and isclose(value, number, rel_tol=1e-9)
