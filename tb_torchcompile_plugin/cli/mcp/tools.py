"""The tools: what an agent can ask of a logdir. Each answers in JSON of at most `max_bytes`, and writes nothing."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

import msgspec

from tb_torchcompile_plugin.api.answers.bounded import AFTER, Ask, fitted
from tb_torchcompile_plugin.api.answers.search import Logdir, search, source_lines
from tb_torchcompile_plugin.api.answers.sections import Address, schema
from tb_torchcompile_plugin.api.catalog import Ids, Runs, newest_span, only_run
from tb_torchcompile_plugin.api.report import Report, check
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.api.starts import comparison
from tb_torchcompile_plugin.cli.what_if import scenario_of
from tb_torchcompile_plugin.errors import NotFound, Notice, UserError
from tb_torchcompile_plugin.logdir.filesystem import is_remote, lies_in

# How an agent gets more: calls of the tools.


_ROOMY = 20_000  # bytes, for a row that had no room


class ToolCalls:
    """As a tool is called. path: below the logdir, "" for all of it."""

    def __init__(self, path: str = "") -> None:
        self._path = path

    def show(self, id: str) -> str:
        return self._call("show", id=id)

    def rows(self, section: str, after: str) -> str:
        if after:
            return self._call("report", after=after)
        return self._call("report", section=section, max_bytes=_ROOMY)

    def tables(self, sections: Sequence[str]) -> str:
        return self._call("report", section=",".join(sections))

    def what_if(self, place: Address, fix: str) -> str:
        return self._call(
            "what_if", run=place.run, worker=place.worker, span=place.span, fixes=[fix] if fix else []
        )

    def compare(self, run: str, several: bool) -> str:
        return self._call("compare", a=run, b=AFTER)

    def _call(self, tool: str, **arguments: str | int | list[str]) -> str:
        given = {**arguments, "path": self._path}
        return f"{tool}({', '.join(f'{name}={value!r}' for name, value in given.items() if value)})"


# Paths below the logdir that the server was started with, and no others.


class OutsideError(UserError):
    """A path that leads out of the logdir: absolute, with `..`, through a link, or a URL."""


def below(root: str, path: str) -> str:
    """The path of a file or folder in the logdir; "" is all of it. Raises OutsideError, whatever is there."""
    whole = os.path.normpath(os.path.join(root, path))
    if is_remote(path) or os.path.isabs(path) or "\0" in path or not lies_in(whole, root):
        raise OutsideError(
            f"{path!r} does not lie in the logdir",
            next_step="Name a run, a file or a folder below it, as list() tells them",
        )
    return whole


MAX_BYTES = 4000  # about a thousand tokens
_LEAST, _MOST = 500, 100_000
_FIRST = ("findings", "step_breakdown.mean_parts")  # of a report where no section is named
_ROOT = "the logdir"
_KEPT = 4  # folders whose reports are kept


class RunListed(msgspec.Struct, frozen=True):
    """places: RUN/WORKER/SPAN of each trace, RUN/WORKER/- of a worker that has none."""

    run: str
    ranks: int
    places: list[str]


class Listed(msgspec.Struct, frozen=True):
    """What there is; sections: of a report, each with its tables."""

    runs: list[RunListed]
    sections: list[str]
    warnings: list[Notice]


class Tools:
    """root: a local folder or file; nothing beside it is read. Safe to call from many threads."""

    def __init__(self, root: str) -> None:
        check(root)
        self._root = root
        self._within = root if os.path.isdir(root) else os.path.dirname(os.path.abspath(root))
        self._lock = Lock()
        self._logdirs: OrderedDict[str, Logdir] = OrderedDict()

    def runs(self, path: str = "", max_bytes: int = MAX_BYTES) -> str:
        """What runs, workers and spans there are, and which sections a report has. Reads no trace."""
        runs = self._logdir(path).session.runs()
        sections = list(dict.fromkeys(name.partition(".")[0] for name in schema().sections))
        listed = Listed(_runs(runs), sections, runs.warnings)
        return fitted(listed, _bytes(max_bytes))

    def report(
        self,
        run: str = "",
        section: str = "",
        top: int = 0,
        after: str = "",
        path: str = "",
        max_bytes: int = MAX_BYTES,
    ) -> str:
        """Tables of a run, the newest where none is named: what to change first, and where a step goes. section:
        others, with commas between them. top: rows of each, 0 for as many as fit. after: the id of a row, for those
        behind it."""
        logdir = self._logdir(path)
        sections = [name for name in section.split(",") if name] or ([] if after else list(_FIRST))
        ask = Ask(sections, top or None, _bytes(max_bytes), after)
        answer = logdir.tables(
            ask, ToolCalls(path), run or newest_span(logdir.session.runs(), path or _ROOT)[0]
        )
        return msgspec.json.encode(answer).decode()

    def show(self, id: str, path: str = "", max_bytes: int = MAX_BYTES) -> str:
        """One row by its id: of a finding its evidence, prediction and how to verify it; of a kernel its launches and
        source; of a graph break its reason, stack and price. `next`: rows that tell more."""
        return fitted(self._logdir(path).show(id, ToolCalls(path)), _bytes(max_bytes))

    def compare(self, a: str, b: str, max_bytes: int = MAX_BYTES) -> str:
        """The newest spans of two runs of the logdir, or of two paths below it: which is faster, is it more than noise,
        and what accounts for it."""
        sides = [(one.session, ids) for one, ids in (self._side(a), self._side(b))]
        return fitted(comparison(*sides), _bytes(max_bytes))

    def what_if(
        self,
        fixes: list[str] | None = None,
        run: str = "",
        worker: str = "",
        span: str = "",
        path: str = "",
        max_bytes: int = MAX_BYTES,
    ) -> str:
        """How long a step would take with these fixes made; without any, which there are. Of the newest span, unless
        run, worker or span say which."""
        session = self._logdir(path).session
        _, answer = scenario_of(session, path or _ROOT, (run, worker, span), fixes or [])
        return fitted(answer, _bytes(max_bytes))

    def search(self, word: str, run: str = "", path: str = "", max_bytes: int = MAX_BYTES) -> str:
        """Rows of all tables of a run in which a word stands, the newest run where none is named: ids to `show`."""
        return fitted(search(self._of_run(run, path), word), _bytes(max_bytes))

    def source(self, place: str, run: str = "", path: str = "", max_bytes: int = MAX_BYTES) -> str:
        """Lines of the program as they were recorded: "train.py:12" with those around it, or "train.py". Each with what
        it takes of a step. Nothing is read from where the program lies."""
        return fitted(source_lines(self._of_run(run, path), place), _bytes(max_bytes))

    def _of_run(self, run: str, path: str) -> Report:
        logdir = self._logdir(path)
        return logdir.report(run or newest_span(logdir.session.runs(), path or _ROOT)[0])

    def _logdir(self, path: str) -> Logdir:
        """All of the logdir, or what lies at a path below it. Raises OutsideError."""
        whole = below(self._root, path)
        check(whole)
        with self._lock:
            kept = self._logdirs.pop(whole, None) or Logdir(Session([("", whole)], within=self._within))
            self._logdirs[whole] = kept
            if len(self._logdirs) > _KEPT:
                self._logdirs.popitem(last=False)[1].session.close()
        return kept

    def _side(self, name: str) -> tuple[Logdir, Ids]:
        """name: a run, else a path; "" for all of the logdir."""
        logdir = self._logdir("")
        runs = logdir.session.runs()
        if not name or any(one.run == name for one in runs.runs):
            return logdir, newest_span(only_run(runs, name), name or _ROOT)
        try:
            other = self._logdir(name)
        except OutsideError:
            raise
        except UserError as error:
            there = ", ".join(one.run for one in runs.runs) or "none"
            raise NotFound(
                f"there is no run {name!r} and no such path", next_step=f"There are runs: {there}"
            ) from error
        return other, newest_span(other.session.runs(), name)


def _runs(runs: Runs) -> list[RunListed]:
    return [
        RunListed(
            one.run,
            one.ranks,
            [
                str(Address(one.run, worker.worker, span))
                for worker in one.workers
                for span in [ref.span for ref in worker.spans] or [""]
            ],
        )
        for one in runs.runs
    ]


def _bytes(asked: int) -> int:
    return min(max(asked, _LEAST), _MOST)
