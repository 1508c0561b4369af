"""The objects that leave: what `report --json` prints and the HTTP routes answer, one schema for both.

Rows come from the analyses; here they are only put together. Unknown is null, never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from tb_torchcompile_plugin.analysis import compile_time as ct
from tb_torchcompile_plugin.analysis.autotune import Autotune, autotune
from tb_torchcompile_plugin.analysis.break_chain import BreakChain, break_chain
from tb_torchcompile_plugin.analysis.call_overhead import CallOverhead, call_overhead
from tb_torchcompile_plugin.analysis.collectives import Collective, collectives
from tb_torchcompile_plugin.analysis.compilations import Problem, problems
from tb_torchcompile_plugin.analysis.compiled_regions import CompiledRegion, compiled_regions
from tb_torchcompile_plugin.analysis.eager import EagerTime, eager_time
from tb_torchcompile_plugin.analysis.frame_times import FrameTime, frame_times
from tb_torchcompile_plugin.analysis.generated_kernels import GeneratedKernels, generated_kernels
from tb_torchcompile_plugin.analysis.gpu_utilization import Gpu, gpu_utilization
from tb_torchcompile_plugin.analysis.graph_break_costs import GraphBreakCost
from tb_torchcompile_plugin.analysis.graph_break_sites import GraphBreakSite, graph_break_sites
from tb_torchcompile_plugin.analysis.graph_breaks import GraphBreak, graph_breaks
from tb_torchcompile_plugin.analysis.kernel_details import KernelRow, kernel_table
from tb_torchcompile_plugin.analysis.kernels import (
    Kernel,
    KernelCategory,
    kernel_categories,
    kernels,
)
from tb_torchcompile_plugin.analysis.operators import Operator, operators
from tb_torchcompile_plugin.analysis.profile import Profile
from tb_torchcompile_plugin.analysis.rank_differences import RankDifferences
from tb_torchcompile_plugin.analysis.recompile_moments import (
    GuardScan,
    RecompileMoment,
    guard_scans,
    recompile_moments,
)
from tb_torchcompile_plugin.analysis.recompiles import (
    Recompile,
    RecompiledFrame,
    recompiled_frames,
    recompiles,
)
from tb_torchcompile_plugin.analysis.regions import marks_overhead
from tb_torchcompile_plugin.analysis.steps import Step
from tb_torchcompile_plugin.analysis.units import us
from tb_torchcompile_plugin.errors import Notice
from tb_torchcompile_plugin.findings_report import RunFinding
from tb_torchcompile_plugin.gpu_report import GpuUtilization, gpu_report
from tb_torchcompile_plugin.logdir import Span as SpanFile
from tb_torchcompile_plugin.logdir import Worker as WorkerFiles
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.kineto import Trace
from tb_torchcompile_plugin.step_report import StepReport, step_report
from tb_torchcompile_plugin.summary_pb2 import CompileSummary

SCHEMA_VERSION = 1
# What torch.profiler calls its kinds of slices, and what it called them before 1.12.
_TORCH_CATS = frozenset(
    [
        "cpu_op",
        "user_annotation",
        "gpu_user_annotation",
        "python_function",
        "kernel",
        "gpu_memcpy",
        "gpu_memset",
        "cuda_runtime",
        "cuda_driver",
        "hip_runtime",
        "hip_driver",
        "xpu_runtime",
        "mtia_runtime",
        "overhead",
        "Operator",
        "Runtime",
        "Kernel",
        "Memcpy",
        "Memset",
    ]
)


class SpanRef(msgspec.Struct, frozen=True):
    span: str
    trace_file: str
    size_bytes: int
    modified_s: float


class WorkerRef(msgspec.Struct, frozen=True):
    worker: str
    rank: int | None
    has_compile: bool
    spans: list[SpanRef]


class RunRef(msgspec.Struct, frozen=True):
    run: str
    workers: list[WorkerRef]


class Runs(msgspec.Struct, frozen=True):
    """What a logdir holds."""

    plugin_version: str | None
    runs: list[RunRef]
    warnings: list[Notice]
    schema_version: int = SCHEMA_VERSION


class Environment(msgspec.Struct, frozen=True):
    """Versions and settings of the training process."""

    torch_version: str | None
    python_version: str | None
    plugin_version: str | None
    cuda_version: str | None
    hip_version: str | None
    triton_version: str | None
    device_names: list[str]
    hostname: str | None
    pid: int | None
    rank: int | None
    world_size: int | None
    capture: str | None
    backends: list[str]
    variables: dict[str, str]


class Records(msgspec.Struct, frozen=True):
    """How many records of each kind were read, not known, or not readable."""

    by_kind: dict[str, int]
    unknown: dict[str, int]
    unreadable: dict[str, int]


class Compile(msgspec.Struct, frozen=True):
    """The compile side of one worker."""

    source: Literal["summary", "torch_trace"]
    file: str
    total_s: float | None
    unreadable_records: int
    environment: Environment
    compilations: list[ct.Compilation]
    problems: list[Problem]
    graph_breaks: list[GraphBreak]
    recompiles: list[Recompile]
    recompiled_frames: list[RecompiledFrame]
    generated_kernels: list[GeneratedKernels]
    autotune: list[Autotune]
    compile_times: dict[str, list[float]]
    compile_times_complete: bool
    counters: dict[str, dict[str, int]]
    records: Records
    warnings: list[Notice]


class Hints(msgspec.Struct, frozen=True):
    """Data that the user could have had. `cpu_kernels_hidden`: compiled code ran on the CPU, its kernels unnamed."""

    cpu_kernels_hidden: bool


class Span(msgspec.Struct, frozen=True):
    """The run side of one span. `graph_break_costs` and `frame_times` are null where neither a compile log nor Python
    stacks tell which regions are resume functions; `recompile_moments` and `guard_scans` without a compile log."""

    span: str
    trace_file: str
    size_bytes: int
    warnings: list[Notice]
    events: int
    wall_us: float
    profiled_us: float | None
    gpu: list[Gpu]
    steps: list[Step]
    kernel_categories: list[KernelCategory]
    kernels: Sequence[Kernel]
    compiled_regions: list[CompiledRegion]
    graph_break_costs: list[GraphBreakCost] | None
    graph_break_sites: list[GraphBreakSite]
    break_chain: BreakChain | None
    frame_times: list[FrameTime] | None
    call_overhead: CallOverhead | None
    recompile_moments: list[RecompileMoment] | None
    guard_scans: list[GuardScan] | None
    compile_overlap: ct.CompileOverlap | None
    hints: Hints


class SpanReport(Span, frozen=True):
    """A span as the command line reports it: also what only one panel asks for."""

    eager: EagerTime
    operators: list[Operator]
    kernels: Sequence[KernelRow]
    gpu_utilization: GpuUtilization
    step_breakdown: StepReport
    collectives: list[Collective]


class UnreadSpan(msgspec.Struct, frozen=True):
    """A span whose trace could not be read: `warnings` say why, and nothing else is known of it."""

    span: str
    trace_file: str
    size_bytes: int
    warnings: list[Notice]


class Worker(msgspec.Struct, frozen=True):
    worker: str
    rank: int | None
    spans: list[SpanReport | UnreadSpan]
    compile: Compile | None
    warnings: list[Notice]


class Run(msgspec.Struct, frozen=True):
    run: str
    workers: list[Worker]
    ranks: RankDifferences


class Report(msgspec.Struct, frozen=True):
    """`tb-torchcompile report --json`."""

    runs: list[Run]
    findings: list[RunFinding]
    warnings: list[Notice]
    schema_version: int = SCHEMA_VERSION


def run_ref(run: str, workers: list[WorkerFiles]) -> RunRef:
    return RunRef(run, [_worker_ref(worker) for worker in workers])


def _worker_ref(worker: WorkerFiles) -> WorkerRef:
    return WorkerRef(
        worker=worker.worker,
        rank=worker.rank,
        has_compile=bool(worker.summaries or worker.log),
        spans=[
            SpanRef(span.span, span.file.name, span.file.size, span.file.mtime_ns / 1e9)
            for span in worker.spans
        ],
    )


def span_report(span: SpanFile, profile: Profile) -> Span:
    """The analyses of one trace that most panels look at, joined to the compile data of its worker."""
    trace, calls, known, summary = profile.trace, profile.calls, profile.resumes, profile.summary
    rows = profile.launches
    regions = compiled_regions(trace, calls, rows, profile.ownership)
    costs = profile.graph_break_costs
    first, last = trace.window()
    return Span(
        span=span.span,
        trace_file=span.file.name,
        size_bytes=span.file.size,
        warnings=[*trace.notices, *_foreign(trace)],
        events=trace.events,
        wall_us=us(last - first),
        profiled_us=us(trace.dur[profile.step_slices].sum()) if profile.steps else None,
        gpu=gpu_utilization(trace, profile.work),
        steps=profile.steps,
        kernel_categories=kernel_categories(trace, rows),
        kernels=kernels(trace, rows, profile.ownership),
        compiled_regions=regions,
        graph_break_costs=costs,
        graph_break_sites=graph_break_sites(costs or [], profile.steps, summary),
        break_chain=break_chain(trace, calls, known) if known else None,
        frame_times=frame_times(calls, overhead_marked=marks_overhead(trace)) if known else None,
        call_overhead=call_overhead(trace, calls, profile.ownership),
        recompile_moments=recompile_moments(trace, profile.ownership, summary) if summary else None,
        guard_scans=guard_scans(trace, calls, summary) if summary else None,
        compile_overlap=ct.compile_overlap(trace, summary) if summary else None,
        hints=Hints(cpu_kernels_hidden=bool(regions) and not rows and not _may_have_a_gpu(trace)),
    )


def eager(_: SpanFile, profile: Profile) -> EagerTime:
    """What ran eager in one span."""
    return eager_time(profile.trace, profile.work, profile.eager)


def full_span_report(span: SpanFile, profile: Profile) -> SpanReport:
    """Everything that is known of one span."""
    told = msgspec.structs.asdict(span_report(span, profile))
    told["kernels"] = kernel_table(profile).rows
    return SpanReport(
        **told,
        eager=eager(span, profile),
        operators=operators(profile).rows,
        gpu_utilization=gpu_report(span, profile),
        step_breakdown=step_report(span, profile),
        collectives=collectives(profile).rows,
    )


def _foreign(trace: Trace) -> list[Notice]:
    """Many tools write this format. What none of torch's kinds of slices is in, is from another one."""
    if not len(trace) or _TORCH_CATS.intersection(trace.cats):
        return []
    return [
        Notice(
            trace.path,
            "this is no trace of the PyTorch profiler: it has no event of a kind that torch writes",
            f"{trace.events} events were counted; nothing here can be said about them",
            "Record it with torch.profiler, or look at it in the tool that it is from",
        )
    ]


