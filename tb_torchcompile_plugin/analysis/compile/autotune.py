"""Which kernels were autotuned: how long did it take, over how many configurations, and which one won?"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any, Literal

import msgspec

from tb_torchcompile_plugin.analysis.formatting import duration, plural
from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.compile_log.record import Direction, Key, direction_of, key_of, known_number
from tb_torchcompile_plugin.profile.units import to_seconds
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names import records as phases
from tb_torchcompile_plugin.torch_names.kernels import without_number

Generated = dict[tuple[int, str, str], tuple[pb.Graph, pb.GeneratedKernel]]  # by epoch, compile id and name


class Autotune(msgspec.Struct, frozen=True):
    """One choice between configurations of a kernel, or between templates of an operator.

    `time_s` is that of its spans; None where torch wrote none. `configs`: how many were tried. `choice`: the winner
    in torch's words, None where it does not tell. `cache`: torch's word for the autotune cache ("hit", "miss").
    `where`: "run" when the compiled code first ran, "compile" while it was compiled.
    """

    compile_id: str
    epoch: int
    direction: Direction | None
    kernel: str
    time_s: float | None
    configs: int | None
    choice: str | None
    cache: str | None
    best_time_us: float | None
    where: Literal["compile", "run"]


def autotune(data: CompileData) -> list[Autotune]:
    """Longest first, then those without a time. A kernel with a single configuration is not autotuned."""
    summary = data.summary
    generated = _generated(summary)
    compiling = _compiling(summary)
    timed = [_timed(spans, generated, compiling) for spans in _by_kernel(summary, generated).values()]
    seen = {(row.epoch, row.compile_id, row.kernel) for row in timed}
    untimed = [
        _untimed(graph, kernel)
        for graph in summary.graphs
        for kernel in graph.kernels
        if _has_choice(kernel) and (*key_of(graph.key), kernel.name) not in seen
    ]
    return sorted([*timed, *untimed], key=lambda row: -(row.time_s or 0))


def autotuning_headline(data: CompileData) -> str:
    """ "2 choices among 14 configurations: 3.20 s while compiling"; "" where nothing was tuned. Compiling the templates
    is no choice, and what is tuned at the first run is no part of the compile time."""
    rows = data.of(autotune)
    tried = [row.configs for row in rows if row.configs is not None]
    what = f"{plural(len(tried), 'choice')} among {plural(sum(tried), 'configuration')}"
    words = {"compile": "while compiling", "run": "when it first ran"}
    spent = {
        when: sum(row.time_s or 0 for row in rows if row.where == where) for where, when in words.items()
    }
    times = ", and beside the compile time ".join(
        f"{duration(1e6 * s)} {when}" for when, s in spent.items() if s
    )
    return what + (f": {times}" if times else "") if rows else ""


def _has_choice(kernel: pb.GeneratedKernel) -> bool:
    return kernel.num_configs > 1 or kernel.autotune == "hit"


def _generated(summary: pb.CompileSummary) -> Generated:
    return {
        (*key_of(graph.key), kernel.name): (graph, kernel)
        for graph in summary.graphs
        for kernel in graph.kernels
    }


def _by_kernel(
    summary: pb.CompileSummary, generated: Generated
) -> dict[tuple[int, str, str, int], list[pb.PhaseSpan]]:
    """The outermost autotune spans by compilation and kernel. One that names a winner ends its choice: the same
    operator and shapes may be tuned again, with another winner."""
    rows: dict[tuple[int, str, str, int], list[pb.PhaseSpan]] = defaultdict(list)
    chosen = Counter[tuple[int, str, str]]()
    ends: dict[tuple[int, str, int], int] = {}
    for span in sorted(summary.spans, key=lambda row: (row.start_ns, -row.duration_ns)):
        lane = (*key_of(span.key), span.thread)
        if phases.phase_of(span.name) != "autotune" or span.start_ns < ends.get(lane, 0):
            continue
        ends[lane] = span.start_ns + span.duration_ns
        kernel = (*key_of(span.key), _kernel_of(span, generated))
        choice = (*kernel, chosen[kernel])
        rows[choice].append(span)
        chosen[kernel] += bool(span.choices)
    return rows


def _kernel_of(span: pb.PhaseSpan, generated: Generated) -> str:
    """The kernel that a span tunes. torch 2.11 numbers a user's own kernel here, and only here."""
    key = key_of(span.key)
    if span.kernel:
        own = without_number(span.kernel)
        return own if (*key, span.kernel) not in generated and (*key, own) in generated else span.kernel
    if span.name.startswith(phases.AUTOTUNER):
        return "a Triton kernel (torch does not say which)"
    operator = phases.tuned_operator(span.name)  # torch 2.11 does not say for which shapes it compiles
    return f"{operator} (compiling the templates)" if phases.compiles_templates(span.name) else operator


