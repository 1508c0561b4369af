"""The compile data of one worker: its newest readable summary, its TORCH_TRACE log, or both as one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, TypeAlias

from tb_torchcompile_plugin.compile_log.summary import DAMAGED, load, payload_text
from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation, CompileSummary
from tb_torchcompile_plugin.errors import NotFound, Notice, UserError
from tb_torchcompile_plugin.logdir.discovery import File, Part, WorkerFiles
from tb_torchcompile_plugin.reader.cache import copies
from tb_torchcompile_plugin.reader.memo import Memo, Memoized
from tb_torchcompile_plugin.reader.merge import merge
from tb_torchcompile_plugin.reader.summary_check import without_impossible
from tb_torchcompile_plugin.reader.torch_trace.log_records import payload_at
from tb_torchcompile_plugin.reader.torch_trace.log_text import read_log_text
from tb_torchcompile_plugin.reader.torch_trace.structured_log import read_log
from tb_torchcompile_plugin.torch_names.artifacts import GRAPH_BREAK, RECOMPILE, artifact_kind
from tb_torchcompile_plugin.torch_names.caches import is_package

# What a text of TORCH_LOGS may lack, and the kind of its records.
_MAY_LACK = {"graph breaks": artifact_kind(GRAPH_BREAK), "recompiles": artifact_kind(RECOMPILE)}


@dataclass(frozen=True)
class Packages:
    """The location of texts of packages that another process compiled."""

    data: "CompileData"
    first: int  # the first of them among the artifacts of the process that runs them
    numbers: tuple[int, ...]  # what they are in `data`


@dataclass(frozen=True, eq=False)
class CompileData(Memoized):
    """What one worker compiled, merged from its files."""

    summary: CompileSummary  # what is known, merged
    source: Literal["summary", "torch_trace", "torch_logs"]
    file: str  # its main file
    notices: list[Notice] = field(default_factory=list)  # what could not be read
    log: File | None = None  # holds the texts of artifacts with a `log_offset`
    packages: Packages | None = None  # those that another process compiled
    has_trace: bool = True  # of the same worker, or what is kept of one

    @property
    def is_lossy(self) -> bool:
        """Whether records could not be read, so that their contents are unknown."""
        return bool(self.summary.records.unreadable)

    def is_unknown(self, what: str) -> bool:
        """Whether there may be some that a text of TORCH_LOGS does not contain, because it has no lines about them."""
        return self.source == "torch_logs" and _MAY_LACK[what] not in self.summary.records.by_kind

    def none_of(self, what: str) -> str:
        """Return "No recompiles.", or that there are none in what could be read, or that they are unknown."""
        if self.source == "torch_logs":
            return f"{what.capitalize()} are unknown: no line is from TORCH_LOGS={what.replace(' ', '_')}."
        return f"No {what}{' in the records that could be read' if self.is_lossy else ''}."


DataRead: TypeAlias = tuple[CompileData | None, list[Notice]]


def read_compile_data(worker: WorkerFiles) -> DataRead:
    """Return the compile data of `worker`, None where none can be read, and why a file was passed over."""
    notices: list[Notice] = []
    newest, file = _newest_summary(worker.summaries, notices)
    log = _log(worker.log, notices)
    if newest is not None:
        merged = merge(newest, log) if log is not None else newest
        data = CompileData(merged, "summary", file, notices, worker.log)
    elif log is not None and worker.log is not None:
        text = worker.log.part
        data = CompileData(log, "torch_logs" if text else "torch_trace", worker.log.path, notices, worker.log)
    else:
        return None, notices
    return replace(data, has_trace=worker.has_trace), notices


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
        if file.part:
            log = _read_text(file, file.part)
        else:
            with copies.local(file) as path:
                log = without_impossible(read_log(path))
    except UserError as error:
        notices.append(error.notice)
        return None
    if causes := log.records.unreadable:
        lost = sum(causes.values())
        counts = ", ".join(f"{cause}: {count}" for cause, count in sorted(causes.items()))
        problem = f"{lost} record{'' if lost == 1 else 's'} could not be read ({counts})"
        kept = f"{sum(log.records.by_kind.values())} records were read and are shown"
        step = "If the file was copied, copy it again; otherwise record the run again"
        notices.append(Notice(file.path, problem, kept, step))
    return log


def _read_text(file: File, part: Part) -> CompileSummary:
    """Return what the process of this part of a text compiled. Raises UserError."""
    found = _texts(replace(file, part=None, tag=""))
    if part not in found:
        raise UserError("has changed since it was listed", file=file.path, next_step="Reload")
    return found[part]


@lru_cache(2)  # a text of many ranks is read once
def _texts(file: File) -> dict[Part, CompileSummary]:
    with copies.local(file) as path:
        found = read_log_text(path)
    return {part: without_impossible(log) for part, log in found.items()}


def makers(worker: WorkerFiles, workers: Sequence[WorkerFiles]) -> list[WorkerFiles]:
    """Return the workers that may have compiled what `worker` runs: of its rank or of none, and without a trace."""
    if not worker.spans:
        return []
    return [
        other
        for other in workers
        if other is not worker
        and not other.spans
        and other.compile_files
        and other.rank in (None, worker.rank)
    ]


def with_makers(
    worker: WorkerFiles, workers: Sequence[WorkerFiles], read: Callable[[WorkerFiles], DataRead], memo: Memo
) -> DataRead:
    """Return the compile data of `worker`, with that of packages that another of `workers` compiled."""
    own, notices = read(worker)
    others = [data for maker in makers(worker, workers) if (data := read(maker)[0]) is not None]
    if not others:
        return own, notices
    key = "packages", *(span.file.path for span in worker.spans)
    return memo.get(key, lambda: with_packages(own, others), (own, *others)), notices


def with_packages(own: CompileData | None, others: Sequence[CompileData]) -> CompileData | None:
    """Add the packages of AOTInductor that the newest of the other processes compiled, unless `own` compiled some.

    The process that runs them knows no code. Kernels, graphs and texts come from the one that compiled; its times
    stay there.
    """
    makers = [data for data in others if _compiled(data.summary)]
    if not makers or (own is not None and _compiled(own.summary)):
        return own
    maker = max(makers, key=lambda data: max(row.start_ns for row in _compiled(data.summary)))
    summary = CompileSummary()
    if own is not None:
        summary.CopyFrom(own.summary)
    first = len(summary.artifacts)
    numbers = _add(summary, maker.summary)
    base = own if own is not None else CompileData(summary, maker.source, maker.file)
    return replace(base, summary=summary, packages=Packages(maker, first, tuple(numbers)))


def _compiled(summary: CompileSummary) -> list[Compilation]:
    return [row for row in summary.compilations if is_package(row.key.compile_id)]


def _add(summary: CompileSummary, maker: CompileSummary) -> list[int]:
    """Add what is about packages; return the numbers of the artifacts that were added."""
    for row in _compiled(maker):
        added = summary.compilations.add()
        added.CopyFrom(row)
        added.elsewhere = True
        for time in ("start_ns", "duration_ns"):
            added.ClearField(time)
        del added.phases[:]
    summary.graphs.extend(row for row in maker.graphs if is_package(row.key.compile_id))
    numbers = [index for index, row in enumerate(maker.artifacts) if is_package(row.key.compile_id)]
    summary.artifacts.extend(maker.artifacts[number] for number in numbers)
    return numbers


_HOW = 'Record with tensorboard_trace_handler(..., capture="full"), which is the default'


def read_payload(data: CompileData, number: int) -> str:
    """Return the text of one artifact (`number`). Raises NotFound, which says why there is none, and UserError."""
    artifacts = data.summary.artifacts
    if not 0 <= number < len(artifacts):
        raise _nothing(data, number)
    packages = data.packages
    if packages is not None and number >= packages.first:
        return read_payload(packages.data, packages.numbers[number - packages.first])
    artifact = artifacts[number]
    if artifact.HasField("log_offset") and data.log is not None:
        with copies.local(data.log) as path:
            return payload_at(path, artifact.log_offset, artifact.log_bytes, artifact.name)
    if artifact.payload >= len(data.summary.payloads):
        raise UserError("refers to a text that is missing", file=data.file, next_step="Record it again")
    try:
        return payload_text(data.summary, artifact.payload)
    except DAMAGED as error:
        raise UserError("contains a damaged text", file=data.file, next_step="Record it again") from error


def _nothing(data: CompileData, number: int) -> NotFound:
    if data.summary.environment.capture == "summary":
        return NotFound(
            'graphs and code were not stored: the run was recorded with capture="summary"', next_step=_HOW
        )
    return NotFound(
        f"there is no artifact {number}", file=data.file, next_step="Reload: the file may have changed"
    )
