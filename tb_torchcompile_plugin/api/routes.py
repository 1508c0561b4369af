"""THE table of questions: what each is called, what it is about, what answers it, and its parameters.

The plugin's routes, the frontend's types, the documents' tests and the report are made from it. A new question about a
span is a function of a `Profile` in `analysis/`, and a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import wait
from dataclasses import dataclass
from functools import partial
from typing import Any, Concatenate, Generic, TypeAlias, TypeVar, get_type_hints

import msgspec

from tb_torchcompile_plugin.analysis.causes.payback import pays
from tb_torchcompile_plugin.analysis.causes.scenario import scenario
from tb_torchcompile_plugin.analysis.compare.all_runs import (
    compile_remembered,
    findings_remembered,
    job_remembered,
    overview_remembered,
    remembered,
)
from tb_torchcompile_plugin.analysis.compare.jobs import Jobs, compare_jobs
from tb_torchcompile_plugin.analysis.compare.pairs import Sides
from tb_torchcompile_plugin.analysis.compare.tables import compare_tables
from tb_torchcompile_plugin.analysis.compare.verdict import compare_report
from tb_torchcompile_plugin.analysis.compile.compilation_details import (
    compilation,
    compile_time,
    guard_checks,
)
from tb_torchcompile_plugin.analysis.compile.compilations import compilations_overview
from tb_torchcompile_plugin.analysis.compile.dynamic_sizes import dynamic_shapes
from tb_torchcompile_plugin.analysis.compile.exports import exports
from tb_torchcompile_plugin.analysis.compile.startup import startup
from tb_torchcompile_plugin.analysis.compile.triton import triton
from tb_torchcompile_plugin.analysis.ranks.collectives import collectives, rank_collectives
from tb_torchcompile_plugin.analysis.ranks.job_rows import job_map
from tb_torchcompile_plugin.analysis.ranks.one_rank import rank_findings, rank_what_if
from tb_torchcompile_plugin.analysis.ranks.rank_differences import rank_differences
from tb_torchcompile_plugin.analysis.ranks.side_by_side import SideBySide, side_by_side
from tb_torchcompile_plugin.analysis.runtime.cpu import cpu
from tb_torchcompile_plugin.analysis.runtime.cuda_graphs import cuda_graphs
from tb_torchcompile_plugin.analysis.runtime.eager import eager_time
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import gpu_utilization
from tb_torchcompile_plugin.analysis.runtime.kernels import code_kernels, kernel_details, kernel_table
from tb_torchcompile_plugin.analysis.runtime.memory import memory
from tb_torchcompile_plugin.analysis.runtime.modules import modules
from tb_torchcompile_plugin.analysis.runtime.operators import operators
from tb_torchcompile_plugin.analysis.runtime.python import python
from tb_torchcompile_plugin.analysis.runtime.source import source
from tb_torchcompile_plugin.analysis.runtime.span_report import span_report
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import step_breakdown
from tb_torchcompile_plugin.analysis.timeline.flame import timeline_flame
from tb_torchcompile_plugin.analysis.timeline.range import timeline_range
from tb_torchcompile_plugin.analysis.timeline.search import timeline_search
from tb_torchcompile_plugin.analysis.timeline.slice import timeline_slice
from tb_torchcompile_plugin.analysis.timeline.timeline import Timeline
from tb_torchcompile_plugin.analysis.timeline.wire import timeline_window
from tb_torchcompile_plugin.api.bodies import Download, timeline_trim, trace_file
from tb_torchcompile_plugin.api.joined import made_of
from tb_torchcompile_plugin.api.parameters import (
    Parameter,
    number,
    numbers,
    side_ids,
    span_ids,
    text,
    texts,
    time,
    values,
    window,
    worker_ids,
)
from tb_torchcompile_plugin.api.read_queue import Progress
from tb_torchcompile_plugin.api.session import Session, all_read
from tb_torchcompile_plugin.api.sheets import Sheets, is_sheet, tables_of
from tb_torchcompile_plugin.api.starts import starts_of
from tb_torchcompile_plugin.errors import NotFound
from tb_torchcompile_plugin.job.job import Job, OneRank, TracedJob
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.cache import answers
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload
from tb_torchcompile_plugin.reader.memo import Memoized

Answer: TypeAlias = msgspec.Struct | str | bytes | Download
About = TypeVar("About")
Result = TypeVar("Result")
_PATIENCE_S = 1.0  # most answers are there sooner: one request is enough


@dataclass(frozen=True)
class Subject(Generic[About]):
    """What questions are about. find: looks up what `ids` name; while its trace is being read, how far that is."""

    name: str
    ids: tuple[Parameter, ...]
    find: Callable[..., About | Progress]


@dataclass(frozen=True)
class Route(Generic[About]):
    """One question. ask: the function that answers; its answer is made once where there are no parameters."""

    name: str
    subject: Subject[About]
    ask: Callable[Concatenate[About, ...], Answer]
    parameters: tuple[Parameter, ...] = ()

    @property
    def about(self) -> str:
        return self.subject.name

    @property
    def answer(self) -> type[Answer]:
        """What the function says that it returns."""
        kind: type[Answer] = get_type_hints(getattr(self.ask, "func", self.ask))["return"]
        return kind


def _timeline(session: Session, run: str, worker: str, span: str) -> Timeline | Progress:
    profile = session.poll_profile(run, worker, span)
    return profile if isinstance(profile, Progress) else _soon(profile, Timeline)


def _side_by_side(session: Session, run: str, span: str) -> SideBySide | Progress:
    job = session.poll_job(run, span)
    if isinstance(job, Progress):
        return job
    if not isinstance(job, TracedJob):
        raise NotFound(
            f"the traces of these {len(job.digests):,} ranks are not read together",
            next_step="Look into one of them: its panels and timeline are those of its trace",
        )
    return _soon(job, SideBySide)


def _sheets(session: Session) -> Sheets:
    return Sheets({name: tables_of(route.answer) for name, route in ROUTES.items() if is_sheet(route.answer)})


LOGDIR: Subject[Session] = Subject("logdir", (), lambda session: session)
RUN = Subject("run", (text("run"),), Session.ranks)
JOB = Subject("run", (text("run"), text("span", "")), Session.poll_job)
RANK = Subject("run", (*JOB.ids, number("rank")), Session.poll_rank)
SIDE_BY_SIDE = Subject("run", JOB.ids, _side_by_side)
WORKER = Subject("worker", worker_ids(), Session.compile_data)
STARTS = Subject("worker", worker_ids(), starts_of)
SPAN = Subject("span", span_ids(), Session.poll_profile)
TIMELINE = Subject("span", span_ids(), _timeline)
TRACE = Subject("span", span_ids(), Session.trace_file)
FILES = Subject("span", span_ids(), Session.files)
SPAN_OR_WORKER: Subject[Profile | CompileData] = Subject("span", side_ids(), Session.poll)
JOBS = Subject("jobs", (*JOB.ids, text("run2"), text("span2", "")), Session.poll_jobs)
SIDES = Subject("sides", (*side_ids(), *side_ids("2")), Session.poll_sides)

_KEPT: tuple[Subject[Any], ...] = (SPAN, SPAN_OR_WORKER)  # answers about a span alone, which are kept on disk

_COMPILE_ID = (number("epoch"), text("compile_id"))
_KERNEL = (text("device"), text("name"), text("compile_id", ""), text("graph_key", ""))
_SEARCH = (
    text("q"),
    window(None),
    numbers("lanes"),
    time("at", 0),
    number("offset", 0),
    number("limit", 100),
)

_TABLE = (  # without a type of its own: each row is checked, whether its function is of its subject
    Route("runs", LOGDIR, Session.runs),
    Route("sheets", LOGDIR, _sheets),
    Route("all_runs", LOGDIR, Session.all_runs, (text("pin", ""),)),
    Route("compile", WORKER, compile_remembered),
    Route("compile_time", WORKER, compile_time),
    Route("compilations", WORKER, compilations_overview),
    Route("startup", STARTS, startup),
    Route("rank_differences", RUN, rank_differences),
    Route("job", JOB, job_remembered),
    Route("job_map", JOB, job_map, (text("measure"),)),
    Route("rank_findings", RANK, rank_findings),
    Route("rank_what_if", RANK, rank_what_if, (texts("fixes"),)),
    Route("side_by_side", SIDE_BY_SIDE, side_by_side, (text("step", ""), window(None))),
    Route("rank_collectives", RANK, rank_collectives),
    Route("exports", WORKER, exports),
    Route("triton", WORKER, triton),
    Route("compilation", WORKER, compilation, _COMPILE_ID),
    Route("guards", WORKER, guard_checks, _COMPILE_ID),
    Route("artifact", WORKER, read_payload, (number("id"),)),
    Route("span", SPAN, span_report),
    Route("overview", SPAN, overview_remembered),
    Route("last_overview", FILES, remembered),
    Route("timeline", TIMELINE, Timeline.describe),
    Route("timeline_window", TIMELINE, timeline_window, (window(), number("width"), numbers("lanes"))),
    Route("timeline_slice", TIMELINE, timeline_slice, (number("lane", -1), number("row"))),
    Route("timeline_search", TIMELINE, timeline_search, _SEARCH),
    Route("timeline_range", TIMELINE, timeline_range, (window(),)),
    Route("timeline_flame", TIMELINE, timeline_flame, (window(), number("lane", -1), number("row", -1))),
    Route("timeline_trim", TIMELINE, timeline_trim, (window(),)),
    Route("trace_file", TRACE, trace_file),
    Route("eager", SPAN, eager_time),
    Route("operators", SPAN, operators),
    Route("operators_by_shape", SPAN, partial(operators, split="shape")),
    Route("operators_by_call_site", SPAN, partial(operators, split="call_site")),
    Route("operators_by_label", SPAN, partial(operators, split="label")),
    Route("operators_by_compilation", SPAN, partial(operators, split="compilation")),
    Route("python", SPAN, python),
    Route("memory", SPAN, memory, (window(None),)),
    Route("modules", SPAN, modules),
    Route("source", SPAN, source),
    Route("kernels", SPAN, kernel_table),
    Route("kernel", SPAN, kernel_details, _KERNEL),
    Route("code_kernels", SPAN_OR_WORKER, code_kernels, (number("id"),)),
    Route("gpu_utilization", SPAN, gpu_utilization),
    Route("cpu", SPAN, cpu),
    Route("cuda_graphs", SPAN, cuda_graphs),
    Route("dynamic_shapes", SPAN, dynamic_shapes),
    Route("collectives", SPAN, collectives),
    Route("step_breakdown", SPAN, step_breakdown),
    Route("what_if", SPAN, scenario, (texts("fixes"),)),
    Route("pays", SPAN, pays),
    Route("findings", SPAN_OR_WORKER, findings_remembered),
    Route("compare", SIDES, compare_report),
    Route("compare_tables", SIDES, compare_tables),
    Route("compare_jobs", JOBS, compare_jobs),
)
_ROWS: tuple[Route[Any], ...] = _TABLE
ROUTES: Mapping[str, Route[Any]] = {route.name: route for route in _ROWS}


def poll(session: Session, route: Route[Any], texts: Mapping[str, str]) -> Answer | Progress:
    """The answer to one question, its ids and parameters as texts; while it is read or made, how far that is.

    Raises UserError.
    """
    ids = route.subject.ids
    given = values((*ids, *route.parameters), texts)
    plain = not any(parameter.given(texts) for parameter in route.parameters)
    if plain and (known := _kept(session, route, *given[: len(ids)])):
        return known
    about = route.subject.find(session, *given[: len(ids)])
    if isinstance(about, Progress):
        return about
    arguments = given[len(ids) :]
    if isinstance(about, (Job, OneRank)):
        return _soon(about, route.ask, *arguments)
    if not plain or not isinstance(about, Memoized):
        answer: Answer = route.ask(about, *arguments)
        return answer
    if isinstance(about, CompileData):
        return about.of(route.ask)
    return _soon(about, _keep, route.name) if route.subject in _KEPT else _soon(about, route.ask)


def _kept(session: Session, route: Route[Any], *ids: str) -> Answer | None:
    """What was answered of a large trace before it was closed: nobody waits until it is open again. Raises NotFound."""
    kind = route.answer
    if route.subject not in _KEPT or not all(ids) or not issubclass(kind, msgspec.Struct):
        return None
    run, worker, span = ids
    about = made_of(session.files(run, worker, span), session.beside(run, worker), session.most_calls(run))
    return answers.kept(route.name, kind, about)


def _keep(profile: Profile, name: str) -> Answer:
    """The answer, which is written down for the next time."""
    answer: Answer = profile.of(ROUTES[name].ask)
    if isinstance(answer, msgspec.Struct) and profile.trace.is_whole():
        answers.keep(name, answer, made_of(profile.files, profile.beside, profile.most_calls))
    return answer


def _soon(about: Memoized, question: Callable[..., Result], *arguments: Any) -> Result | Progress:
    """Nobody waits long in a request: an answer is made on a thread of its own, whoever asks for it."""
    made = about.begin(question, *arguments)
    wait([made], _PATIENCE_S)
    return made.result() if made.done() else all_read(_profile_of(about))


def _profile_of(about: Memoized) -> Profile | None:
    """Of which the answer is made, as the last of several."""
    if isinstance(about, Jobs):
        about = about.b
    if isinstance(about, OneRank):
        return about.profile
    if isinstance(about, Job):
        return about.ranks[-1].profile if isinstance(about, TracedJob) else None
    one = about.b.profile if isinstance(about, Sides) else about
    return one if isinstance(one, Profile) else None
