"""Profiles of traces that a test wrote, and answers that it gives in place of the analyses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tb_torchcompile_plugin.analysis.timeline.timeline import Timeline
from tb_torchcompile_plugin.api import routes
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileKey, CompileSummary, Graph
from tb_torchcompile_plugin.logdir.discovery import File, SpanFile
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.memo import answers_of, key_of
from tb_torchcompile_plugin.reader.trace.kineto import read_trace
from traces import Event, write_trace

SPAN = SpanFile("1", File("w.1.pt.trace.json", 0, 0, ""))


def profile_of(path: Path, data: CompileData | None = None) -> Profile:
    """The profile of a trace file."""
    return Profile(read_trace(str(path), workers=1), data, SPAN)


def profile_in(folder: Path) -> Profile:
    """The profile of the only trace in a folder."""
    (path,) = folder.glob("*.pt.trace.json*")
    return profile_of(path)


def profile_with(
    folder: Path, events: list[Event], data: CompileData | None = None, **header: Any
) -> Profile:
    """The profile of these events."""
    return profile_of(write_trace(folder, events, **header), data)


def data_of(summary: CompileSummary) -> CompileData:
    """What one worker compiled."""
    return CompileData(summary, "summary", "")


def graphs(key_to_id: Mapping[str, str]) -> CompileData:
    """Compile data that tells of graphs, by key, and nothing else."""
    made = [Graph(key=CompileKey(compile_id=name), graph_key=key) for key, name in key_to_id.items()]
    return data_of(CompileSummary(graphs=made))


SPAN_QUESTIONS: dict[str, routes.Route[Any]] = {
    name: route
    for name, route in routes.ROUTES.items()
    if route.subject in (routes.SPAN, routes.SPAN_OR_WORKER, routes.TIMELINE)
    and all(one.optional for one in route.parameters)
}  # what a span alone is asked


WORKER_QUESTIONS: dict[str, Any] = {
    name: route.ask
    for name, route in routes.ROUTES.items()
    if route.subject in (routes.WORKER, routes.SPAN_OR_WORKER) and not route.parameters
}  # what compile data alone are asked


def ask(profile: Profile, question: str) -> Any:
    """The answer to one of SPAN_QUESTIONS."""
    route = SPAN_QUESTIONS[question]
    return route.ask(profile.of(Timeline)) if route.subject is routes.TIMELINE else profile.of(route.ask)


def answered(profile: Profile, question: Callable[[Profile], object], answer: object) -> Profile:
    """The profile as if it had been asked this and had answered so."""
    answers_of(profile).get(key_of(question), lambda: answer)
    return profile
