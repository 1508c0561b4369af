"""The compile data of one worker: its newest readable summary, its TORCH_TRACE log, or both as one.

What a summary holds that cannot be is taken out, and counted with the records that could not be read: sums of times fit
into 64 bits, and phases sum to their compilation, as other modules expect.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any, Literal, TypeAlias

import msgspec

from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.compile_log.summary import DAMAGED, load, payload_text
from tb_torchcompile_plugin.errors import NotFound, Notice, UserError, visible
from tb_torchcompile_plugin.logdir.discovery import File, Part, WorkerFiles
from tb_torchcompile_plugin.reader.cache import copies
from tb_torchcompile_plugin.reader.memo import Memo, Memoized
from tb_torchcompile_plugin.reader.merge import merge
from tb_torchcompile_plugin.reader.torch_trace.log_text import read_log_text
from tb_torchcompile_plugin.reader.torch_trace.structured_log import payload_at, read_log
from tb_torchcompile_plugin.torch_names.artifacts import GRAPH_BREAK, RECOMPILE, artifact_kind
from tb_torchcompile_plugin.torch_names.caches import is_package

_check_json = msgspec.json.Decoder(msgspec.Raw).decode
_TIMES_END_NS = 1 << 62  # in the year 2116
_DURATIONS_END_NS = 1 << 53  # 104 days
_MAX_SAMPLES = 1 << 24  # nine hours of one thread


def without_impossible(summary: pb.CompileSummary) -> pb.CompileSummary:
    """Fix a summary in place, and return it."""
    causes: Counter[str] = Counter()
    _fix_ids(summary)
    for compilation in summary.compilations:
        _fix_compilation(compilation, causes)
    for row in (*summary.compilations, *summary.runtime_metrics):
        for name in [name for name, text in row.metrics.items() if not _is_json(text)]:
            del row.metrics[name]
            causes["metrics that are not JSON"] += 1
    _fix_timed(summary, "spans", causes)
    for graph in summary.graphs:
        for kernel in graph.kernels:
            _clear(kernel, causes, compile_ns=_DURATIONS_END_NS)
    moments = ("recording_start_ns", "written_ns", "process_start_ns", "imported_ns")
    _clear(summary.environment, causes, **dict.fromkeys(moments, _TIMES_END_NS))
    _fix_timed(summary, "cache_transfers", causes)
    _fix_timed(summary, "compiler_calls", causes)
    _fix_steps(summary, causes)
    if summary.HasField("python_samples") and not _are_possible(summary.python_samples):
        summary.ClearField("python_samples")
        causes["PythonSamples: no columns of samples"] += 1
    for cause, count in causes.items():
        summary.records.unreadable[cause] += count
    return summary


def _fix_ids(summary: pb.CompileSummary) -> None:
    """Write compile ids as they are shown, so that what is shown can be asked for."""
    for descriptor, rows in summary.ListFields():
        if descriptor.message_type and "key" in descriptor.message_type.fields_by_name:
            for row in rows:
                if not row.key.compile_id.isprintable():
                    row.key.compile_id = visible(row.key.compile_id)


def _fix_compilation(row: pb.Compilation, causes: Counter[str]) -> None:
    _clear(row, causes, start_ns=_TIMES_END_NS, duration_ns=_DURATIONS_END_NS)
    for lookup in row.cache:
        _clear(lookup, causes, time_saved_ns=_DURATIONS_END_NS, time_taken_ns=_DURATIONS_END_NS)
    if row.phases and sum(phase.exclusive_ns for phase in row.phases) != row.duration_ns:
        del row.phases[:]
        causes["phases that do not sum to their compilation"] += 1


def _is_json(text: str) -> bool:
    try:
        _check_json(text)
    except (msgspec.DecodeError, RecursionError):
        return text in ("NaN", "Infinity", "-Infinity")
    return True


def _fix_timed(summary: pb.CompileSummary, field: str, causes: Counter[str]) -> None:
    """Remove rows whose time cannot be: they mean nothing without it."""
    rows = getattr(summary, field)
    if impossible := [row for row in rows if not _is_possible(row)]:
        kept = [row for row in rows if _is_possible(row)]
        del rows[:]
        rows.extend(kept)
        causes[f"{type(impossible[0]).__name__}: no time"] += len(impossible)


def _is_possible(span: pb.PhaseSpan | pb.CacheTransfer | pb.CompilerCall) -> bool:
    return 0 <= span.start_ns < _TIMES_END_NS and 0 <= span.duration_ns < _DURATIONS_END_NS


def _fix_steps(summary: pb.CompileSummary, causes: Counter[str]) -> None:
    steps = summary.steps
    moments = [ns for row in steps.first for ns in (row.start_ns, row.end_ns)]
    if not all(0 < ns < _DURATIONS_END_NS for ns in (*steps.unrecorded_ns, *steps.recorded_ns)) or not all(
        0 <= ns < _TIMES_END_NS for ns in moments
    ):
        summary.ClearField("steps")
        causes["StepTimes: no time"] += 1


def _are_possible(samples: pb.PythonSamples) -> bool:
    """Whether the columns are parallel, their times are possible, and they point at what is there."""
    columns = (samples.start_ns, samples.duration_ns, samples.samples, samples.thread, samples.line)
    return (
        len({len(column) for column in columns}) == 1
        and all(0 <= ns < _TIMES_END_NS for ns in accumulate(samples.start_ns))
        and max(samples.duration_ns, default=0) < _DURATIONS_END_NS
        and min(samples.samples, default=1) > 0
        and sum(samples.samples) < _MAX_SAMPLES
        and max(samples.thread, default=-1) < len(samples.threads)
        and max(samples.line, default=-1) < len(samples.lines)
        and all(line.caller <= number for number, line in enumerate(samples.lines))
    )


def _clear(row: Any, causes: Counter[str], **ends: int) -> None:
    """Clear fields that hold no time. Protobuf knows no base class with `ClearField`."""
    for name, end in ends.items():
        if not 0 <= getattr(row, name) < end:
            row.ClearField(name)
            causes[f"{type(row).__name__}.{name}: no time"] += 1


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

    summary: pb.CompileSummary  # what is known, merged
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


def _newest_summary(files: list[File], notices: list[Notice]) -> tuple[pb.CompileSummary | None, str]:
    for file in files:
        try:
            with copies.local(file) as path:
                return without_impossible(load(path)), file.path
        except UserError as error:
            notices.append(error.notice)
    return None, ""


def _log(file: File | None, notices: list[Notice]) -> pb.CompileSummary | None:
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


def _read_text(file: File, part: Part) -> pb.CompileSummary:
    """Return what the process of this part of a text compiled. Raises UserError."""
    found = _texts(replace(file, part=None, tag=""))
    if part not in found:
        raise UserError("has changed since it was listed", file=file.path, next_step="Reload")
    return found[part]


@lru_cache(2)  # a text of many ranks is read once
def _texts(file: File) -> dict[Part, pb.CompileSummary]:
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
    summary = pb.CompileSummary()
    if own is not None:
        summary.CopyFrom(own.summary)
    first = len(summary.artifacts)
    numbers = _add(summary, maker.summary)
    base = own if own is not None else CompileData(summary, maker.source, maker.file)
    return replace(base, summary=summary, packages=Packages(maker, first, tuple(numbers)))


def _compiled(summary: pb.CompileSummary) -> list[pb.Compilation]:
    return [row for row in summary.compilations if is_package(row.key.compile_id)]


def _add(summary: pb.CompileSummary, maker: pb.CompileSummary) -> list[int]:
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
        if data.summary.environment.capture == "summary":
            raise NotFound(
                'graphs and code were not stored: the run was recorded with capture="summary"', next_step=_HOW
            )
        raise NotFound(
            f"there is no artifact {number}", file=data.file, next_step="Reload: the file may have changed"
        )
    if (packages := data.packages) is not None and number >= packages.first:
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
