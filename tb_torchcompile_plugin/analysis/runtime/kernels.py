"""Show every kernel of a span with what is known of it, and one kernel with all its launches and its source."""

from collections.abc import Iterator
from typing import Annotated

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import column_head, duration, plural
from tb_torchcompile_plugin.analysis.runtime import roofline
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import (
    Call,
    ExternLines,
    Kernel,
    KernelName,
    LaunchConfig,
    alone_ns,
    distinct_kernels,
    extern_lines,
    kernel_name,
    launch_configs,
    launched_in_steps,
    module_names,
)
from tb_torchcompile_plugin.compile_log.record import Direction
from tb_torchcompile_plugin.errors import NotFound, Notice, quoted
from tb_torchcompile_plugin.generated_code.generated_code import (
    DefinedKernel,
    GeneratedCode,
    GraphCode,
    GraphPiece,
    LineOrigin,
)
from tb_torchcompile_plugin.generated_code.output_code import CodeCall, Definition, Frame, lines_of_calls
from tb_torchcompile_plugin.generated_code.user_lines import distinct_lines, stack_lines
from tb_torchcompile_plugin.profile import columns, gpu_work, steps
from tb_torchcompile_plugin.profile.columns import Int64s, share_percent, us
from tb_torchcompile_plugin.profile.compiled.regions import generated_code
from tb_torchcompile_plugin.profile.gpu.captures import graph_origins
from tb_torchcompile_plugin.profile.gpu.idle import idle_before
from tb_torchcompile_plugin.profile.gpu.launches import Launches, groups, kernel_launches
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.devices import Peak
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, defined_name
from tb_torchcompile_plugin.torch_names.python_frames import frame_of

_MAX_POINTS = 2000  # launches that a sparkline can show


class Kernels(msgspec.Struct, frozen=True):
    """All kernels of a span, most time first."""

    headline: str
    rows: Annotated[list[Kernel], column_head("Kernels")]
    best: int | None  # row from which a step gains most if it takes half its time; None where unknown
    peaks: list[roofline.DevicePeak]
    without_bytes: str  # which kernels of the first GPU the roofline's charts leave out, "" for none
    without_flop: str
    warnings: list[Notice]


class KernelLaunches(msgspec.Struct, frozen=True):
    """Launches in order of time, as columns."""

    start_us: list[float]  # from the span's first event
    duration_us: list[float]
    row: list[int]  # of the trace, by which the timeline finds the slice
    shown_every: int  # of how many launches each one is the longest


class KernelDetails(msgspec.Struct, frozen=True):
    """One kernel: its launches, how it was launched, and its source as inductor generated it."""

    launches: KernelLaunches
    # Mean idle time of the device before a launch; None where unknown, and on the CPU.
    idle_before_us: float | None
    longest_idle_before_us: float | None
    configs: Annotated[list[LaunchConfig], column_head("Launch configurations")]
    compile_config: str | None  # block sizes and warps that torch chose, where recorded
    # The user's lines, and those around them that other operators of the graph come from.
    context: list[Frame]
    graph: GraphPiece | None  # the nodes that it computes
    source: str | None
    language: str | None


class CodeKernel(msgspec.Struct, frozen=True):
    """One kernel that an output code defines."""

    name: Annotated[str, column_head("Kernel", grow=True)]
    time_us: Annotated[float | None, column_head("GPU time", bar=True)]
    launches: int | None  # None where it did not run in the span, or there is no span
    line: int  # of the definition, from 1
    calls: Annotated[list[int], column_head("Called at lines")]
    source_nodes: Annotated[list[str], column_head("Fused operators", hidden=True)]  # of the user's graph
    lines: list[Frame]  # the user's, as in `Kernel`
    lines_from: Annotated[LineOrigin | None, column_head("Lines from", hidden=True)]


class CodeKernels(msgspec.Struct, frozen=True):
    """The kernels that one output code defines."""

    rows: Annotated[list[CodeKernel], column_head("Kernels in this code")]


KernelRow = tuple[Kernel, Launches, Int64s]  # with the launches of its device, and its indices among them


def kernel_table(profile: Profile) -> Kernels:
    """Return all kernels of a span."""
    rows = [row for row, _, _ in profile.of(kernel_rows)]
    peaks, warnings = profile.of(roofline.device_peaks)
    gains = [row.twice_as_fast_percent or 0.0 for row in rows]
    headline = "No kernels in this span."
    if rows:  # "66 launches of 14 kernels took 1.20 ms, 320 µs more than at the device's peak."
        launches = plural(sum(row.launches for row in rows), "launch", "launches")
        distinct, time = plural(profile.of(distinct_kernels), "kernel"), sum(row.time_us for row in rows)
        above = [row.above_floor_us for row in rows if row.above_floor_us is not None]
        floor = f", {duration(sum(above))} more than at the device’s peak" if above else ""
        headline = f"{launches} of {distinct} took {duration(time)}{floor}."
    return Kernels(
        headline=headline,
        rows=rows,
        best=gains.index(max(gains)) if any(gains) else None,
        peaks=peaks,
        without_bytes=_left_out(peaks, rows, "bandwidth_gb_s", "the number of bytes moved"),
        without_flop=_left_out(peaks, rows, "flop_per_byte", "the number of operations"),
        warnings=[*profile.of(graph_origins).notices, *warnings],
    )


