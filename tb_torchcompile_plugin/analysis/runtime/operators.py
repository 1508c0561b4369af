"""Which operators took the time, and how often were they called? `key_averages()` of torch, joined to compile.

The rows are torch's own, summed over calls: counts, host and device times, memory. They can be split further: by input
shapes, by the line of Python that called, by the user's label, by compilation. Splits sum to the whole exactly.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Literal

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import duration, percent, plural
from tb_torchcompile_plugin.analysis.runtime.op_shapes import Shape, decoded, is_shape, shapes_in
from tb_torchcompile_plugin.profile.columns import codes_of, distinct, mask_of, order_of, picked, sums
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.host.host_tree import Mask, host_tree
from tb_torchcompile_plugin.profile.host.operator_calls import OperatorCalls, operator_calls, site_names
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, profiled_time
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.kernels import uses_tensor_cores
from tb_torchcompile_plugin.torch_names.operators import (
    CONVOLUTION,
    FLOP_BATCHED,
    FLOP_ELEMENTWISE,
    FLOP_FACTORS,
)
from tb_torchcompile_plugin.torch_names.slices import (
    ALL_STEPS,
    LABEL,
    OPERATOR,
    OVERHEAD,
    PYTHON_FUNCTION,
    is_chosen_label,
    is_step,
)

# How many floating point operations did a call do? By torch's own rules for `with_flops`. torch counts them
# for seven operators, but leaves them out of the trace it exports. They follow from what is in it where
# `record_shapes` was on: the inputs' shapes, for a convolution also stride, padding, dilation and groups.


_MOST = 1 << 56  # no call does as many; sums of them fit into 64 bits
_COUNTED = (*FLOP_FACTORS, *FLOP_ELEMENTWISE, CONVOLUTION)


def flops(trace: Trace, index: Int64s, dims: Int64s) -> Int64s:
    """Floating point operations of each of these rows, 0 for what torch has no rule for.

    dims: the code of each row's shapes in `trace.texts["input_dims"]`, -1 unknown.
    """
    wanted = mask_of(trace.names, _COUNTED.__contains__)
    rows = np.flatnonzero(wanted[trace.name[index]] & (dims >= 0))
    inputs = codes_of(trace, "concrete_inputs", index[rows])
    kinds, inverse = distinct(trace.name[index[rows]], dims[rows], inputs)
    shapes, values = trace.texts["input_dims"], [*trace.texts["concrete_inputs"], "[]"]
    counts = [
        flops_of(trace.names[name], shapes_in(shapes[shape]), decoded(values[value]))
        for name, shape, value in kinds.T.tolist()
    ]
    answer = np.zeros(len(index), np.int64)
    answer[rows] = np.array(counts, np.int64)[inverse]
    return answer


def flops_of(name: str, shapes: list[Shape], values: list[Any]) -> int:
    """FLOPs of one call. shapes: "Input Dims", values: "Concrete Inputs" of the trace."""
    try:
        count = _count(name, shapes, values)
    except (IndexError, TypeError, ValueError, ZeroDivisionError):
        return 0
    return count if 0 <= count < _MOST else 0


def _count(name: str, shapes: list[Shape], values: list[Any]) -> int:
    if name == CONVOLUTION:
        return _convolution(shapes[0], shapes[1], *(_number_or_sizes(value) for value in values[3:7]))
    if name in FLOP_ELEMENTWISE:
        return prod(shapes[0])
    left, right = (shapes[place] for place in FLOP_FACTORS[name])
    batch = left[0] if name in FLOP_BATCHED else 1
    return 2 * prod(left) * prod(right) // (left[-1] * batch)


def _number_or_sizes(text: str) -> Any:
    """Raises ValueError for anything else."""
    value = json.loads(text)
    if not is_shape(value if isinstance(value, list) else [value]):
        raise ValueError(text)
    return value


def _convolution(
    image: list[int],
    weight: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> int:
    """A stride of one number, or padding by name, is what torch counts nothing for."""
    batch, channels, *size = image
    filters, _, *kernel = weight
    if len(size) != 2 or len(kernel) != 2:
        return 0
    out = [
        (size[axis] + 2 * padding[axis] - dilation[axis] * (kernel[axis] - 1) - 1) // stride[axis] + 1
        for axis in (0, 1)
    ]
    return 2 * batch * prod(out) * prod(kernel) * channels * filters // groups


OperatorKind = Literal["operator", "label", "runtime", "overhead"]
_KINDS: tuple[OperatorKind, ...] = ("operator", "label", "runtime", "overhead")
_BY_CAT: dict[str, int] = {OPERATOR: 0, LABEL: 1, OVERHEAD: 3}


class Operator(msgspec.Struct, frozen=True):
    """One row per name and kind, and where the rows are split per `part`: shapes, a call site, a label, a compile id.

    Device fields are None without GPU events, bytes without `profile_memory`, `flops` without `record_shapes`.
    `matrix_us`: own device time in kernels whose names tell whether they use tensor cores; `tensor_core_us`: that do.
    mean_us: host time a call. step_percent: own host time, of all profiled steps, or of the span without any.
    """

    name: str
    kind: OperatorKind
    part: str | None
    calls: int
    self_host_us: float
    host_us: float
    self_device_us: float | None
    device_us: float | None
    matrix_us: float | None
    tensor_core_us: float | None
    self_cpu_memory_bytes: int | None
    cpu_memory_bytes: int | None
    self_device_memory_bytes: int | None
    device_memory_bytes: int | None
    flops: int | None
    mean_us: float
    step_percent: float | None
    tensor_core_percent: float | None


class Recorded(msgspec.Struct, frozen=True):
    """What the profiler was told to record besides times."""

    shapes: bool
    stacks: bool
    memory: bool
    labels: bool
    gpu: bool


class Operators(msgspec.Struct, frozen=True):
    """`split` is what `part` of the rows means, None where they are not split. headline: of all together."""

    headline: str
    split: str | None
    rows: list[Operator]
    recorded: Recorded


class _Parts(msgspec.Struct, frozen=True):
    """For each call the code of its part, -1 none, and what the codes mean."""

    codes: Int64s
    texts: Sequence[str]


def operators(profile: Profile, split: str | None = None) -> Operators:
    """All rows, most self time on the host first. split: one of SPLITS."""
    parts = (
        SPLITS[split](profile) if split else _Parts(np.full(len(profile.of(operator_calls).index), -1), ())
    )
    rows = _rows(profile, parts)
    said = profile.of(operators).headline if split else _headline(rows)
    return Operators(said, split, rows, profile.of(recorded))


def _headline(rows: list[Operator]) -> str:
    """ "48 operators and 7 labels or runtime calls took 3.21 ms of host time in 210 calls; aten::mm has 40 % of …" """
    number = sum(row.kind == "operator" for row in rows)
    if not number:
        return "This trace holds no operators."
    others = len(rows) - number
    beside = f" and {plural(others, 'label or runtime call', 'labels or runtime calls')}" if others else ""
    host = duration(sum(row.self_host_us for row in rows))
    calls = plural(sum(row.calls for row in rows), "call")
    return f"{plural(number, 'operator')}{beside} took {host} of host time in {calls}{_most(rows)}."


def _most(rows: list[Operator]) -> str:
    """Which one has most time of its own: on the GPU, where there is one."""
    where, own = ("GPU", _own_device_us) if rows[0].self_device_us is not None else ("host", _own_host_us)
    first, whole = max(rows, key=own), sum(map(own, rows))
    return f"; {first.name} has {percent(100 * own(first) / whole)} of all {where} time" if whole else ""


def _own_device_us(row: Operator) -> float:
    return row.self_device_us or 0.0


def _own_host_us(row: Operator) -> float:
    return row.self_host_us


def step_operators(profile: Profile) -> list[Operator]:
    """Rows of the calls that begin in profiled steps, most self time on the host first."""
    called = profile.trace.ts[profile.of(operator_calls).index]
    inside = profile.of(StepWindows).of(called) >= 0
    return [row for row in _rows(profile, _Parts(np.where(inside, 0, -1), ("step",))) if row.part]


def recorded(profile: Profile) -> Recorded:
    trace = profile.trace
    names = _label_names(trace)
    return Recorded(
        shapes=len(trace.sparse("input_dims")[0]) > 0,
        stacks=PYTHON_FUNCTION in trace.cats,
        memory=_has_memory(trace),
        labels=bool(names[trace.name[trace.select(cat=LABEL)]].any()),
        gpu=len(profile.of(gpu_work).index) > 0,
    )


def _by_shape(profile: Profile) -> _Parts:
    trace = profile.trace
    return _Parts(codes_of(trace, "input_dims", profile.of(operator_calls).index), trace.texts["input_dims"])


def _by_call_site(profile: Profile) -> _Parts:
    sites = profile.of(site_names)
    return _Parts(sites[profile.of(operator_calls).position], profile.trace.names)


def _by_label(profile: Profile) -> _Parts:
    """The innermost label of the user around each call, on its own thread; a label is its own part."""
    trace, tree, calls = profile.trace, profile.of(host_tree), profile.of(operator_calls)
    is_annotation = mask_of(trace.cats, LABEL.__eq__)[trace.cat[tree.index]]
    around = tree.nearest(calls.position, is_annotation & _label_names(trace)[trace.name[tree.index]])
    return _Parts(picked(trace.name, picked(tree.index, around)), trace.names)


def _by_compilation(profile: Profile) -> _Parts:
    owners = profile.of(Ownership)
    return _Parts(owners.compile_ids(profile.of(operator_calls).index), owners.names)


SPLITS: dict[str, Callable[[Profile], _Parts]] = {
    "shape": _by_shape,
    "call_site": _by_call_site,
    "label": _by_label,
    "compilation": _by_compilation,
}


def _label_names(trace: Trace) -> Mask:
    """Which names can be those of labels that somebody chose."""
    return mask_of(trace.names, is_chosen_label)


def _has_memory(trace: Trace) -> bool:
    return bool(trace.metadata.get("profile_memory")) or len(trace.memory()["ts"]) > 0


class _Groups:
    """Calls with one key, side by side; `sums` adds up any column of theirs."""

    def __init__(self, key: Int64s) -> None:
        self._key = key
        self._order = order_of(key)
        ordered = key[self._order]
        self._starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        self.keys = ordered[self._starts]

    def counts(self) -> list[int]:
        counts: list[int] = np.diff(np.append(self._starts, len(self._order))).tolist()
        return counts

    def sums(self, values: Int64s, known: bool = True) -> list[int] | list[None]:
        """None for every group where the values are not known."""
        if not known or not len(self._starts):
            return [None] * len(self._starts)
        sums: list[int] = np.add.reduceat(values[self._order], self._starts).tolist()
        return sums

    def sums_of(self, calls: Int64s, values: Int64s, known: bool) -> list[int] | list[None]:
        """The same of values that some calls have, once or more: of each its call."""
        if not known:
            return [None] * len(self.keys)
        groups = np.searchsorted(self.keys, self._key[calls])
        answer: list[int] = sums(groups, values, len(self.keys)).tolist()
        return answer


def _rows(profile: Profile, parts: _Parts) -> list[Operator]:
    trace, calls = profile.trace, profile.of(operator_calls)
    names, name = _names(trace)
    several = len(parts.texts) + 1
    groups = _Groups(
        (name[trace.name[calls.index]] * len(_KINDS) + _kinds(trace, calls)) * several + parts.codes + 1
    )
    shapes = codes_of(trace, "input_dims", calls.index)
    gpu, memory = len(profile.of(gpu_work).index) > 0, _has_memory(trace)
    sizes = [calls.self_cpu_bytes, calls.cpu_bytes, calls.self_device_bytes, calls.device_bytes]
    columns = [
        groups.counts(),
        map(_us, groups.sums(profile.of(host_tree).self_ns[calls.position])),
        map(_us, groups.sums(trace.dur[calls.index])),
        *(map(_us, groups.sums(values, gpu)) for values in (calls.self_device_ns, calls.device_ns)),
        *(map(_us, groups.sums_of(*kernels, gpu)) for kernels in profile.of(_matrix_kernels)),
        *(groups.sums(values, memory) for values in sizes),
        groups.sums(flops(trace, calls.index, shapes), bool((shapes >= 0).any())),
    ]
    whole_us = us(profile.of(profiled_time).total_ns)
    rows = []
    for key, *figures in zip(groups.keys.tolist(), *columns):
        operator, part = divmod(key, several)
        code, kind = divmod(operator, len(_KINDS))
        text = parts.texts[part - 1] if part else None
        rows.append(_operator(names[code], _KINDS[kind], text, figures, whole_us))
    return sorted(rows, key=lambda row: (-row.self_host_us, row.name, row.kind, row.part or ""))


def _operator(
    name: str, kind: OperatorKind, part: str | None, figures: Sequence[Any], whole_us: float
) -> Operator:
    calls, self_host_us, host_us, _, _, matrix_us, tensor_core_us, *_ = figures
    step_percent = 100 * self_host_us / whole_us if whole_us else None
    tensor_core_percent = 100 * tensor_core_us / matrix_us if matrix_us else None
    derived = (host_us / calls, step_percent, tensor_core_percent)
    return Operator(name, kind, part, *(*figures, *derived))


def _us(ns: int | None) -> float | None:
    return None if ns is None else us(ns)


def _names(trace: Trace) -> tuple[list[str], Int64s]:
    """The names of rows, and for each name of the trace its place among them: all steps are one row."""
    shown = [ALL_STEPS if is_step(name) else name for name in trace.names]
    names = list(dict.fromkeys(shown))
    places = {name: place for place, name in enumerate(names)}
    return names, np.array([places[name] for name in shown], np.int64)


def _kinds(trace: Trace, calls: OperatorCalls) -> Int64s:
    return np.array([_BY_CAT.get(cat, 2) for cat in trace.cats], np.int64)[trace.cat[calls.index]]


def _matrix_kernels(profile: Profile) -> tuple[tuple[Int64s, Int64s], tuple[Int64s, Int64s]]:
    """Of kernels that say whether they use tensor cores the calls and times (ns), and of those that do."""
    trace, gpu, work = profile.trace, profile.of(gpu_work).index, profile.of(operator_calls).work
    says = mask_of(trace.names, lambda name: uses_tensor_cores(name) is not None)
    does = mask_of(trace.names, lambda name: uses_tensor_cores(name) is True)
    chosen = (np.flatnonzero(which[trace.name[gpu]] & (work >= 0)) for which in (says, does))
    of_them, using = ((work[kernels], trace.dur[gpu[kernels]]) for kernels in chosen)
    return of_them, using