def _compiling(summary: pb.CompileSummary) -> dict[Key, list[tuple[int, int, Direction]]]:
    """When each compile id was being compiled, and when its backward was."""
    times: dict[Key, list[tuple[int, int, Direction]]] = defaultdict(list)
    for span in summary.spans:
        if span.name in phases.COMPILING_BACKWARD or span.name in phases.FRAME_ROOTS:
            direction: Direction = "backward" if span.name in phases.COMPILING_BACKWARD else "forward"
            times[key_of(span.key)].append((span.start_ns, span.start_ns + span.duration_ns, direction))
    return times


def _while_compiling(span: pb.PhaseSpan, times: list[tuple[int, int, Direction]]) -> Direction | None:
    """What was being compiled then; a backward may be compiled inside its frame."""
    around: set[Direction] = {what for start, end, what in times if start <= span.start_ns < end}
    return "backward" if "backward" in around else "forward" if around else None


def _timed(
    spans: list[pb.PhaseSpan], generated: Generated, compiling: dict[Key, list[tuple[int, int, Direction]]]
) -> Autotune:
    first, name = spans[0], _kernel_of(spans[0], generated)
    graph, kernel = generated.get((*key_of(first.key), name), (None, None))
    choices = _choices(spans)
    compiled = _while_compiling(first, compiling.get(key_of(first.key), []))
    return Autotune(
        compile_id=first.key.compile_id,
        epoch=first.key.epoch,
        direction=direction_of(graph.direction) if graph else compiled,
        kernel=name,
        time_s=to_seconds(sum(span.duration_ns for span in spans)),
        configs=_configs(kernel, choices),
        choice=_choice(choices) or (kernel.config if kernel else None) or None,
        cache=(kernel.autotune if kernel else None) or None,
        best_time_us=_best_time_us(choices),
        where="compile" if compiled else "run",
    )


def _untimed(graph: pb.Graph, kernel: pb.GeneratedKernel) -> Autotune:
    return Autotune(
        compile_id=graph.key.compile_id,
        epoch=graph.key.epoch,
        direction=direction_of(graph.direction),
        kernel=kernel.name,
        time_s=None,
        configs=known_number(kernel, "num_configs"),
        choice=kernel.config or None,
        cache=kernel.autotune or None,
        best_time_us=None,
        where="compile" if kernel.autotune == "hit" else "run",
    )


def _choices(spans: list[pb.PhaseSpan]) -> dict[str, Any]:
    """What torch says of the templates that it tried: {"num_choices", "best_kernel", "best_time" in ms, …}."""
    text = next((span.choices for span in spans if span.choices), "")
    try:
        decoded = json.loads(text or "{}")
    except ValueError:
        return {}
    return decoded if isinstance(decoded, dict) else {}


def _configs(kernel: pb.GeneratedKernel | None, choices: dict[str, Any]) -> int | None:
    if isinstance(choices.get("num_choices"), int):
        return int(choices["num_choices"])
    return known_number(kernel, "num_configs") if kernel is not None else None


def _choice(choices: dict[str, Any]) -> str | None:
    parts = [str(choices[name]) for name in ("best_kernel", "best_kernel_desc") if choices.get(name)]
    return ": ".join(parts) or None


def _best_time_us(choices: dict[str, Any]) -> float | None:
    best = choices.get("best_time")  # ms, as triton's do_bench gives it
    return best * 1000 if isinstance(best, int | float) else None
