"""The kernels panel: every kernel with what is known of it; and one of them with all its launches and its source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import duration, plural
from tb_torchcompile_plugin.analysis.runtime.kernel_code import (
    LaunchConfig,
    LaunchConfigs,
    extern_lines,
    module_names,
)
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import (
    Kernel,
    KernelName,
    StepCategory,
    alone_ns,
    distinct_kernels,
    kernel_name,
    launched_in,
    step_categories,
    unnamed_triton,
)
from tb_torchcompile_plugin.analysis.runtime.roofline import (
    DevicePeak,
    Work,
    achieved,
    device_peaks,
    launched_work,
)
from tb_torchcompile_plugin.compile_log.record import Direction
from tb_torchcompile_plugin.errors import NotFound, Notice
from tb_torchcompile_plugin.generated_code.artifacts import Frame
from tb_torchcompile_plugin.generated_code.generated_code import (
    Generated,
    GeneratedCode,
    GraphCode,
    GraphPiece,
    LinesFrom,
)
from tb_torchcompile_plugin.generated_code.output_code import CodeCall, Definition, call_places
from tb_torchcompile_plugin.generated_code.user_lines import stack_lines
from tb_torchcompile_plugin.profile.columns import codes_of
from tb_torchcompile_plugin.profile.compiled.regions import generated_code
from tb_torchcompile_plugin.profile.gpu.idle import idle_before
from tb_torchcompile_plugin.profile.gpu.launches import Launches, groups, kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import busy
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_ns
from tb_torchcompile_plugin.profile.units import share_percent, us
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload
from tb_torchcompile_plugin.reader.memo import once
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, defined_name

_POINTS = 2000  # launches that a sparkline can show


class Kernels(msgspec.Struct, frozen=True):
    """All kernels of a span, most time first, and what each category takes of each step.

    best: the place of the row from which a step gains most if it takes half its time; None where none is known to.
    no_bytes, no_flop: which kernels of the first GPU are in neither chart of the roofline, "" for none.
    unnamed_us: time of Triton kernels that torch was told not to name. `named_us` of it belongs to kernels whose launch
    tells the name.
    """

    headline: str
    rows: list[Kernel]
    best: int | None
    step_categories: list[StepCategory]
    peaks: list[DevicePeak]
    no_bytes: str
    no_flop: str
    unnamed_us: float
    named_us: float
    warnings: list[Notice]


class KernelLaunches(msgspec.Struct, frozen=True):
    """Launches in order of time, as columns: `start_us` counts from the span's first event. Of many, evenly chosen ones
    and always the longest: `shown_every` says of how many one is here. `row`: of the trace, by which the timeline
    finds the slice."""

    start_us: list[float]
    duration_us: list[float]
    row: list[int]
    shown_every: int


class KernelDetails(msgspec.Struct, frozen=True):
    """One kernel: its launches, the ways in which it was launched, and its source as inductor generated it.

    compile_config: block sizes and warps that torch chose, where it told. context: the user's lines and those around
    them that are known, because other operators of the graph stand there. graph: the nodes that it computes.
    has_benchmark: whether the source holds inductor's own benchmark, which `tb-torchcompile kernel … --extract` writes
    to a file. idle_before_us, longest_idle_before_us: how long its device had done nothing when a launch of it began,
    on average and at most; null where nothing is known to have run before, and on the CPU.
    """

    launches: KernelLaunches
    idle_before_us: float | None
    longest_idle_before_us: float | None
    configs: list[LaunchConfig]
    compile_config: str | None
    context: list[Frame]
    graph: GraphPiece | None
    source: str | None
    language: str | None
    has_benchmark: bool


class KernelTables:
    """Tables about the launches of all devices of one profile, made once for all rows."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        trace = profile.trace
        self.peaks, self.warnings = device_peaks(trace, [rows.device for rows in profile.of(kernel_launches)])
        self._peak = {peak.device: peak for peak in self.peaks}
        first, last = trace.window()
        self._span_ns = last - first
        self._wall_ns = int(profile.of(step_ns).sum()) or self._span_ns

    @once
    def rows(self) -> list[tuple[Kernel, Launches, Int64s]]:
        """Each kernel's row with the places of its launches, most time first."""
        devices = zip(self._profile.of(kernel_launches), self._profile.of(launched_work), strict=True)
        answer = [made for launched, work in devices for made in self._device(launched, work)]
        return sorted(answer, key=lambda made: _order(made[0]))

    def _device(self, rows: Launches, work: Work) -> Iterator[tuple[Kernel, Launches, Int64s]]:
        profile, trace = self._profile, self._profile.trace
        grouped, whole = groups(rows), int(rows.dur.sum())
        counted = launched_in(profile, rows)
        alone = alone_ns(trace, rows, grouped, counted)
        # Where the host is ahead, steps launch more work than they last.
        wall_ns = max(self._wall_ns, busy(trace, rows.index[counted]).total_ns)
        launched = LaunchConfigs(trace, rows)
        named = module_names(trace, rows, grouped)
        externs = profile.of(extern_lines)[rows.device]
        peak = self._peak.get(rows.device) if rows.device != "cpu" else None
        for number, places in enumerate(grouped):
            kernel, dur = kernel_name(profile, rows, places), rows.dur[places]
            direction = _direction(profile, kernel, rows, places)
            code = profile.of(generated_code).find(
                kernel.name, kernel.compile_id, kernel.graph_key, direction
            )
            lines, lines_from = code.lines if code else (externs.of(places), None)
            if recorded := _recorded_lines(trace, rows, places):
                lines, lines_from = recorded, "provenance"
            configs = launched.of(places)
            reached = achieved(trace, rows, work, places, peak, code.definition if code else None)
            own = int(alone[number]) if rows.device != "cpu" else None
            yield (
                Kernel(
                    **kernel._asdict(),
                    key=kernel.key,
                    category=CATEGORIES[rows.category[places[0]]],
                    launches=len(places),
                    time_us=us(dur.sum()),
                    mean_us=int(dur.sum()) / (1000 * len(places)),
                    min_us=us(dur.min()),
                    max_us=us(dur.max()),
                    share_percent=share_percent(int(dur.sum()), whole) or 0.0,
                    wall_percent=share_percent(int(dur.sum()), self._span_ns),
                    direction=direction,
                    aten_ops=code.definition.aten_ops if code else [],
                    source_lines=[f"{frame.file}:{frame.line}" for frame in lines],
                    lines=lines,
                    lines_from=lines_from or ("comments" if lines else None),
                    output_code_file=(code.code.file or None) if code else None,
                    artifact=code.code.artifact if code else None,
                    code_line=code.definition.line if code else None,
                    modules=named[number] or _graph_modules(code, externs.calls(places)),
                    config=configs[0] if configs else None,
                    configs=len(configs),
                    bandwidth_gb_s=reached.bandwidth_gb_s,
                    bandwidth_percent=reached.bandwidth_percent,
                    achieved=reached,
                    alone_us=None if own is None else us(own),
                    twice_as_fast_percent=None if own is None else share_percent(own, 2 * wall_ns),
                ),
                rows,
                places,
            )


