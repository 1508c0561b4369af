"""One run as one file: the tab, and the answers to what it asks; or one step of it as a trace."""

import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import msgspec

from tb_torchcompile_plugin import __version__
from tb_torchcompile_plugin.analysis.formatting import plural, size
from tb_torchcompile_plugin.analysis.timeline.timeline import Timeline
from tb_torchcompile_plugin.api import catalog, routes
from tb_torchcompile_plugin.api.bodies import PANELS_PAGE, Body, body_of, terms, timeline_trim
from tb_torchcompile_plugin.api.export import ask, page
from tb_torchcompile_plugin.api.export.timeline_part import TimelinePart, wanted_stretches
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.errors import UserError, visible
from tb_torchcompile_plugin.profile.steps import StepWindows


class ContentLine(msgspec.Struct, frozen=True):
    """A line of the list of contents: the item, and its amount or the reason for its absence."""

    what: str
    text: str


class FileContents(msgspec.Struct, frozen=True):
    """Information about the file: its source, its contents, and omissions with their reasons."""

    title: str
    made: str  # when, UTC
    version: str
    place: dict[str, str]  # the address that the file opens with
    holds: list[ContentLine]
    left_out: list[ContentLine]
    parameters: dict[str, list[str]]  # by route, what distinguishes its questions
    reasons: dict[str, str]  # by route, why an answer is not in the file
    instead: str  # what to do about it


# Bytes of the file, by hand: runs of 2 to 20 MB of traces make files of 2 to 8 MB (docs/guides/export.md).
TIMELINE_BYTES = 8_000_000
_COMPARED = 3  # other spans of the same run
PANELS_BYTES = 24_000_000  # of other workers and spans than the one that was picked


