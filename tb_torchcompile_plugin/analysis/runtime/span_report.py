"""Put together what most panels show: the run side of a span, and the compile side of its worker.

The rows come from the other packages. Unknown is null, never 0.
"""

from typing import Annotated, Any, Literal

import msgspec

from tb_torchcompile_plugin.analysis.compile import compile_time as ct
from tb_torchcompile_plugin.analysis.compile import graph_breaks as breaks
from tb_torchcompile_plugin.analysis.compile.compilations import (
    Compilation,
    ExportCall,
    Problem,
    compilations,
    compile_time_headline,
    exports,
    none_compiled,
    phases_percent,
    phases_s,
    problems,
)
from tb_torchcompile_plugin.analysis.compile.recompiles import (
    Recompile,
    RecompiledFrame,
    recompiled_frames,
    recompiles,
    recompiles_headline,
    shared_modules,
)
from tb_torchcompile_plugin.analysis.formatting import column_head, duration, plural, seconds
from tb_torchcompile_plugin.analysis.runtime import compiled_regions as regions
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import Gpu, gpus
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import (
    KernelCategory,
    distinct_kernels,
    kernel_categories,
)
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.errors import Notice
from tb_torchcompile_plugin.generated_code.output_code import GeneratedKernels, generated_kernels
from tb_torchcompile_plugin.profile.columns import mask_of, us
from tb_torchcompile_plugin.profile.coverage import Coverage, coverage
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import Step, StepTime, profiled_steps, step_time
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.kernels import is_anonymous
from tb_torchcompile_plugin.torch_names.records import Phase


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
    """How many records of each kind were unknown or unreadable."""

    unknown: dict[str, int]
    unreadable: dict[str, int]


class Compile(msgspec.Struct, frozen=True):
    """The compile side of one worker."""

    source: Literal["summary", "torch_trace", "torch_logs"]
    file: str
    total_s: float | None
    phases_s: dict[Phase, float]
    phases_percent: dict[Phase, float]
    unreadable_records: int
    environment: Environment
    compilations: list[Compilation]
    distinct_compilations: int  # a backward belongs to the compilation of its forward
    problems: list[Problem]
    graph_breaks: list[breaks.GraphBreak]
    reported_sites: list[breaks.GraphBreakSite]
    recompiles: list[Recompile]
    recompiled_frames: list[RecompiledFrame]
    generated_kernels: list[GeneratedKernels]
    autotune: Annotated[list[ct.Autotune], column_head("Autotuning")]
    exports: list[ExportCall]
    autotuning: str  # the first sentence of this section, "" without any
    compile_functions: Annotated[list[ct.FunctionTime], column_head("Compiler functions")]
    compile_times: dict[str, list[float]]
    compile_times_complete: bool
    records: Records
    headlines: dict[str, str]  # the first sentence of each panel
    warnings: list[Notice]


class Span(msgspec.Struct, frozen=True):
    """The run side of one span."""

    span: str
    trace_file: str
    size_bytes: int
    warnings: list[Notice]
    events: int
    wall_us: float
    step_time: StepTime  # the one length of a step, or of the span where it has none
    coverage: Coverage
    gpu: list[Gpu]
    steps: list[Step]
    kernel_categories: list[KernelCategory]
    distinct_kernels: int
    compiled_regions: list[regions.CompiledRegion]
    # Null where resume functions are unknown.
    graph_break_costs: list[breaks.GraphBreakCost] | None
    graph_break_sites: Annotated[list[breaks.GraphBreakSite], column_head("Graph breaks")]
    break_chain: breaks.BreakChain | None
    compile_overlap: ct.CompileOverlap | None
    headlines: dict[str, str]  # the first sentence of each panel
    # How to record what is missing; "" where nothing is.
    unnamed_cpu_kernels: str  # compiled code ran on the CPU
    unnamed_triton_kernels: str  # torch gave kernels no names of their own


def span_report(profile: Profile) -> Span:
    """Return what most panels show of one trace, joined to the compile data of its worker."""
    trace, span = profile.trace, profile.span
    assert span is not None
    first, last = trace.window()
    return Span(
        span=span.span,
        trace_file=span.file.name,
        size_bytes=span.file.size,
        warnings=list(trace.notices),
        events=trace.events,
        wall_us=us(last - first),
        step_time=profile.of(step_time),
        coverage=profile.of(coverage),
        gpu=profile.of(gpus),
        steps=profile.of(profiled_steps),
        kernel_categories=profile.of(kernel_categories),
        distinct_kernels=profile.of(distinct_kernels),
        compiled_regions=profile.of(regions.compiled_regions),
        graph_break_costs=profile.of(breaks.graph_break_costs),
        graph_break_sites=profile.of(breaks.graph_break_sites),
        break_chain=profile.of(breaks.break_chain),
        compile_overlap=profile.of(ct.compile_overlap),
        headlines={"compile_time": profile.of(ct.overlap_headline), "regions": profile.of(regions.headline)},
        unnamed_cpu_kernels=profile.of(unnamed_cpu_kernels),
        unnamed_triton_kernels=unnamed_triton_kernels(profile),
    )