def _graph_modules(code: Generated | None, calls: list[tuple[GraphCode, CodeCall]]) -> list[str]:
    """The paths of the modules that a kernel of a compiled graph computes, as far as the graph tells."""
    made: list[tuple[GraphCode, CodeCall | Definition]] = [*calls]
    if code is not None:
        called: Sequence[CodeCall | Definition] = code.code.calls_of(code.definition) or [code.definition]
        made = [(code.code, one) for one in called]
    return list(dict.fromkeys(path for graph, one in made for path in graph.modules(one) if path))


def _recorded_lines(trace: Trace, rows: Launches, places: Int64s) -> list[Frame]:
    """The lines that torch wrote into the trace beside these launches; [] without."""
    texts = trace.texts.get("stack") or ()
    known = np.unique(codes_of(trace, "stack", rows.index[places])) if texts else ()
    return stack_lines(texts[code] for code in known if code >= 0)


def kernel_table(profile: Profile) -> Kernels:
    """All kernels of a span."""
    tables = profile.of(KernelTables)
    rows = [row for row, _, _ in tables.rows]
    unnamed = profile.of(unnamed_triton)
    return Kernels(
        headline=_headline(rows, profile.of(distinct_kernels)),
        rows=rows,
        best=_best(rows),
        step_categories=profile.of(step_categories),
        peaks=tables.peaks,
        no_bytes=_left_out(tables.peaks, rows, "bandwidth_gb_s", "what they move"),
        no_flop=_left_out(
            tables.peaks, rows, "flop_per_byte", "how many operations they do, or they do no product"
        ),
        unnamed_us=us(unnamed.all_ns),
        named_us=us(unnamed.named_ns),
        warnings=tables.warnings,
    )


