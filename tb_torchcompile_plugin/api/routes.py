"""The table of questions: what each is called, what it is about, what answers it, and its parameters.

The plugin's routes, the frontend's types, the tests of the docs and the report are built from it. A new question about
a span is a function of a `Profile` in `analysis/`, and a row here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Concatenate, Generic, TypeAlias, TypeVar, get_type_hints

import msgspec

from tb_torchcompile_plugin.analysis.causes.break_costs import source_with_costs, span_with_costs
from tb_torchcompile_plugin.analysis.causes.findings import findings
from tb_torchcompile_plugin.analysis.causes.overview import overview
from tb_torchcompile_plugin.analysis.causes.payback import payback
from tb_torchcompile_plugin.analysis.causes.scenario import scenario
from tb_torchcompile_plugin.analysis.compare.compare import compare
from tb_torchcompile_plugin.analysis.compare.jobs import compare_jobs
from tb_torchcompile_plugin.analysis.compile.compilation_details import compilation, guard_checks
from tb_torchcompile_plugin.analysis.compile.compilations import exports
from tb_torchcompile_plugin.analysis.compile.dynamic_sizes import dynamic_shapes
from tb_torchcompile_plugin.analysis.compile.recompiles import recompile_report
from tb_torchcompile_plugin.analysis.compile.startup import startup
from tb_torchcompile_plugin.analysis.ranks.collectives import collectives
from tb_torchcompile_plugin.analysis.ranks.job_report import job_report, rank_findings, rank_what_if
from tb_torchcompile_plugin.analysis.ranks.job_rows import job_map
from tb_torchcompile_plugin.analysis.ranks.rank_differences import rank_differences
from tb_torchcompile_plugin.analysis.runtime.compiled_regions import compilation_table
from tb_torchcompile_plugin.analysis.runtime.cuda_graphs import cuda_graphs
from tb_torchcompile_plugin.analysis.runtime.eager import eager_time
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import gpu_utilization
from tb_torchcompile_plugin.analysis.runtime.kernels import code_kernels, kernel_details, kernel_table
from tb_torchcompile_plugin.analysis.runtime.ledger import ledger
from tb_torchcompile_plugin.analysis.runtime.memory import memory
from tb_torchcompile_plugin.analysis.runtime.modules import modules
from tb_torchcompile_plugin.analysis.runtime.operators import operators
from tb_torchcompile_plugin.analysis.runtime.python import python
from tb_torchcompile_plugin.analysis.runtime.span_report import compile_report
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import step_breakdown
from tb_torchcompile_plugin.analysis.timeline.range import timeline_range
from tb_torchcompile_plugin.analysis.timeline.slice import timeline_search, timeline_slice
from tb_torchcompile_plugin.analysis.timeline.timeline import Timeline, timeline_window
from tb_torchcompile_plugin.api.bodies import Download, timeline_trim, trace_file
from tb_torchcompile_plugin.api.catalog import baseline_ref
from tb_torchcompile_plugin.api.read_queue import Progress
from tb_torchcompile_plugin.api.run_lines import RunLines
from tb_torchcompile_plugin.api.session import Session, soon
from tb_torchcompile_plugin.api.sheets import Sheets, tables_of
from tb_torchcompile_plugin.api.starts import starts_of
from tb_torchcompile_plugin.errors import BadRequest, visible
from tb_torchcompile_plugin.job.job import Job, OneRank
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.cache.answers import AnswerStore
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload
from tb_torchcompile_plugin.reader.memo import Memoized

_SEE = "See docs/reference/routes.md"
_REQUIRED = object()


@dataclass(frozen=True)
class Parameter:
    """One parameter, or several that go together."""

    names: tuple[str, ...]
    read: Callable[..., object]  # computes the value from their texts; raises BadRequest
    otherwise: object = _REQUIRED  # the value where none of them is given

    @property
    def optional(self) -> bool:
        """Whether it may be left out."""
        return self.otherwise is not _REQUIRED


def values(parameters: Sequence[Parameter], texts: Mapping[str, str]) -> list[Any]:
    """Read all values. Raises BadRequest, which names all parameters that are missing."""
    given = [any(texts.get(name) for name in parameter.names) for parameter in parameters]
    missing = [
        name
        for parameter, is_given in zip(parameters, given)
        if is_given or not parameter.optional
        for name in parameter.names
        if not texts.get(name)
    ]
    if missing:
        raise BadRequest(f"missing parameters: {', '.join(missing)}", next_step=_SEE)
    return [
        parameter.read(*(texts[name] for name in parameter.names)) if is_given else parameter.otherwise
        for parameter, is_given in zip(parameters, given)
    ]


def span_ids(side: str = "", without_span: object = _REQUIRED) -> tuple[Parameter, ...]:
    """Return the ids of a span: those of its run and worker and its own.

    side: "2" for the second one of a comparison. without_span: "" where what a worker compiled may be meant.
    """
    return text(f"run{side}"), text(f"worker{side}"), text(f"span{side}", without_span)


def text(name: str, otherwise: object = _REQUIRED) -> Parameter:
    """Return a parameter that is taken as it is."""
    return Parameter((name,), str, otherwise)


def number(name: str, otherwise: object = _REQUIRED) -> Parameter:
    """Return a parameter that is a whole number from 0 on."""
    return Parameter((name,), partial(_integer, r"\d{1,9}", f"{name} is not a number"), otherwise)


def numbers(name: str) -> Parameter:
    """Return a parameter of numbers with commas between them; without it there are none."""
    read = partial(_integer, r"\d{1,9}", f"{name} is not a list of numbers")
    return Parameter((name,), lambda given: [*map(read, given.split(","))], ())


def texts(name: str) -> Parameter:
    """Return a parameter of texts with line breaks between them; without it there are none."""
    return Parameter((name,), lambda given: tuple(visible(line) for line in given.split("\n") if line), ())


def time(name: str, otherwise: object = _REQUIRED) -> Parameter:
    """Return a parameter in nanoseconds from the trace's first event, also before it."""
    read = partial(_integer, r"-?\d{1,18}", f"{name} is not a number of nanoseconds")
    return Parameter((name,), read, otherwise)


