"""Request one answer at a time and keep it as the server would send it."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, combinations
from typing import Any, TypeAlias, get_args

import msgspec

from tb_torchcompile_plugin.analysis.causes.scenario import Scenario
from tb_torchcompile_plugin.analysis.compile.compilation_details import CompilationDetails, Guard
from tb_torchcompile_plugin.analysis.compile.graph_breaks import GraphBreak, GraphBreakSite
from tb_torchcompile_plugin.analysis.ranks.job_rows import Measure
from tb_torchcompile_plugin.analysis.runtime.kernels import KernelDetails, Kernels
from tb_torchcompile_plugin.analysis.runtime.source import ProgramLine
from tb_torchcompile_plugin.api.bodies import body_of, error_body
from tb_torchcompile_plugin.api.export.page import Pack
from tb_torchcompile_plugin.api.read_queue import Progress, finished
from tb_torchcompile_plugin.api.routes import ROUTES, Route, poll
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.errors import UserError, visible
from tb_torchcompile_plugin.generated_code.output_code import Frame
from tb_torchcompile_plugin.torch_names.records import OUTPUT_CODE

CODE_LEFT_OUT = "not included in this file (--no-code)"
# What torch writes behind a guard, wherever a guard is shown: the line that asked for it, and its stack.
_QUOTED = re.compile(r"\s{2,}# .*", re.DOTALL)


# Fields with text of the program, of which nothing remains.
_CODE_FIELDS: dict[type[msgspec.Struct], set[str]] = {
    Frame: {"source"},
    ProgramLine: {"text"},
    KernelDetails: {"source", "graph"},
    GraphBreak: {"source"},
    GraphBreakSite: {"source"},
    CompilationDetails: {"traceback"},
    Guard: {"user_line"},
}
# Routes that return only such text, and the reason for the empty answer.
NO_CODE = dict.fromkeys(("artifact", "code_kernels"), f"Code and graphs are {CODE_LEFT_OUT}")


def without_code(answer: Any) -> Any:
    """Return the same answer without texts of the user's program, of graphs and of generated code."""
    if isinstance(answer, str):
        return _QUOTED.sub("", answer)
    if isinstance(answer, list | tuple):
        return type(answer)(without_code(item) for item in answer)
    if isinstance(answer, dict):
        return {key: without_code(item) for key, item in answer.items()}
    if not isinstance(answer, msgspec.Struct):
        return answer
    fields = {name: without_code(getattr(answer, name)) for name in answer.__struct_fields__}
    fields |= dict.fromkeys(_CODE_FIELDS.get(type(answer), ()))
    if isinstance(answer, ProgramLine):
        fields["why_no_text"] = fields["why_no_text"] or f"The text is {CODE_LEFT_OUT}"
    return msgspec.structs.replace(answer, **fields)


Texts: TypeAlias = dict[str, str]
Advance: TypeAlias = Callable[[Progress], None]

# What says how much of an answer is wanted, and not which: the file answers it with the one that it has.
_ANY = {"timeline_window": {"lanes"}, "timeline_search": {"from", "to", "lanes", "at", "offset", "limit"}}


def names_of(route: Route[Any]) -> list[str]:
    """Return the parameters that distinguish the questions of a route, in order."""
    parameters = (*route.subject.ids, *route.parameters)
    every = [name for parameter in parameters for name in parameter.names]
    return [name for name in every if name not in _ANY.get(route.name, ())]


def key_of(name: str, texts: Texts) -> str:
    """Return the key of an answer in the file. Lines within a text have no order. The browser builds the same key."""
    asked = (visible(texts.get(parameter, "")) for parameter in names_of(ROUTES[name]))
    parts = ["\n".join(sorted(text.split("\n"))) for text in asked]
    return "\x1f".join((name, *parts))


class RouteReader:
    """Requests answers from the routes, and keeps them in a pack."""

    def __init__(self, session: Session, pack: Pack, code: bool, advance: Advance) -> None:
        self.session, self.pack, self.code = session, pack, code
        self._advance = advance

    def ask(self, name: str, texts: Texts) -> Any:
        """Return the answer to one question, without a time limit. Raises UserError."""
        answer = finished(partial(poll, self.session, ROUTES[name], texts), self._advance)
        return answer if self.code else without_code(answer)

    def keep(self, name: str, texts: Texts) -> Any:
        """Return the same, and keep it; None if it failed: then the file contains the error."""
        try:
            answer = self.ask(name, texts)
        except UserError as error:
            self.pack.add(key_of(name, texts), error_body(error.code, error.notice, error.status))
            return None
        self.pack.add(key_of(name, texts), body_of(answer))
        return answer

    def share(self, name: str, texts: Texts, spans: Sequence[str]) -> None:
        """Answer the same question about other spans of the job with what was kept."""
        location = self.pack.locations[key_of(name, texts)]
        for span in spans:
            self.pack.locations.setdefault(key_of(name, {**texts, "span": span}), location)


