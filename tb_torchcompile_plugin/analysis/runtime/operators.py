"""Show which operators took the time and how often they were called: torch's `key_averages()`, joined to compile data.

The rows are torch's own, summed over calls: counts, host and device times, memory. They can be split further: by input
shapes, by the line of Python that called, by the user's label, by compilation. Splits sum to the whole exactly.
"""

from collections.abc import Sequence
from math import prod
from typing import Annotated, Any, Literal, get_args

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import column_head, duration, percent, plural
from tb_torchcompile_plugin.analysis.runtime import roofline
from tb_torchcompile_plugin.profile.columns import (
    Int64s,
    codes_of,
    distinct,
    host_slices,
    mask_of,
    sums,
    us,
    values_at,
    within,
)
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.host.host_tree import host_tree, operator_calls, site_names
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, profiled_time
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names import slices
from tb_torchcompile_plugin.torch_names.kernels import uses_tensor_cores
from tb_torchcompile_plugin.torch_names.operators import (
    CONVOLUTION,
    FLOP_BATCHED,
    FLOP_ELEMENTWISE,
    FLOP_FACTORS,
)

OperatorKind = Literal["operator", "label", "runtime", "overhead"]
_KINDS: tuple[OperatorKind, ...] = get_args(OperatorKind)
_KIND_OF_CAT: dict[str, OperatorKind] = {
    slices.OPERATOR: "operator",
    slices.LABEL: "label",
    slices.OVERHEAD: "overhead",
}
_MAX_FLOPS = 1 << 56  # no call does as many; sums of them fit into 64 bits
_Parts = tuple[Int64s, Sequence[str]]  # what calls are split by: each call's code, -1 for none, and the texts
SPLITS = ("shape", "call_site", "label", "compilation")
_COUNTED = (*FLOP_FACTORS, *FLOP_ELEMENTWISE, CONVOLUTION)


class Operator(msgspec.Struct, frozen=True):
    """One row per name and kind, and per part where the rows are split."""

    name: Annotated[str, column_head("Operator", grow=True)]
    kind: Annotated[OperatorKind, column_head(hidden=True)]
    # shapes, a call site, a label, a compile id
    part: Annotated[str | None, column_head(hidden=True, grow=True)]
    calls: Annotated[int, column_head(total=True)]
    self_host_us: Annotated[float, column_head(bar=True, total=True)]
    host_us: float
    # None without GPU events, as the next three
    self_device_us: Annotated[float | None, column_head(bar=True, total=True)]
    device_us: float | None
    # own device time in kernels whose names show whether they use tensor cores
    matrix_us: Annotated[float | None, column_head("Matrix kernels", hidden=True)]
    # of these, in kernels that use them
    tensor_core_us: Annotated[float | None, column_head("On tensor cores", hidden=True)]
    # None without `profile_memory`, as the next three
    self_cpu_memory_bytes: Annotated[int | None, column_head(hidden=True, total=True)]
    cpu_memory_bytes: Annotated[int | None, column_head(hidden=True)]
    self_device_memory_bytes: Annotated[int | None, column_head(total=True)]
    device_memory_bytes: Annotated[int | None, column_head(hidden=True)]
    flops: Annotated[int | None, column_head("FLOPs", hidden=True)]  # None where unknown
    mean_us: Annotated[float, column_head("Host time per call", hidden=True)]
    # own host time, of all profiled steps (of the span without any)
    step_percent: Annotated[float | None, column_head("Share of step time", hidden=True)]
    tensor_core_percent: Annotated[float | None, column_head("Tensor cores")]


class Operators(msgspec.Struct, frozen=True):
    """All rows."""

    headline: str  # of all together
    split: str | None  # what `part` of the rows is; None where they are not split
    rows: Annotated[list[Operator], column_head("Operators")]
    missing: str  # what the split, or a column, would need; "" where nothing is missing
    code: str  # what records it


def operators(profile: Profile, split: str | None = None) -> Operators:
    """Return operators, labels and CUDA calls, most self time on the host first.

    split: one of SPLITS.
    """
    rows = _rows(profile, _parts(profile, split))
    headline = profile.of(operators).headline if split else _headline(rows)
    return Operators(headline, split, rows, *_missing(profile.trace, split))


