"""A logdir that is asked one question after the other: what was read is kept until a file changes."""

from __future__ import annotations

import threading
from typing import NamedTuple

from tb_torchcompile_plugin.api.answers.address import address
from tb_torchcompile_plugin.api.answers.asking import Asking
from tb_torchcompile_plugin.api.answers.bounded import Ask, Bounded, bounded
from tb_torchcompile_plugin.api.answers.first_answer import first_answer
from tb_torchcompile_plugin.api.answers.show import Shown, shown
from tb_torchcompile_plugin.api.answers.tables import tables
from tb_torchcompile_plugin.api.catalog import Listing
from tb_torchcompile_plugin.api.report import Report, Wanted, whole_report
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.logdir.discovery import File
from tb_torchcompile_plugin.reader.trace.kineto import Advance


class _Kept(NamedTuple):
    wanted: Wanted
    files: tuple[File, ...]
    report: Report


class Logdir:
    """Safe to call from many threads: one reads, the others wait for it."""

    def __init__(self, session: Session, progress: Advance | None = None) -> None:
        self.session = session
        self._progress = progress
        self._lock = threading.Lock()
        self._kept: _Kept | None = None

    def report(self, run: str = "") -> Report:
        """Of this run, "" for all. Raises NoSuchRun."""
        with self._lock:
            look = self.session.look()
            only = [one.run for one, _ in look.runs] == [run]  # which is the same as all of them
            wanted, files = Wanted("" if only else run), _files(look, run)
            if self._kept is None or (self._kept.wanted, self._kept.files) != (wanted, files):
                self._kept = _Kept(wanted, files, whole_report(self.session, self._progress, wanted))
            return self._kept.report

    def tables(self, ask: Ask, asking: Asking, run: str = "") -> Bounded:
        """What is asked for of a run, or of all. Raises WrongArgument."""
        report = self.report(address(ask.after).run if ask.after else run)
        return bounded(tables(report), ask, first_answer(report).headline, asking)

    def show(self, id: str, asking: Asking) -> Shown:
        """The row of an id. Raises WrongArgument."""
        return shown(self.session, self.report(address(id).run), id, asking)


def _files(look: Listing, run: str) -> tuple[File, ...]:
    """All that a report is made of."""
    workers = [worker for one, workers in look.runs if run in ("", one.run) for worker in workers]
    return tuple(
        file
        for worker in workers
        for file in (*(span.file for span in worker.spans), *worker.compile_files, *worker.digests.values())
    )