def _may_have_a_gpu(trace: Trace) -> bool:
    """GPU events may be missing because the file is cut off, or because the GPU did nothing."""
    return bool(trace.notices or trace.metadata.get("deviceProperties"))


def unread_span(span: SpanFile, notice: Notice) -> UnreadSpan:
    return UnreadSpan(span=span.span, trace_file=span.file.name, size_bytes=span.file.size, warnings=[notice])


def compile_report(data: CompileData) -> Compile:
    """All analyses of the compile data of one worker."""
    summary = data.summary
    return Compile(
        source=data.source,
        file=data.file,
        total_s=ct.total_s(summary),
        unreadable_records=sum(summary.records.unreadable.values()),
        environment=_environment(summary),
        compilations=ct.compilations(summary),
        problems=problems(summary),
        graph_breaks=graph_breaks(summary),
        recompiles=recompiles(summary),
        recompiled_frames=recompiled_frames(summary),
        generated_kernels=generated_kernels(summary),
        autotune=autotune(summary),
        compile_times=ct.compile_times(summary),
        compile_times_complete=summary.compile_times_complete,
        counters=_counters(summary),
        records=Records(
            dict(summary.records.by_kind), dict(summary.records.unknown), dict(summary.records.unreadable)
        ),
        warnings=[*data.notices, *(Notice(data.file, text) for text in summary.warnings)],
    )


def _counters(summary: CompileSummary) -> dict[str, dict[str, int]]:
    groups: dict[str, dict[str, int]] = {}
    for counter in summary.counters:
        groups.setdefault(counter.group, {})[counter.name] = counter.value
    return groups


def _environment(summary: CompileSummary) -> Environment:
    found = summary.environment

    def known(field: str) -> int | None:
        return getattr(found, field) if found.HasField(field) else None

    def text(value: str) -> str | None:
        return value or None

    return Environment(
        torch_version=text(found.torch_version),
        python_version=text(found.python_version),
        plugin_version=text(found.plugin_version),
        cuda_version=text(found.cuda_version),
        hip_version=text(found.hip_version),
        triton_version=text(found.triton_version),
        device_names=list(found.device_names),
        hostname=text(found.hostname),
        pid=found.pid or None,
        rank=known("rank"),
        world_size=known("world_size"),
        capture=text(found.capture),
        backends=list(found.backends),
        variables=dict(found.variables),
    )