@dataclass
class Export:
    """A run as one file, which is computed while it is written."""

    session: Session
    run: str = ""  # an id, as worker and span; "" for what the tab opens with
    worker: str = ""
    span: str = ""
    compare: str = ""  # another run of the logdir, "" for none
    step: str = ""  # of the timeline, wanted at full detail
    code: bool = True  # with the texts of graphs, generated code and the user's program
    timeline_bytes: int = TIMELINE_BYTES
    panels_bytes: int = PANELS_BYTES
    logdir: str = "LOGDIR"  # as its reader knows it
    advance: ask.Advance = lambda progress: None
    holds: list[ContentLine] = field(default_factory=list)
    left_out: list[ContentLine] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Raises UserError where there is no such run, worker or span."""
        self.pack = page.Pack()
        self.reader = ask.RouteReader(self.session, self.pack, self.code, self.advance)
        every = self.session.runs()
        self.ids = catalog.newest_span(every, self.logdir, self.run, self.worker, self.span)
        self.base = catalog.newest_span(every, self.logdir, self.compare) if self.compare else None
        kept = {self.ids[0], *([self.base[0]] if self.base else [])}
        self.runs = msgspec.structs.replace(every, runs=[run for run in every.runs if run.run in kept])
        self.run_ref = next(run for run in self.runs.runs if run.run == self.ids[0])

    @property
    def title(self) -> str:
        """The name of the run, or that of the logdir where the run is the logdir itself."""
        run = self.ids[0]
        return visible(os.path.basename(os.path.abspath(self.logdir))) if run == "." else run

    def blocks(self) -> Iterator[bytes]:
        """Yield the file. What cannot be read is in it as the error that the tab would show.

        Raises UserError before the first block where nothing of what was picked can be read.
        """
        self._look()
        yield page.head(f"torch.compile: {self.title}")
        yield from page.bundle()
        self.pack.add(ask.key_of("runs", {}), body_of(self.runs))
        self.reader.keep("sheets", {})
        yield from self._first()
        yield from self._compared()
        yield from self._others()
        self.pack.add("terms", body_of(terms()))
        self.pack.add("definitions", Body("text/plain", PANELS_PAGE.read_bytes()))
        self.pack.close()
        yield from self.pack.take()
        yield from page.tail(self.contents(), self.pack.locations)

    def step_trace(self, *, gzipped: bool) -> Iterator[bytes]:
        """Yield one step with the work that it launched as a trace; without steps everything. Raises UserError."""
        if not self.ids[2]:
            raise catalog.no_trace(self.logdir)
        timeline = self.session.profile(*self.ids).of(Timeline)
        stretches = wanted_stretches(timeline, self.step)
        part = stretches[0 if len(timeline.profile.of(StepWindows)) else -1]
        self.holds.append(ContentLine(part.name, "open it in https://ui.perfetto.dev, which uploads nothing"))
        unpack = zlib.decompressobj(wbits=31)
        for block in timeline_trim(timeline, (part.start, part.end)).blocks:
            yield block if gzipped else unpack.decompress(block)

    def _look(self) -> None:
        """Check that there is a trace or compile data, and the step that is asked for."""
        run, worker, span = self.ids
        try:
            self.session.compile_data(run, worker)
        except UserError:
            self.reader.ask("findings", _span_texts(run, worker, span))
        if self.step:
            wanted_stretches(self.session.profile(run, worker, span).of(Timeline), self.step)

    def _first(self) -> Iterator[bytes]:
        """Yield the answers about the selected span; the first ones shown are stored together."""
        run, _, span = self.ids
        yield from self._panels(*self.ids)
        answers = plural(len(self.pack.locations), "answer")
        self.holds.append(ContentLine("Panels", f"{answers}, {size(self.pack.bytes)}"))
        if span:
            yield from self._job(run, span)
            yield from self._timeline()

    def _panels(self, run: str, worker: str, span: str) -> Iterator[bytes]:
        """Yield what is shown of a span and its worker, then what rows of that lead to. span: "" for none."""
        of_worker, of_span = {"run": run, "worker": worker}, _span_texts(run, worker, span)
        subjects = (routes.SPAN, routes.SPAN_OR_WORKER) if span else (routes.SPAN_OR_WORKER,)
        yield from self._once(of_worker, routes.WORKER, routes.STARTS)
        yield from self._once({"run": run}, routes.RUN)
        yield from self._once(of_span, *subjects)
        self.pack.close()
        yield from self._details(routes.WORKER, of_worker)
        for subject in subjects:
            yield from self._details(subject, of_span)

    def _once(self, ids: ask.Texts, *subjects: object) -> Iterator[bytes]:
        """Yield the answers to the questions that need nothing but these ids."""
        for route in routes.ROUTES.values():
            is_plain = route.name not in ask.TIMELINE and all(
                parameter.optional for parameter in route.parameters
            )
            if route.subject in subjects and is_plain and self._wanted(route):
                self.reader.keep(route.name, ids)
                yield from self.pack.take()

    def _details(self, subject: object, ids: ask.Texts, spans: Sequence[str] = ()) -> Iterator[bytes]:
        """Yield the answers that rows lead to. spans: others of the same job."""
        for name, values in ask.VALUES.items():
            if routes.ROUTES[name].subject is subject and self._wanted(routes.ROUTES[name]):
                for texts in values(self.reader, ids):
                    if ask.key_of(name, texts) not in self.pack.locations:
                        self.reader.keep(name, texts)
                        self.reader.share(name, texts, spans)
                        yield from self.pack.take()

    def _wanted(self, route: routes.Route[Any]) -> bool:
        return route.name not in ask.LEFT_OUT and (self.code or route.name not in ask.NO_CODE)

    def _job(self, run: str, span: str) -> Iterator[bytes]:
        """Yield the ranks together. Asked of another rank of the job, it is the same question."""
        if self.run_ref.ranks < 2:
            return
        ids = {"run": run, "span": span}
        before = len(self.pack.locations)
        if (job := self.reader.keep("job", ids)) is None:
            return
        self.reader.share("job", ids, job.map.spans)
        for subject in (routes.JOB, routes.RANK):
            yield from self._details(subject, ids, job.map.spans)
        self.pack.close()
        yield from self.pack.take()
        answers = plural(len(self.pack.locations) - before, "answer")
        self.holds.append(ContentLine(f"The job of {plural(job.ranks, 'rank')}", answers))

    def _timeline(self) -> Iterator[bytes]:
        ids = _span_texts(*self.ids)
        try:
            timeline = self.session.profile(*self.ids).of(Timeline)
        except UserError as error:
            self.left_out.append(ContentLine("Timeline", str(error)))
            return
        part = TimelinePart(self.reader, ids, timeline, self.timeline_bytes)
        before = self.pack.bytes
        yield from part.keep(wanted_stretches(timeline, self.step), self._searched(ids))
        self.holds.append(ContentLine("Timeline", f"{part.sentence()}, {size(self.pack.bytes - before)}"))
        details = f"{plural(part.slices, 'slice')}; {plural(part.searched, 'searchable name')}"
        self.holds.append(ContentLine("Details on the timeline", details))

    def _searched(self, ids: ask.Texts) -> Iterator[str]:
        """Yield what links search the timeline for, most important first."""
        for name in ("kernels", "operators"):
            yield from (row.name[:100] for row in self.reader.ask(name, ids).rows[:100])
        for region in self.reader.ask("span", ids).compiled_regions:
            yield from (f"Region: {region.compile_id}", region.compile_id)
        yield from (row.name[:100] for row in self.reader.ask("operators", ids).rows[100:])

    def _compared(self) -> Iterator[bytes]:
        """Yield comparisons with the run that was named, and with spans of the same run, both ways."""
        listed = catalog.ids_of([self.run_ref])
        own = [ids for ids in listed if ids != self.ids and bool(ids[2]) == bool(self.ids[2])]
        others = [*([self.base] if self.base else []), *own[:_COMPARED]]
        are_jobs = min(run.ranks for run in self.runs.runs) > 1
        for a, b in ((a, b) for other in others for a, b in ((other, self.ids), (self.ids, other))):
            sides = {**_span_texts(*a), **{f"{name}2": text for name, text in _span_texts(*b).items()}}
            self.reader.keep("compare", sides)
            of_two_jobs = a[0] != b[0] or a[1] == b[1]  # of two ranks of one job there is one job
            if are_jobs and of_two_jobs and a[2] and b[2]:
                self.reader.keep("compare_jobs", sides)
            yield from self.pack.take()
        if others:
            names = ", ".join(f"{run} {worker}" for run, worker, _ in others)
            self.holds.append(ContentLine("Comparisons", f"of this span with {names}"))
        if not self.base:
            self.left_out.append(ContentLine("Comparisons with other runs", "add one with --compare RUN"))

    def _others(self) -> Iterator[bytes]:
        """Yield panels of the other spans and workers, as far as there is room."""
        budget, kept, missing = self.pack.bytes + self.panels_bytes, 0, 0
        for ids in catalog.ids_of(self.runs.runs):
            if ids == self.ids:
                continue
            if self.pack.bytes > budget:
                missing += 1
                continue
            kept += 1
            yield from self._panels(*ids)
        if kept:
            self.holds.append(ContentLine("Panels of other spans", f"of {kept}, without their timelines"))
        if missing:
            why = f"{plural(missing, 'span')}, because the others take {size(self.panels_bytes)}"
            self.left_out.append(ContentLine("Panels of other spans", why))

    def contents(self) -> FileContents:
        """Return what the file shows of itself; complete once its blocks have been written."""
        never = dict.fromkeys(
            what.removesuffix(" not included in this file") for what in ask.LEFT_OUT.values()
        )
        needs = "only in TensorBoard, which has the logdir"
        left = [*self.left_out, *(ContentLine(what.rpartition(" ")[0], needs) for what in never)]
        if not self.code:
            left.insert(0, ContentLine("Code and graphs", "--no-code"))
        return FileContents(
            title=self.title,
            made=f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
            version=__version__,
            place=_span_texts(*self.ids) | ({"run2": self.base[0]} if self.base else {}),
            holds=self.holds,
            left_out=left,
            parameters={name: ask.names_of(route) for name, route in routes.ROUTES.items()},
            reasons={**ask.LEFT_OUT, **ask.INCOMPLETE, **({} if self.code else ask.NO_CODE)},
            instead=f"To see these, open the logdir in TensorBoard: tensorboard --logdir {visible(self.logdir)}",
        )


def _span_texts(run: str, worker: str, span: str) -> ask.Texts:
    return {"run": run, "worker": worker, "span": span}