def window(otherwise: object = _REQUIRED) -> Parameter:
    """Return the parameters `from` and `to`, in ns."""
    start, end = time("from"), time("to")
    return Parameter(("from", "to"), lambda *given: (start.read(given[0]), end.read(given[1])), otherwise)


def _integer(pattern: str, problem: str, given: str) -> int:
    if not re.fullmatch(pattern, given, re.ASCII):
        raise BadRequest(problem, next_step=_SEE)
    return int(given)


Answer: TypeAlias = msgspec.Struct | str | bytes | Download
About = TypeVar("About")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Subject(Generic[About]):
    """What questions are about."""

    name: str
    ids: tuple[Parameter, ...]
    # looks up what `ids` name; while its trace is being read, how far that is
    find: Callable[..., About | Progress]


@dataclass(frozen=True)
class Route(Generic[About]):
    """One question. Its answer is computed once where there are no parameters."""

    name: str
    subject: Subject[About]
    ask: Callable[Concatenate[About, ...], Answer]  # the function that answers
    parameters: tuple[Parameter, ...] = ()
    # keeps the line of the run, for those who open it later
    keep: Callable[[RunLines, Any], None] | None = None

    @cached_property
    def answer(self) -> type[Any]:
        """The type that the function returns."""
        kind: type[Any] = get_type_hints(getattr(self.ask, "func", self.ask))["return"]
        return kind

    @cached_property
    def is_kept(self) -> bool:
        """Whether its answer is about a span alone, and kept until a file of the span changes."""
        return self.subject in (SPAN, SPAN_OR_WORKER) and issubclass(self.answer, msgspec.Struct)


def _timeline(session: Session, run: str, worker: str, span: str) -> Timeline | Progress:
    profile = session.poll_profile(run, worker, span)
    return profile if isinstance(profile, Progress) else _soon(profile, Timeline)


def _sheets(session: Session) -> Sheets:
    """Return the columns of all tables."""
    return Sheets({name: tables_of(answer) for name, answer in sheet_types().items()})


def sheet_types() -> dict[str, type[msgspec.Struct]]:
    """Return the type whose fields are the tables of a route, for all that answer with JSON."""
    return {name: route.answer for name, route in ROUTES.items() if issubclass(route.answer, msgspec.Struct)}


LOGDIR: Subject[Session] = Subject("logdir", (), lambda session: session)
RUN = Subject("run", (text("run"),), Session.ranks)
JOB = Subject("run", (text("run"), text("span", "")), Session.poll_job)
_WORKER_IDS = span_ids()[:2]
RANK = Subject("run", (*JOB.ids, number("rank")), Session.poll_rank)
WORKER = Subject("worker", _WORKER_IDS, Session.compile_data)
BASELINE = Subject("worker", _WORKER_IDS, lambda session, *ids: session.catalog.baseline(*ids))
STARTS = Subject("worker", _WORKER_IDS, starts_of)
SPAN = Subject("span", span_ids(), Session.poll_profile)
TIMELINE = Subject("span", span_ids(), _timeline)
TRACE = Subject("span", span_ids(), Session.trace_file)
SPAN_OR_WORKER: Subject[Profile | CompileData] = Subject("span", span_ids("", ""), Session.poll)
JOBS = Subject("jobs", (*JOB.ids, text("run2"), text("span2", "")), Session.poll_jobs)
SIDES = Subject("sides", (*span_ids("", ""), *span_ids("2", "")), Session.poll_sides)

_COMPILE_ID = (number("epoch"), text("compile_id"))
_KERNEL = (text("device"), text("name"), text("compile_id", ""), text("graph_key", ""))
_HITS = (time("at", 0), number("offset", 0), number("limit", 100))
_SEARCH = (text("q"), window(None), numbers("lanes"), *_HITS)

