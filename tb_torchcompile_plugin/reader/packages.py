"""Packages of AOTInductor are compiled by one process and run by another: the compile data of both as one.

The process that runs them knows no code. Kernels, graphs and texts come from the processes of the run that only
compiled; their times stay there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tb_torchcompile_plugin.compile_log.summary_pb2 import Compilation, CompileSummary
from tb_torchcompile_plugin.logdir.discovery import WorkerFiles
from tb_torchcompile_plugin.reader.compile_data import CompileData, DataRead, Packages
from tb_torchcompile_plugin.reader.memo import Memo
from tb_torchcompile_plugin.torch_names.caches import is_package

_OF_CODE = ("graphs", "compiled_kernels")


def makers(worker: WorkerFiles, workers: Sequence[WorkerFiles]) -> list[WorkerFiles]:
    """Those that may have compiled what `worker` runs: of its rank or of none, and without a trace."""
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
    """The compile data of `worker`, with that of packages that another of `workers` compiled. read: one's own."""
    own, notices = read(worker)
    known = [data for one in makers(worker, workers) if (data := read(one)[0]) is not None]
    if not known:
        return own, notices
    key = "packages", *(span.file.path for span in worker.spans)
    return memo.get(key, lambda: with_packages(own, known), (own, *known)), notices


def with_packages(own: CompileData | None, others: Sequence[CompileData]) -> CompileData | None:
    """`own` with the packages that the newest of the others compiled; `own` itself where it compiled packages, or none
    of them did."""
    made = [data for data in others if _compiled(data.summary)]
    if not made or (own is not None and _compiled(own.summary)):
        return own
    maker = max(made, key=lambda data: max(row.start_ns for row in _compiled(data.summary)))
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
    """Adds what is of packages; the numbers of the artifacts that were added."""
    for row in _compiled(maker):
        added = summary.compilations.add()
        added.CopyFrom(row)
        added.elsewhere = True
        for field in ("start_ns", "duration_ns"):
            added.ClearField(field)
        del added.phases[:]
    for name in _OF_CODE:
        getattr(summary, name).extend(row for row in getattr(maker, name) if is_package(row.key.compile_id))
    numbers = [place for place, row in enumerate(maker.artifacts) if is_package(row.key.compile_id)]
    summary.artifacts.extend(maker.artifacts[number] for number in numbers)
    return numbers