def unnamed_cpu_kernels(profile: Profile) -> str:
    """Return how to name the kernels of compiled code on the CPU; "" where they are named, or a GPU may have worked."""
    # GPU events may also be missing because the file is cut off, or because the GPU did nothing.
    may_have_gpu = profile.trace.is_lossy or profile.trace.metadata.get("deviceProperties")
    if may_have_gpu or not profile.of(regions.compiled_regions) or profile.of(kernel_launches):
        return ""
    return (
        "Compiled code ran on the CPU, but its kernels have no names. "
        "Set TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1 before compiling."
    )


def unnamed_triton_kernels(profile: Profile) -> str:
    """Return that torch was asked to call kernels `triton_`, and how much of their time the launch names; "" if not."""
    is_unnamed = mask_of(profile.trace.names, is_anonymous)
    unnamed_ns = named_ns = 0
    for rows in profile.of(kernel_launches):
        unnamed = is_unnamed[profile.trace.name[rows.index]]
        unnamed_ns += int(rows.dur[unnamed].sum())
        named_ns += int(rows.dur[unnamed & ~is_unnamed[rows.name]].sum())
    if not unnamed_ns:
        return ""
    return (
        f"Triton kernels that take {duration(us(unnamed_ns))} have no names of their own, because "
        "unique_kernel_names is off or torch is older than 2.6. TORCHINDUCTOR_UNIQUE_KERNEL_NAMES=1 names them. "
        f"The launches name {duration(us(named_ns))} of this time. The rest is “Triton, other”."
    )


def compile_report(data: CompileData) -> Compile:
    """Return the compile data of one worker, as most panels show it."""
    summary, records = data.summary, data.summary.records
    # Protobuf's own order of a map differs between processes.
    counts = records.unknown, records.unreadable
    return Compile(
        source=data.source,
        file=data.file,
        total_s=data.of(ct.total_s),
        phases_s=data.of(phases_s),
        phases_percent=phases_percent(data.of(phases_s)),
        unreadable_records=sum(records.unreadable.values()),
        environment=_environment(summary),
        compilations=data.of(compilations),
        distinct_compilations=data.of(ct.count_compilations),
        problems=data.of(problems),
        graph_breaks=data.of(breaks.graph_breaks),
        reported_sites=data.of(breaks.reported_sites),
        recompiles=data.of(recompiles),
        recompiled_frames=data.of(recompiled_frames),
        generated_kernels=data.of(generated_kernels),
        autotune=data.of(ct.autotune),
        exports=list(data.of(exports).exports),
        autotuning=data.of(ct.autotuning_headline),
        compile_functions=data.of(ct.function_times),
        compile_times=data.of(ct.compile_times),
        compile_times_complete=summary.compile_times_complete,
        records=Records(*(dict(sorted(row.items())) for row in counts)),
        headlines={
            "compile_time": data.of(compile_time_headline),
            "graph_breaks": data.of(breaks.reported_headline),
            "overview": f"{'' if data.has_trace else 'No trace was read. '}{data.of(compiled_sentence)}",
            "recompiles": " ".join((data.of(recompiles_headline), *data.of(shared_modules))),
        },
        warnings=[*data.notices, *(Notice(data.file, text) for text in summary.warnings)],
    )


def _environment(summary: CompileSummary) -> Environment:
    """Return what was recorded; what is "" or not set is unknown."""
    recorded = summary.environment
    known = {field.name: value for field, value in recorded.ListFields() if value != ""}
    fields: dict[str, Any] = {name: known.get(name) for name in Environment.__struct_fields__}
    fields["device_names"], fields["backends"] = list(recorded.device_names), list(recorded.backends)
    fields["variables"] = dict(sorted(recorded.variables.items()))
    return Environment(**fields)


def compiled_sentence(data: CompileData | None, inside: str = "") -> str:
    """Return how much was compiled; inside: how much of that while the profiler was active."""
    if data is None:
        return "No compile data."
    number = data.of(ct.count_compilations)
    if number == 0:
        return data.of(none_compiled)
    if data.source == "torch_logs":
        headlines = compile_time_headline, breaks.reported_headline, recompiles_headline
        return " ".join(data.of(headline) for headline in headlines)
    return f"{plural(number, 'compilation')} took {seconds(data.of(ct.total_s))}{inside}."