def _missing(trace: Trace, split: str | None) -> tuple[str, str]:
    if split == "shape" and not len(trace.sparse("input_dims")[0]):
        return "Input shapes were not recorded.", "record_shapes=True"
    if split == "call_site" and slices.PYTHON_FUNCTION not in trace.cats:
        return "Python stacks were not recorded.", "with_stack=True"
    if split == "label" and not len(host_slices(trace, slices.is_chosen_label, (slices.LABEL,))):
        return "No part of the program has a label.", 'with torch.profiler.record_function("my part"):'
    if not split and not _has_memory(trace):
        return "Memory was not recorded.", "profile_memory=True"
    return "", ""


def step_operators(profile: Profile) -> list[Operator]:
    """Return the rows of calls that begin in profiled steps, most self time on the host first."""
    called = profile.trace.ts[profile.of(operator_calls).index]
    in_step = within(profile.of(StepWindows).windows, called) >= 0
    return [row for row in _rows(profile, (np.where(in_step, 0, -1), ("step",))) if row.part]


def _headline(rows: list[Operator]) -> str:
    """Return "aten::mm takes 30 % of GPU time. 48 operators and 7 labels or runtime calls took 3.21 ms of …"."""
    number = sum(row.kind == "operator" for row in rows)
    if not number:
        return "No operators were recorded."
    others = ""
    if len(rows) > number:
        others = f" and {plural(len(rows) - number, 'label or runtime call', 'labels or runtime calls')}"
    host = duration(sum(row.self_host_us for row in rows))
    calls = plural(sum(row.calls for row in rows), "call")
    on_gpu = rows[0].self_device_us is not None
    own = [(row.self_device_us or 0.0) if on_gpu else row.self_host_us for row in rows]
    most = ""
    if sum(own):
        share, where = percent(100 * max(own) / sum(own)), "GPU" if on_gpu else "host"
        most = f"{rows[own.index(max(own))].name} takes {share} of {where} time. "
    return f"{most}{plural(number, 'operator')}{others} took {host} of host time in {calls}."


def _parts(profile: Profile, split: str | None) -> _Parts:
    trace, tree, calls = profile.trace, profile.of(host_tree), profile.of(operator_calls)
    match split:
        case "shape":
            return codes_of(trace, "input_dims", calls.index), trace.texts["input_dims"]
        case "call_site":
            return profile.of(site_names)[calls.position], trace.names
        case "label":  # the user's innermost one around each call, on its own thread; a label is its own part
            is_annotation = mask_of(trace.cats, slices.LABEL.__eq__)[trace.cat[tree.index]]
            is_label = is_annotation & mask_of(trace.names, slices.is_chosen_label)[trace.name[tree.index]]
            around = tree.nearest(calls.position, is_label)
            return values_at(trace.name, values_at(tree.index, around)), trace.names
        case "compilation":
            return profile.of(Ownership).compile_ids(calls.index), profile.of(Ownership).names
    return np.full(len(calls.index), -1), ()


def _has_memory(trace: Trace) -> bool:
    return bool(trace.metadata.get("profile_memory")) or len(trace.memory()["ts"]) > 0


def _rows(profile: Profile, parts: _Parts) -> list[Operator]:
    trace, calls, (codes, texts) = profile.trace, profile.of(operator_calls), parts
    # All steps are one row.
    shown = [slices.ALL_STEPS if slices.is_profiler_step(name) else name for name in trace.names]
    number_of = {name: number for number, name in enumerate(dict.fromkeys(shown))}
    name = np.array([number_of[name] for name in shown], np.int64)[trace.name[calls.index]]
    kinds = [_KINDS.index(_KIND_OF_CAT.get(cat, "runtime")) for cat in trace.cats]
    keys, row_of = distinct(name, np.array(kinds, np.int64)[trace.cat[calls.index]], codes)
    names, whole_us, rows = list(number_of), us(profile.of(profiled_time).total_ns), []
    for (code, kind_code, part), *figures in zip(keys.T.tolist(), *_columns(profile, row_of, keys.shape[1])):
        count, self_host_us, host_us, _, _, matrix_us, tensor_core_us, *_ = figures
        text = texts[part] if part >= 0 else None
        step_percent = 100 * self_host_us / whole_us if whole_us else None
        tensor_core_percent = 100 * tensor_core_us / matrix_us if matrix_us else None
        derived = host_us / count, step_percent, tensor_core_percent
        rows.append(Operator(names[code], _KINDS[kind_code], text, *(*figures, *derived)))
    return sorted(rows, key=lambda row: (-row.self_host_us, row.name, row.kind, row.part or ""))