def _left_out(peaks: list[roofline.DevicePeak], rows: list[Kernel], figure: str, what: str) -> str:
    """Return "14 kernels (1.20 ms) are not shown because the number of bytes moved is unknown."."""
    device = peaks[0].device if peaks else None
    out = [
        row
        for row in rows
        if row.device == device and row.category not in ("memcpy", "memset") and getattr(row, figure) is None
    ]
    if not out:
        return ""
    time, are = duration(sum(row.time_us for row in out)), "is" if len(out) == 1 else "are"
    return f"{plural(len(out), 'kernel')} ({time}) {are} not shown because {what} is unknown."


def kernel_rows(profile: Profile) -> list[KernelRow]:
    """Return each kernel with its launches, most time first."""
    devices = zip(profile.of(kernel_launches), profile.of(roofline.launched_work), strict=True)
    rows = [row for launches, work in devices for row in _device_rows(profile, launches, work)]
    return sorted(
        rows, key=lambda row: (-row[0].time_us, row[0].name, row[0].compile_id or "", row[0].graph_key or "")
    )


def _device_rows(profile: Profile, rows: Launches, work: roofline.Work) -> Iterator[KernelRow]:
    trace, kernels, on_gpu = profile.trace, groups(rows), rows.device != "cpu"
    first, last = trace.window()
    total, counted = int(rows.dur.sum()), launched_in_steps(profile, rows)
    alone_of = alone_ns(trace, rows, kernels, counted)
    # Where the host is ahead, steps launch more work than they last.
    busy_ns = gpu_work.busy(trace, rows.index[counted]).total_ns
    wall_ns = max(int(profile.of(steps.step_ns).sum()) or last - first, busy_ns)
    externs = profile.of(extern_lines)[rows.device]
    peaks = {peak.device: peak for peak in profile.of(roofline.device_peaks)[0]}
    peak = Peak() if rows.device == "cpu" else peaks[rows.device]
    captured = profile.of(graph_origins)
    configs_of, modules_of = launch_configs(trace, rows, kernels), module_names(trace, rows, kernels)
    for indices, alone, configs, modules in zip(kernels, alone_of, configs_of, modules_of, strict=True):
        kernel, dur = kernel_name(profile, rows, indices), rows.dur[indices]
        direction = _direction(profile, kernel, rows, indices)
        code = profile.of(generated_code).find(kernel.name, kernel.compile_id, kernel.graph_key, direction)
        lines, lines_from = _lines(trace, rows, indices, code, externs)
        operators, called_modules, functions = captured.of(rows.index[indices])
        if functions and not lines:
            frames = filter(None, map(frame_of, functions))
            lines, lines_from = distinct_lines(Frame(*frame[:3], None) for frame in frames), "capture"
        row = Kernel(
            **kernel._asdict(),
            key=kernel.key,
            category=CATEGORIES[rows.category[indices[0]]],
            launches=len(indices),
            time_us=us(dur.sum()),
            mean_us=int(dur.sum()) / (1000 * len(indices)),
            min_us=us(dur.min()),
            max_us=us(dur.max()),
            share_percent=share_percent(int(dur.sum()), total) or 0.0,
            wall_percent=share_percent(int(dur.sum()), last - first),
            direction=direction,
            aten_ops=code.definition.aten_ops if code else operators,
            source_lines=[f"{frame.file}:{frame.line}" for frame in lines],
            lines=lines,
            lines_from=lines_from,
            output_code_file=(code.code.file or None) if code else None,
            artifact=code.code.artifact if code else None,
            code_line=code.definition.line if code else None,
            modules=modules or _graph_modules(code, externs.calls(indices)) or called_modules,
            config=configs[0] if configs else None,
            configs=len(configs),
            **roofline.achieved(trace, rows, work, indices, peak, code.definition if code else None),
            alone_us=us(alone) if on_gpu else None,
            twice_as_fast_percent=share_percent(alone, 2 * wall_ns) if on_gpu else None,
        )
        yield row, rows, indices


def _direction(profile: Profile, kernel: KernelName, rows: Launches, indices: Int64s) -> Direction | None:
    """Return the direction of its graph, otherwise of the launch; unknown in eager code that is not backward."""
    if graph := profile.of(generated_code).graph(kernel.compile_id, kernel.graph_key):
        return graph.direction
    if rows.backward[indices].all():
        return "backward"
    return "forward" if kernel.compile_id and not rows.backward[indices].any() else None


