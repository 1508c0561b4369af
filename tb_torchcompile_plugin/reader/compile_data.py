"""The compile data of one worker: its newest readable summary, its TORCH_TRACE log, or both as one.

A summary wins over a log of the same process; what only the log has is added, nothing counts twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from tb_torchcompile_plugin.errors import Notice, UserError
from tb_torchcompile_plugin.logdir import File, Worker
from tb_torchcompile_plugin.reader import copies
from tb_torchcompile_plugin.reader.structured_log import read_log
from tb_torchcompile_plugin.summary import load
from tb_torchcompile_plugin.summary_pb2 import CompileKey, CompileSummary


@dataclass(frozen=True)
class CompileData:
    """summary: what is known, merged. file: where it comes from first. notices: what could not be read.

    log: the log that holds the texts of artifacts with a `log_offset`; None without one.
    """

    summary: CompileSummary
    source: Literal["summary", "torch_trace"]
    file: str
    notices: list[Notice] = field(default_factory=list)
    log: File | None = None


def read_compile_data(worker: Worker) -> tuple[CompileData | None, list[Notice]]:
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


def merge(summary: CompileSummary, log: CompileSummary) -> CompileSummary:
    """The summary with what only the log has. What was recorded beats what was recovered after the fact."""
    merged = CompileSummary()
    merged.CopyFrom(summary)
    for name in ("compilations", "graph_breaks", "recompiles", "graphs", "spans"):
        recorded = [row for row in getattr(summary, name) if not getattr(row, "recovered", False)]
        recovered = [row for row in getattr(summary, name) if getattr(row, "recovered", False)]
        have = _keys(recorded)
        added = [row for row in getattr(log, name) if _key(row.key) not in have]
        have |= _keys(added)
        kept = [
            row for row in recovered if _key(row.key) not in have and not (added and not row.key.compile_id)
        ]
        del getattr(merged, name)[:]
        getattr(merged, name).extend([*recorded, *added, *kept])
    _merge_texts(merged, summary, log)
    return merged


def _merge_texts(merged: CompileSummary, summary: CompileSummary, log: CompileSummary) -> None:
    """What belongs to compilations without being a row of them. Of one that the log recorded and the summary only
    recovered, that of the log."""
    recovered = _keys(row for row in (*summary.compilations, *summary.graphs) if row.recovered)
    given_up = recovered & _keys(log.compilations)
    for name in ("artifacts", "shape_events", "runtime_metrics"):
        kept = [row for row in getattr(summary, name) if _key(row.key) not in given_up]
        have = _keys(kept)
        added = [row for row in getattr(log, name) if _key(row.key) not in have]
        del getattr(merged, name)[:]
        getattr(merged, name).extend([*kept, *added])


def _keys(rows: Iterable[object]) -> set[tuple[int, str]]:
    return {_key(row.key) for row in rows}  # type: ignore[attr-defined]  # every repeated message here has a key


def _key(key: CompileKey) -> tuple[int, str]:
    return key.epoch, key.compile_id


def _newest_summary(files: list[File], notices: list[Notice]) -> tuple[CompileSummary | None, str]:
    for file in files:
        try:
            with copies.local(file) as path:
                return load(path), file.path
        except UserError as error:
            notices.append(error.notice)
    return None, ""


def _log(file: File | None, notices: list[Notice]) -> CompileSummary | None:
    if file is None:
        return None
    try:
        with copies.local(file) as path:
            log = read_log(path)
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
    told = ", ".join(f"{cause}: {count}" for cause, count in sorted(causes.items()))
    return [
        Notice(
            file.path,
            f"{sum(causes.values())} records could not be read ({told})",
            f"{sum(log.records.by_kind.values())} records were read and are shown",
            "If the file was copied, copy it again; else record the run again",
        )
    ]
