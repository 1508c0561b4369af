"""The compile data of one worker: its newest readable summary, its TORCH_TRACE log, or both as one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tb_torchcompile_plugin.compile_log.summary import load
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.errors import Notice, UserError
from tb_torchcompile_plugin.logdir.discovery import File, WorkerFiles
from tb_torchcompile_plugin.reader.cache import copies
from tb_torchcompile_plugin.reader.memo import Memoized
from tb_torchcompile_plugin.reader.merge import merge
from tb_torchcompile_plugin.reader.summary_check import without_impossible
from tb_torchcompile_plugin.reader.torch_trace.structured_log import read_log


@dataclass(frozen=True)
class Packages:
    """Where the texts of packages lie that another process compiled. first: the first of them among the artifacts of
    the process that runs them; numbers: what they are there."""

    data: CompileData
    first: int
    numbers: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class CompileData(Memoized):
    """summary: what is known, merged. file: where it comes from first. notices: what could not be read.

    log: the log that holds the texts of artifacts with a `log_offset`; None without one.
    packages: see reader/packages.py.
    """

    summary: CompileSummary
    source: Literal["summary", "torch_trace"]
    file: str
    notices: list[Notice] = field(default_factory=list)
    log: File | None = None
    packages: Packages | None = None


DataRead: TypeAlias = tuple[CompileData | None, list[Notice]]


def read_compile_data(worker: WorkerFiles) -> DataRead:
    """The compile data of `worker`, None where it has none that can be read; and why a file was passed over."""
    notices: list[Notice] = []
    newest, file = _newest_summary(worker.summaries, notices)
    log = _log(worker.log, notices)
    if newest is not None:
        merged = merge(newest, log) if log is not None else newest
        return CompileData(merged, "summary", file, notices, worker.log), notices
    if log is not None and worker.log is not None:
        return CompileData(log, "torch_trace", worker.log.path, notices, worker.log), notices
    return None, notices


def _newest_summary(files: list[File], notices: list[Notice]) -> tuple[CompileSummary | None, str]:
    for file in files:
        try:
            with copies.local(file) as path:
                return without_impossible(load(path)), file.path
        except UserError as error:
            notices.append(error.notice)
    return None, ""


def _log(file: File | None, notices: list[Notice]) -> CompileSummary | None:
    if file is None:
        return None
    try:
        with copies.local(file) as path:
            log = without_impossible(read_log(path))
    except UserError as error:
        notices.append(error.notice)
        return None
    notices += _unreadable(file, log)
    return log


def _unreadable(file: File, log: CompileSummary) -> list[Notice]:
    """One warning for all records of a log that could not be read."""
    causes = log.records.unreadable
    if not causes:
        return []
    lost = sum(causes.values())
    counts = ", ".join(f"{cause}: {count}" for cause, count in sorted(causes.items()))
    return [
        Notice(
            file.path,
            f"{lost} record{'' if lost == 1 else 's'} could not be read ({counts})",
            f"{sum(log.records.by_kind.values())} records were read and are shown",
            "If the file was copied, copy it again; else record the run again",
        )
    ]