_TABLE = (  # without a type of its own: each row is checked, whether its function is of its subject
    Route("runs", LOGDIR, Session.runs),
    Route("sheets", LOGDIR, _sheets),
    Route("all_runs", LOGDIR, Session.all_runs, (text("pin", ""),)),
    Route("compile", WORKER, compile_report),
    Route("compile_time", STARTS, startup),
    Route("baseline", BASELINE, baseline_ref),
    Route("rank_differences", RUN, rank_differences),
    Route("job", JOB, job_report, keep=RunLines.keep_job),
    Route("job_map", JOB, job_map, (text("measure"),)),
    Route("rank_findings", RANK, rank_findings),
    Route("rank_what_if", RANK, rank_what_if, (texts("fixes"),)),
    Route("exports", WORKER, exports),
    Route("compilation", WORKER, compilation, _COMPILE_ID),
    Route("guards", WORKER, guard_checks, _COMPILE_ID),
    Route("artifact", WORKER, read_payload, (number("id"),)),
    Route("span", SPAN, span_with_costs),
    Route("overview", SPAN_OR_WORKER, overview, keep=RunLines.keep_span),
    Route("timeline", TIMELINE, Timeline.describe),
    Route("timeline_window", TIMELINE, timeline_window, (window(), number("width"), numbers("lanes"))),
    Route("timeline_slice", TIMELINE, timeline_slice, (number("lane", -1), number("row"))),
    Route("timeline_search", TIMELINE, timeline_search, _SEARCH),
    Route("timeline_range", TIMELINE, timeline_range, (window(),)),
    Route("timeline_trim", TIMELINE, timeline_trim, (window(),)),
    Route("trace_file", TRACE, trace_file),
    Route("eager", SPAN, eager_time),
    Route("operators", SPAN, operators),
    Route("operators_by_shape", SPAN, partial(operators, split="shape")),
    Route("operators_by_call_site", SPAN, partial(operators, split="call_site")),
    Route("operators_by_label", SPAN, partial(operators, split="label")),
    Route("operators_by_compilation", SPAN, partial(operators, split="compilation")),
    Route("functions", SPAN, python),
    Route("memory", SPAN, memory, (window(None),)),
    Route("modules", SPAN, modules),
    Route("your_code", SPAN, source_with_costs),
    Route("kernels", SPAN, kernel_table),
    Route("kernel", SPAN, kernel_details, _KERNEL),
    Route("code_kernels", SPAN_OR_WORKER, code_kernels, (number("id"),)),
    Route("gpu_utilization", SPAN, gpu_utilization),
    Route("cuda_graphs", SPAN, cuda_graphs),
    Route("dynamic_shapes", SPAN, dynamic_shapes),
    Route("collectives", SPAN, collectives),
    Route("step", SPAN, step_breakdown),
    Route("ledger", SPAN, ledger),
    Route("what_if", SPAN, scenario, (texts("fixes"),)),
    Route("payback", SPAN, payback),
    Route("compilations", SPAN_OR_WORKER, compilation_table),
    Route("recompiles", SPAN_OR_WORKER, recompile_report),
    Route("findings", SPAN_OR_WORKER, findings, keep=RunLines.begin_span),
    Route("compare", SIDES, compare),
    Route("compare_jobs", JOBS, compare_jobs),
)
ROUTES: Mapping[str, Route[Any]] = {route.name: route for route in _TABLE}


def poll(session: Session, route: Route[Any], texts: Mapping[str, str]) -> Answer | Progress:
    """Return the answer to one question: from memory, otherwise from disk, otherwise computed.

    texts: its ids and parameters. While a trace is read or the answer computed, how far that is. Raises UserError.
    """
    given = values((*route.subject.ids, *route.parameters), texts)
    ids, arguments = given[: len(route.subject.ids)], given[len(route.subject.ids) :]
    is_plain = arguments == [parameter.otherwise for parameter in route.parameters]
    if is_plain and route.is_kept and all(ids):
        run, worker, span = ids
        source = session.catalog.span((run, worker, span)).source
        stored: Answer | None = session.answers.get(route.name, route.answer, source)
        if stored is not None:
            return stored
    about = route.subject.find(session, *ids)
    if isinstance(about, Progress):
        return about
    if not isinstance(about, Memoized) or not (is_plain or isinstance(about, (Job, OneRank))):
        answer: Answer = route.ask(about, *arguments)
        return answer
    if not is_plain:
        return _soon(about, route.ask, *arguments)
    if isinstance(about, CompileData):
        return _compute(about, route, session.answers, session.lines)
    return _soon(about, _compute, route, session.answers, session.lines)


def _compute(about: Any, route: Route[Any], answers: AnswerStore, lines: RunLines) -> Answer:
    """Return the answer to a question without parameters, and keep it for the next time."""
    answer: Answer = about.of(route.ask)
    if route.keep:
        route.keep(lines, about)
    if isinstance(about, Profile) and isinstance(answer, msgspec.Struct) and about.trace.is_whole():
        answers.get(route.name, type(answer), about.source, lambda: answer)
    return answer


def _soon(about: Memoized, question: Callable[..., Result], *arguments: Any) -> Result | Progress:
    """Compute an answer by a thread of its own: no request waits long, whoever asks."""
    return soon(about.begin(question, *arguments), about)