def _columns(profile: Profile, row_of: Int64s, count: int) -> list[Sequence[Any]]:
    """Return the sums of each row over its calls, in the order of the fields from `calls` to `flops`."""
    trace, calls = profile.trace, profile.of(operator_calls)
    gpu, memory = len(profile.of(gpu_work).index) > 0, _has_memory(trace)
    shapes = codes_of(trace, "input_dims", calls.index)
    unknown = [None] * count

    def times(ns: Int64s, rows: Int64s = row_of) -> Sequence[Any]:
        return [us(value) for value in sums(rows, ns, count).tolist()]

    sizes = calls.self_cpu_bytes, calls.cpu_bytes, calls.self_device_bytes, calls.device_bytes
    flops = _flops(trace, calls.index, shapes)
    return [
        np.bincount(row_of, minlength=count).tolist(),
        times(profile.of(host_tree).self_ns[calls.position]),
        times(trace.dur[calls.index]),
        *(times(ns) if gpu else unknown for ns in (calls.self_device_ns, calls.device_ns)),
        *(times(ns, row_of[of]) if gpu else unknown for of, ns in profile.of(_matrix_kernels)),
        *(sums(row_of, values, count).tolist() if memory else unknown for values in sizes),
        [flop or None for flop in sums(row_of, flops, count).tolist()] if (shapes >= 0).any() else unknown,
    ]


def _matrix_kernels(profile: Profile) -> list[tuple[Int64s, Int64s]]:
    """Return calls and times (ns) of kernels that show whether they use tensor cores, and of those that do."""
    trace, gpu, work = profile.trace, profile.of(gpu_work).index, profile.of(operator_calls).work
    uses = [uses_tensor_cores(name) for name in trace.names] or [None]
    masks = np.array([use is not None for use in uses]), np.array([use is True for use in uses])
    chosen = (np.flatnonzero(mask[trace.name[gpu]] & (work >= 0)) for mask in masks)
    return [(work[kernels], trace.dur[gpu[kernels]]) for kernels in chosen]


def _flops(trace: Trace, index: Int64s, dims: Int64s) -> Int64s:
    """Return the floating point operations of these rows, 0 without a rule; dims: the code of each row's shapes."""
    # With `with_flops` torch counts them for seven operators, but leaves them out of the trace.
    rows = np.flatnonzero(mask_of(trace.names, _COUNTED.__contains__)[trace.name[index]] & (dims >= 0))
    inputs = codes_of(trace, "concrete_inputs", index[rows])
    kinds, kind_of = distinct(trace.name[index[rows]], dims[rows], inputs)
    shapes, values = trace.texts["input_dims"], [*trace.texts["concrete_inputs"], "[]"]
    counts = [
        flops_of(trace.names[name], roofline.shapes_in(shapes[shape]), roofline.decoded(values[value]))
        for name, shape, value in kinds.T.tolist()
    ]
    flops = np.zeros(len(index), np.int64)
    flops[rows] = np.array(counts, np.int64)[kind_of]
    return flops


def flops_of(name: str, shapes: list[roofline.Shape], values: list[Any]) -> int:
    """Return the FLOPs of one call by "Input Dims" and "Concrete Inputs" of the trace, as torch counts them.

    torch counts none of a convolution whose stride is one number, or whose padding has a name.
    """
    try:
        if name == CONVOLUTION:
            image, weight = shapes[:2]
            stride, padding, dilation = map(roofline.number_or_sizes, values[3:6])
            size = roofline.convolved(image[2:], weight[2:], padding, stride, dilation)
            count = 2 * image[0] * prod(size) * prod(weight)
        elif name in FLOP_ELEMENTWISE:
            count = prod(shapes[0])
        else:
            left, right = (shapes[argument] for argument in FLOP_FACTORS[name])
            batch = left[0] if name in FLOP_BATCHED else 1
            count = 2 * prod(left) * prod(right) // (left[-1] * batch)
    except (IndexError, TypeError, ValueError, ZeroDivisionError):
        return 0
    return count if 0 <= count < _MAX_FLOPS else 0