def _order(row: Kernel) -> tuple[float, str, str, str]:
    """Most time first."""
    return -row.time_us, row.name, row.compile_id or "", row.graph_key or ""


def _headline(rows: list[Kernel], distinct: int) -> str:
    if not rows:
        return "No kernels in this span."
    launches = plural(sum(row.launches for row in rows), "launch", "launches")
    taken = f"{launches} of {plural(distinct, 'kernel')} took {duration(sum(row.time_us for row in rows))}"
    above = [row.achieved.above_floor_us for row in rows if row.achieved.above_floor_us is not None]
    return f"{taken}, {duration(sum(above))} above the floor." if above else f"{taken}."


def _left_out(peaks: list[DevicePeak], rows: list[Kernel], known: str, what: str) -> str:
    """ "14 kernels, 1.20 ms, are not in it: nothing tells what they move." """
    mine = [
        row
        for row in rows
        if peaks and row.device == peaks[0].device and row.category not in ("memcpy", "memset")
    ]
    out = [row for row in mine if getattr(row.achieved, known) is None]
    if not out:
        return ""
    is_are = "is" if len(out) == 1 else "are"
    time = duration(sum(row.time_us for row in out))
    return f"{plural(len(out), 'kernel')}, {time}, {is_are} not in it: nothing tells {what}."


def _best(rows: list[Kernel]) -> int | None:
    gains = [row.twice_as_fast_percent or 0.0 for row in rows]
    return gains.index(max(gains)) if any(gains) else None


def kernel_details(
    profile: Profile, device: str, name: str, compile_id: str, graph_key: str
) -> KernelDetails:
    """The kernel of one row; "" stands for an id or key that the row does not have. Raises NotFound."""
    for rows in profile.of(kernel_launches):
        for places in groups(rows):
            kernel = kernel_name(profile, rows, places)
            if [part or "" for part in kernel[1:]] == [name, compile_id, graph_key] and str(
                kernel.device
            ) == device:
                return _details(profile, kernel, rows, places)
    raise NotFound(f"there is no kernel {name!r} in this span", next_step="Reload: the file may have changed")


def _details(profile: Profile, kernel: KernelName, rows: Launches, places: Int64s) -> KernelDetails:
    direction = _direction(profile, kernel, rows, places)
    code = profile.of(generated_code).find(kernel.name, kernel.compile_id, kernel.graph_key, direction)
    context, graph = _origin(profile, code, rows, places)
    waited = _idle_before(profile, rows, places)
    return KernelDetails(
        launches=_launches(profile, rows, places),
        idle_before_us=us(round(float(waited.mean()))) if len(waited) else None,
        longest_idle_before_us=us(int(waited.max())) if len(waited) else None,
        configs=LaunchConfigs(profile.trace, rows).of(places),
        compile_config=code.code.configs.get(code.definition.name) if code else None,
        context=context,
        graph=graph,
        source=code.definition.source if code else None,
        language=code.definition.language if code else None,
        has_benchmark=code is not None and code.definition.has_benchmark,
    )