def _lines(
    trace: Trace, rows: Launches, indices: Int64s, code: DefinedKernel | None, externs: ExternLines
) -> tuple[list[Frame], LineOrigin | None]:
    """Return the user's lines that torch wrote into the trace, otherwise those in the generated code."""
    if texts := trace.texts.get("stack"):
        codes = np.unique(columns.codes_of(trace, "stack", rows.index[indices]))
        if recorded := stack_lines(texts[code] for code in codes if code >= 0):
            return recorded, "provenance"
    lines, lines_from = code.lines if code else (externs.of(indices), None)
    return lines, lines_from or ("comments" if lines else None)


def _graph_modules(code: DefinedKernel | None, calls: list[Call]) -> list[str]:
    """Return the paths of the modules that a kernel of a compiled graph computes, where the graph names them."""
    parts: list[tuple[GraphCode, CodeCall | Definition]] = [*calls]
    if code is not None:
        called = [(code.code, call) for call in code.code.calls_of(code.definition)]
        parts = [*called] or [(code.code, code.definition)]
    return list(dict.fromkeys(path for graph, part in parts for path in graph.modules(part) if path))


def kernel_details(
    profile: Profile, device: str, name: str, compile_id: str, graph_key: str
) -> KernelDetails:
    """Return the kernel of one row, or raise NotFound; "" stands for an id or key that the row does not have."""
    wanted = [device, name, compile_id, graph_key]
    for kernel, rows, indices in profile.of(kernel_rows):
        if [str(kernel.device), kernel.name, kernel.compile_id or "", kernel.graph_key or ""] == wanted:
            return _details(profile, kernel, rows, indices)
    raise NotFound(
        f"there is no kernel {quoted(name)} in this span", next_step="Reload: the file may have changed"
    )


def _details(profile: Profile, kernel: Kernel, rows: Launches, indices: Int64s) -> KernelDetails:
    code = profile.of(generated_code).find(kernel.name, kernel.compile_id, kernel.graph_key, kernel.direction)
    idle: Int64s = np.empty(0, np.int64)
    if rows.device != "cpu":
        idle = idle_before(profile, rows.device, profile.trace.ts[rows.index[indices]])
        idle = idle[idle >= 0]
    externs = profile.of(extern_lines)[rows.device]
    context: list[Frame] = []
    graph: GraphPiece | None = None
    if code is not None:
        context, graph = code.code.context(code.lines[0]), code.code.piece(code.definition)
    elif calls := externs.calls(indices):
        of_call = calls[0][0]
        context, graph = of_call.context(externs.of(indices)), of_call.piece(call for _, call in calls)
    return KernelDetails(
        launches=_launches(profile, rows, indices),
        idle_before_us=us(round(float(idle.mean()))) if len(idle) else None,
        longest_idle_before_us=us(int(idle.max())) if len(idle) else None,
        configs=next(launch_configs(profile.trace, rows, [indices])),
        compile_config=code.code.configs.get(code.definition.name) if code else None,
        context=context,
        graph=graph,
        source=code.definition.source if code else None,
        language=code.definition.language if code else None,
    )


def _launches(profile: Profile, rows: Launches, indices: Int64s) -> KernelLaunches:
    trace = profile.trace
    indices = indices[np.argsort(trace.ts[rows.index[indices]], kind="stable")]
    start, dur = trace.ts[rows.index[indices]] - trace.window()[0], rows.dur[indices]
    every = -(-len(indices) // _MAX_POINTS)
    # The longest of a run of launches stands for it: what is slow now and then must not vanish.
    runs = range(0, len(indices), every)
    shown = np.array([first + int(np.argmax(dur[first : first + every])) for first in runs], np.int64)
    return KernelLaunches(
        start_us=[us(ns) for ns in start[shown]],
        duration_us=[us(ns) for ns in dur[shown]],
        row=rows.index[indices][shown].tolist(),
        shown_every=every,
    )


def code_kernels(about: Profile | CompileData, artifact: int) -> CodeKernels:
    """Return the kernels of an output code in its order, [] for another text; raise UserError for no text."""
    data = about.data if isinstance(about, Profile) else about
    graphs = data.of(GeneratedCode).graphs if data else []
    graph = next((graph for graph in graphs if graph.artifact == artifact), None)
    if data is None or graph is None:
        return CodeKernels([])
    table = about.of(kernel_table).rows if isinstance(about, Profile) else []
    ran = [row for row in table if row.artifact == artifact]
    calls = lines_of_calls(read_payload(data, artifact))
    kernels = []
    for definition in graph.definitions.values():
        lines, lines_from = graph.lines(definition)
        rows = [row for row in ran if definition.name in (row.name, defined_name(row.name))]
        kernel = CodeKernel(
            name=definition.name,
            line=definition.line,
            calls=calls.get(definition.variable, []),
            source_nodes=definition.source_nodes,
            lines=lines,
            lines_from=lines_from,
            launches=sum(row.launches for row in rows) if rows else None,
            time_us=sum(row.time_us for row in rows) if rows else None,
        )
        kernels.append(kernel)
    return CodeKernels(kernels)