Values: TypeAlias = Callable[[RouteReader, Texts], Iterator[Texts]]

_ALL_SUBSETS = 5  # fixes of which every combination is there; of more each alone, and the largest together

LEFT_OUT: Mapping[str, str] = {
    **dict.fromkeys(("all_runs", "baseline"), "Other runs are not included in this file"),
    "timeline_range": "Measurements of a time range are not included in this file",
    **dict.fromkeys(("timeline_trim", "trace_file"), "The trace is not included in this file"),
}
# Why a question that differs from those that are kept has no answer.
INCOMPLETE: Mapping[str, str] = {
    "timeline": "The timeline of this span is not included in this file",
    "timeline_search": "In this file you can search only for its kernels, operators and compilations",
    "timeline_slice": "The details of this slice are not included in this file",
    "what_if": "This combination of fixes is not included in this file",
    "rank_what_if": "This combination of fixes is not included in this file",
    "memory": "This time range is not included in this file",
    "compare": "This comparison is not included in this file",
}
# As far as the budget of the timeline goes.
TIMELINE = frozenset({"timeline", "timeline_window", "timeline_slice", "timeline_search"})


def _of(name: str, reader: RouteReader, ids: Texts) -> Any:
    """Return an answer that was kept before; None where there is none."""
    try:
        return reader.ask(name, ids)
    except UserError:
        return None


def _compilations(reader: RouteReader, ids: Texts) -> Iterator[Texts]:
    compiled, overview = _of("compile", reader, ids), _of("compilations", reader, ids)
    rows = [*(compiled.compilations if compiled else ()), *(overview.others if overview else ())]
    for epoch, compile_id in dict.fromkeys((row.epoch, row.compile_id) for row in rows if row.compile_id):
        yield {**ids, "epoch": str(epoch), "compile_id": compile_id}


def _artifacts(reader: RouteReader, ids: Texts, only: str = "") -> Iterator[Texts]:
    worker = {name: ids[name] for name in ("run", "worker")}
    for of in _compilations(reader, worker):
        details = _of("compilation", reader, of)
        for artifact in details.artifacts if details else ():
            if only in ("", artifact.name):
                yield {**ids, "id": str(artifact.id)}
    overview = _of("compilations", reader, worker)
    for other in overview.others if overview else ():
        yield from ({**ids, "id": str(artifact.id)} for artifact in other.artifacts if not only)


def _kernels(reader: RouteReader, ids: Texts) -> Iterator[Texts]:
    table: Kernels | None = _of("kernels", reader, ids)
    for row in table.rows if table else ():
        owner = {"compile_id": row.compile_id or "", "graph_key": row.graph_key or ""}
        yield {**ids, "device": str(row.device), "name": row.name, **owner}


def _fixes(name: str, reader: RouteReader, ids: Texts) -> Iterator[Texts]:
    """Yield sets of fixes that can be ticked together, among them those that findings lead to."""
    offered: Scenario | None = _of(name, reader, ids)
    fixes = [fix.id for fix in offered.fixes] if offered else []  # largest gain first
    sizes = range(1, len(fixes) + 1)
    if len(fixes) <= _ALL_SUBSETS:
        picked = list(chain.from_iterable(combinations(fixes, size) for size in sizes))
    else:
        picked = [*((fix,) for fix in fixes), *(tuple(fixes[:size]) for size in sizes[1:])]
    for together in picked:
        yield {**ids, "fixes": "\n".join(together)}


def _ranks(reader: RouteReader, ids: Texts) -> Iterator[Texts]:
    """Yield the ranks whose traces are there."""
    job = _of("job", reader, ids)
    traced = {worker.worker for run in reader.session.runs().runs for worker in run.workers if worker.spans}
    for rank, worker in zip(job.map.ranks, job.map.workers) if job else ():
        if worker in traced:
            yield {**ids, "rank": str(rank)}


def _fixes_of_ranks(reader: RouteReader, ids: Texts) -> Iterator[Texts]:
    for rank in _ranks(reader, ids):
        yield rank
        yield from _fixes("rank_what_if", reader, rank)


# By route, in addition to the question without any.
VALUES: Mapping[str, Values] = {
    "compilation": _compilations,
    "guards": _compilations,
    "artifact": _artifacts,
    "code_kernels": partial(_artifacts, only=OUTPUT_CODE),
    "kernel": _kernels,
    "what_if": partial(_fixes, "what_if"),
    "job_map": lambda _, ids: ({**ids, "measure": measure} for measure in get_args(Measure)),
    "rank_findings": _ranks,
    "rank_what_if": _fixes_of_ranks,
}