def _idle_before(profile: Profile, rows: Launches, places: Int64s) -> Int64s:
    """Of each launch of which it is known, ns."""
    if rows.device == "cpu":
        return np.empty(0, np.int64)
    waited = idle_before(profile, rows.device, profile.trace.ts[rows.index[places]])
    return waited[waited >= 0]


def _origin(
    profile: Profile, code: Generated | None, rows: Launches, places: Int64s
) -> tuple[list[Frame], GraphPiece | None]:
    """The user's lines with those around them, and the nodes of the graph."""
    if code is not None:
        return code.code.context(code.lines[0]), code.code.piece(code.definition)
    externs = profile.of(extern_lines)[rows.device]
    calls = externs.calls(places)
    if not calls:
        return [], None
    graph = calls[0][0]
    return graph.context(externs.of(places)), graph.piece(call for _, call in calls)


def _direction(profile: Profile, kernel: KernelName, rows: Launches, places: Int64s) -> Direction | None:
    """Its graph's; without one that of the launch. Outside compiled code only a backward is known to be one."""
    graph = profile.of(generated_code).graph(kernel.compile_id, kernel.graph_key)
    if graph is not None:
        return graph.direction
    if rows.backward[places].all():
        return "backward"
    return "forward" if kernel.compile_id and not rows.backward[places].any() else None


def _launches(profile: Profile, rows: Launches, places: Int64s) -> KernelLaunches:
    trace = profile.trace
    start = trace.ts[rows.index[places]]
    order = np.argsort(start, kind="stable")
    start, dur = start[order] - trace.window()[0], rows.dur[places][order]
    every = -(-len(order) // _POINTS)
    # Of each run of launches the longest stands for it: what is slow now and then must not vanish.
    runs = range(0, len(order), every)
    shown = np.array([at + int(np.argmax(dur[at : at + every])) for at in runs], np.int64)
    index = rows.index[places][order][shown]
    return KernelLaunches(
        start_us=[us(ns) for ns in start[shown]],
        duration_us=[us(ns) for ns in dur[shown]],
        row=index.tolist(),
        shown_every=every,
    )


# Which kernels does an output code define and call, where are they from, and what do they cost in a span?


class CodeKernel(msgspec.Struct, frozen=True):
    """One definition. `line`: its own, and `calls`: those that call it, from 1. `source_nodes`: operators of the user's
    graph that were fused. `lines`: the user's, as in `Kernel`. `launches` and `time_us` are None where it did not run
    in the span, or there is none."""

    name: str
    line: int
    calls: list[int]
    source_nodes: list[str]
    lines: list[Frame]
    lines_from: LinesFrom | None
    launches: int | None
    time_us: float | None


class CodeKernels(msgspec.Struct, frozen=True):
    rows: list[CodeKernel]


def code_kernels(about: Profile | CompileData, artifact: int) -> CodeKernels:
    """In the order of the code; none for a text that is no output code. Raises NotFound and UserError for no text."""
    data = about.data if isinstance(about, Profile) else about
    if data is None:
        return CodeKernels([])
    ran = about.of(kernel_table).rows if isinstance(about, Profile) else []
    mine = [row for row in ran if row.artifact == artifact]
    graph = next((one for one in data.of(GeneratedCode).graphs if one.artifact == artifact), None)
    if graph is None:
        return CodeKernels([])
    places = call_places(read_payload(data, artifact))
    return CodeKernels(
        [_row(graph, one, places.get(one.variable, []), mine) for one in graph.definitions.values()]
    )


def _row(graph: GraphCode, definition: Definition, calls: list[int], ran: list[Kernel]) -> CodeKernel:
    lines, known_from = graph.lines(definition)
    mine = [row for row in ran if definition.name in (row.name, defined_name(row.name))]
    return CodeKernel(
        name=definition.name,
        line=definition.line,
        calls=calls,
        source_nodes=definition.source_nodes,
        lines=lines,
        lines_from=known_from,
        launches=sum(row.launches for row in mine) if mine else None,
        time_us=sum(row.time_us for row in mine) if mine else None,
    )
