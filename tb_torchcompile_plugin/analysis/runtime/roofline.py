"""Measure how close a kernel comes to what its device can do: bandwidth and arithmetic achieved, against the peaks.

Bytes and operations are those that inductor computed or a copy recorded, otherwise an estimate from the shapes that the
profiler recorded. There each tensor counts once, dense, whatever a kernel really reads of it. The arguments of a Triton
kernel are all that it touches. Library operators are known whose result follows from their arguments: matrix products,
convolutions, attention, and what ATen computes element by element or sums up.

More than 100 % is possible and stays: a kernel whose data is in a cache is not bound by the device's memory.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np

from tb_torchcompile_plugin.errors import Notice, UserError
from tb_torchcompile_plugin.generated_code.output_code import Definition
from tb_torchcompile_plugin.profile.columns import (
    Floats,
    Int64s,
    Mask,
    codes_of,
    distinct,
    groups_of_equal,
    mask_of,
    us,
    values_of,
)
from tb_torchcompile_plugin.profile.gpu.launches import Launches, kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import device_names
from tb_torchcompile_plugin.profile.model.launch_sequence import gpu_queue, launch_sequence
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.nest import first_ancestor
from tb_torchcompile_plugin.torch_names import kernels, operators
from tb_torchcompile_plugin.torch_names.devices import Peak, peak_of
from tb_torchcompile_plugin.torch_names.slices import OPERATOR

Shape = list[int]
CallWork = tuple[float | None, float | None]  # bytes, floating point operations
# Their work depends on arguments that are no tensors.
NEED_VALUES = {*operators.WINDOWS, *operators.ATTENTION}


def operator_work(name: str, dims: str, types: str, values: list[str] | None = None) -> CallWork:
    """Return (bytes, FLOP) of a library operator's call; values: its concrete inputs, for NEED_VALUES."""
    shapes, kinds = shapes_in(dims), decoded(types)
    try:
        if name in operators.PRODUCTS:
            first = operators.PRODUCTS[name]
            *batch, rows, inner = shapes[first]
            columns, matrices = shapes[first + 1][-1], math.prod(batch)
            numbers = matrices * (rows * inner + inner * columns + rows * columns)
            return _moved(kinds[first], numbers), 2.0 * matrices * rows * inner * columns
        if name in operators.WINDOWS and values:
            first = operators.WINDOWS[name]
            padding, stride, dilation = map(number_or_sizes, values[first : first + 3])
            image, weight = shapes[:2]
            spatial = convolved(image[2:], weight[2:], padding, stride, dilation)
            return _convolution_work(kinds[0], [image[0], weight[0], *spatial], image, weight)
        if name == operators.CONVOLUTION_BACKWARD:
            return _convolution_work(kinds[0], *shapes[:3])
        if name in operators.ATTENTION and values:
            return _attention(operators.ATTENTION[name], shapes, kinds, values)
        if operators.family_of(name) == "aten":
            return _aten_bytes(name, dims, types), None
    except (IndexError, ValueError, TypeError, ZeroDivisionError, OverflowError):
        pass
    return None, None


def convolved(image: Shape, kernel: Shape, padding: Shape, stride: Shape, dilation: Shape) -> Shape:
    """Return the size of a convolution's result along each spatial axis; raise ValueError for other arguments."""
    return [
        (size + 2 * pad - gap * (taps - 1) - 1) // step + 1
        for size, taps, pad, step, gap in zip(image, kernel, padding, stride, dilation, strict=True)
    ]


def _convolution_work(kind: str, result: Shape, image: Shape, weight: Shape) -> CallWork:
    """Return the work of a convolution or of one of its two gradients: two of the tensors are read, one is written."""
    numbers = math.prod(image) + math.prod(weight) + math.prod(result)
    return _moved(kind, numbers), 2.0 * math.prod(result) * math.prod(weight[1:])


def number_or_sizes(text: str) -> Any:
    """Return the number or sizes in a JSON text; raise ValueError for anything else."""
    value = json.loads(text)
    if not is_shape(value if isinstance(value, list) else [value]):
        raise ValueError(text)
    return value


def _attention(
    where: operators.AttentionArguments, shapes: list[Shape], kinds: list[str], values: list[str]
) -> CallWork:
    """Return the work of attention; unknown for packed sequences of several lengths.

    Each query takes two products with each key that it sees: one with the key, one with its value. The gradient
    computes the first product again, and both gradients of either product.
    """
    query, key, value = shapes[where.query : where.query + 3]
    if len(query) != 4:
        return None, None
    length, heads = where.sequence, 3 - where.sequence
    pairs = query[0] * query[heads] * query[length] * key[length]
    is_causal = values[where.causal] in ("True", "1", "2")  # a flag, or the number of a mask
    seen = pairs / 2 if is_causal else float(pairs)
    products = (3 * query[3] + 2 * value[3]) if where.backward else (query[3] + value[3])
    result = math.prod(query[:3]) * value[3]
    numbers = math.prod(query) + math.prod(key) + math.prod(value) + result
    return _moved(kinds[where.query], numbers * (2 if where.backward else 1)), 2.0 * seen * products


def _moved(kind: str, numbers: int) -> float | None:
    """Return the bytes of so many numbers; None where the size of their type is unknown."""
    size = operators.TYPE_BYTES.get(kind)
    return None if size is None else float(size * numbers)


def _aten_bytes(name: str, dims: str, types: str) -> float | None:
    """Return the bytes of all arguments and of a result with their broadcast shape and the type of the largest."""
    arguments, tensors = tensor_bytes(dims, types), _tensors(dims, types)
    if arguments is None or not tensors or operators.is_argument_bound(name):
        return arguments
    if name.endswith("_"):
        shape, size = tensors[0]
    else:
        axes = max(len(shape) for shape, _ in tensors)
        aligned = ([1] * (axes - len(shape)) + shape for shape, _ in tensors)
        shape = [max(sizes) if 0 not in sizes else 0 for sizes in zip(*aligned)]
        # The type of the values, not that of a mask.
        _, size = max(tensors, key=lambda tensor: (math.prod(tensor[0]), tensor[1]))
    return arguments + float(size * math.prod(shape))


def tensor_bytes(dims: str, types: str) -> float | None:
    """Return the summed size of all tensors among the arguments; None where a type or a shape is unknown."""
    tensors = _tensors(dims, types)
    return float(sum(math.prod(shape) * size for shape, size in tensors)) if tensors else None


def _tensors(dims: str, types: str) -> list[tuple[Shape, int]] | None:
    """Return the shape of each tensor and the bytes of a number in it; None where a type is unknown."""
    kinds = decoded(types)
    if any(kind not in operators.TYPE_BYTES and kind not in ("", "Scalar", "ScalarList") for kind in kinds):
        return None
    return [
        (shape, operators.TYPE_BYTES[kind])
        for shape, kind in zip(decoded(dims), kinds)
        if kind in operators.TYPE_BYTES and is_shape(shape)
    ]


def shapes_in(dims: str) -> list[Shape]:
    """Return the shapes in "Input Dims", with [] for an argument that has none, such as a list of tensors."""
    return [shape if is_shape(shape) else [] for shape in decoded(dims)]


def decoded(text: str) -> list[Any]:
    """Return the list in a JSON text; [] where there is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else []


def is_shape(value: object) -> bool:
    """Return whether a value is a list of whole numbers that can be the shape of a tensor."""
    # Nothing is computed with other values: multiplying texts works, too, and huge sizes never end.
    if not isinstance(value, list) or not all(isinstance(size, int) for size in value):
        return False
    return bool(math.prod(max(1, abs(size)) for size in value) < 1 << 62)


def launching_operators(profile: Profile) -> Int64s:
    """Return for each work of the queue the row of the innermost operator that launched it; -1 for none."""
    queue, lane, trace = profile.of(gpu_queue), profile.of(launch_sequence), profile.trace
    is_operator = mask_of(trace.cats, OPERATOR.__eq__)[trace.cat]
    return np.asarray(first_ancestor(trace.parent, lane.row[queue.point].astype(np.int64), is_operator))


def tensor_shapes(profile: Profile, rows: Int64s) -> dict[int, list[Shape]]:
    """Return by row the shapes of its tensors, including those in lists; numbers have none."""
    tensors: dict[int, list[Shape]] = {}
    for row, text in argument_texts(profile, "input_dims", rows):
        shapes: list[Shape] = []
        for entry in decoded(text):
            listed = entry if isinstance(entry, list) else []
            shapes += [entry] if is_shape(entry) else filter(is_shape, listed)
        tensors[row] = [shape for shape in shapes if shape]
    return tensors


def argument_texts(
    profile: Profile, column: Literal["input_dims", "input_types"], rows: Int64s
) -> Iterator[tuple[int, str]]:
    """Yield each row with the recorded text of its arguments, "" where none was recorded."""
    texts = profile.trace.texts[column]
    for row, code in zip(rows.tolist(), codes_of(profile.trace, column, rows).tolist()):
        yield row, texts[code] if code >= 0 else ""


def concrete_inputs(trace: Trace, row: int) -> list[Any] | None:
    """Return the recorded values of a call's arguments, mostly texts; None where they cannot be read again."""
    try:
        values = trace.args(row).get("Concrete Inputs")
    except UserError:
        return None
    return values if isinstance(values, list) else []


WorkFrom = Literal["inductor", "shapes", "copy"]
Precision = Literal["fp32", "tf32", "bf16"]

# arithmetic beyond this share of the peak is not the kernel's own; clocks vary, a judgement
_MAX_OF_PEAK = 1.1
TRITON = [code for code, name in enumerate(kernels.CATEGORIES) if kernels.has_triton_prefix(name)]
_COPIES = [kernels.CATEGORIES.index("memcpy"), kernels.CATEGORIES.index("memset")]
_FAMILY: dict[kernels.Category, operators.Family] = {
    "gemm": "library",
    "convolution": "library",
    "attention": "attention",
    "normalization": "aten",
    "aten": "aten",
}
_GRADIENTS = {None: 0, "dgrad": 1, "wgrad": 2}


@dataclass(frozen=True)
class Work:
    """What the launches of one device did, as columns parallel to a `Launches`; NaN where unknown."""

    bytes: Floats
    flop: Floats
    estimated: Mask  # from shapes
    types: Int64s  # of the operator's tensors, as codes of texts; -1 where unknown


class DevicePeak(Peak, frozen=True, kw_only=True):
    """What one device can do."""

    device: int
    name: str | None
    is_known: bool  # false where the table has no such device: then shares of a peak are None


def device_peaks(profile: Profile) -> tuple[list[DevicePeak], list[Notice]]:
    """Return one row per GPU that worked, and what is wrong with the user's own figures."""
    names = device_names(profile.trace)
    rows: list[DevicePeak] = []
    notices: list[Notice] = []
    for launched in profile.of(kernel_launches):
        device = launched.device
        if device == "cpu":
            continue
        try:
            peak = peak_of(names.get(device))
        except ValueError as error:
            peak, notices = None, [Notice("", str(error), "Bandwidths are shown without their share", "")]
        figures = msgspec.structs.asdict(peak or Peak())
        rows.append(DevicePeak(device=device, name=names.get(device), is_known=peak is not None, **figures))
    return rows, notices


def launched_work(profile: Profile) -> list[Work]:
    """Return bytes and operations of each of `kernel_launches`, as far as the trace records them."""
    trace, all_work = profile.trace, []
    for rows in profile.of(kernel_launches):
        count, types = len(rows.index), codes_of(trace, "input_types", rows.op)
        work = Work(np.full(count, np.nan), np.full(count, np.nan), np.zeros(count, bool), types)
        copies = np.isin(rows.category, _COPIES)
        work.bytes[copies] = values_of(trace, "bytes", rows.index)[copies]
        # Which launches may do the operations of a product.
        kinds, kernel_of = distinct(rows.name, rows.category)
        able = [
            kernels.may_multiply(trace.names[name], kernels.CATEGORIES[code])
            for name, code in kinds.T.tolist()
        ]
        multiplies = np.array(able, bool)[kernel_of]
        _add_estimates(trace, rows, multiplies, work)
        # Without any operation inductor does not count them for this kernel.
        generated = np.isin(rows.category, TRITON)
        gb, flop = values_of(trace, "kernel_num_gb", rows.op), values_of(trace, "kernel_flop", rows.op)
        recorded = generated & (gb > 0)
        work.bytes[recorded] = gb[recorded] * 1e9
        work.estimated[recorded] = False
        counted = generated & (flop > 0) & multiplies
        work.flop[counted] = flop[counted]
        all_work.append(work)
    return all_work


def _add_estimates(trace: Trace, rows: Launches, multiplies: Mask, work: Work) -> None:
    """Add what recorded shapes give; launches of equal shapes are estimated once."""
    dims, types = codes_of(trace, "input_dims", rows.op), work.types
    called = np.where(rows.op >= 0, trace.name[rows.op], -1).astype(np.int64)
    main = _is_main(trace, rows, multiplies)
    columns = dims, types, called, rows.name, codes_of(trace, "grid", rows.index)
    for indices in groups_of_equal(np.flatnonzero(dims >= 0), *columns):
        first = indices[0]
        operator, kernel = trace.names[called[first]], trace.names[rows.name[first]]
        shapes = trace.texts["input_dims"][dims[first]]
        kinds = trace.texts["input_types"][types[first]] if types[first] >= 0 else "[]"
        if kernels.launches(operator, kernel):
            moved, flop = tensor_bytes(shapes, kinds), None
        elif operators.family_of(operator) == _FAMILY.get(kernels.CATEGORIES[rows.category[first]], "none"):
            values = concrete_inputs(trace, int(rows.op[first])) if operator in NEED_VALUES else None
            moved, flop = operator_work(operator, shapes, kinds, values)
            indices = indices[main[indices]]
        else:
            continue
        work.estimated[indices] = True
        work.bytes[indices] = np.nan if moved is None else moved
        work.flop[indices] = np.nan if flop is None else flop


def _is_main(trace: Trace, rows: Launches, multiplies: Mask) -> Mask:
    """Return which launch of an operator computes its result.

    Of several kernels of a family that is the longest: others prepare the result or sum it up. Two of ATen's own share
    the work in an unknown way. The backward of a convolution computes two results: only names show which kernel is
    for which.
    """
    of_category = [_FAMILY.get(name, "") for name in kernels.CATEGORIES]
    families = sorted(set(of_category))
    family = np.array([families.index(name) for name in of_category], np.int64)[rows.category]
    gradients = [_GRADIENTS[kernels.gradient_of(name)] for name in trace.names] or [0]
    gradient = np.array(gradients, np.int64)[rows.name]
    is_backward = mask_of(trace.names, operators.CONVOLUTION_BACKWARD.__eq__)
    of_two = np.where(rows.op >= 0, is_backward[trace.name[rows.op]], False)
    is_aten = family == families.index("aten")
    able = (family > 0) & (is_aten | multiplies)
    indices = np.flatnonzero(able & (rows.op >= 0) & (~of_two | (gradient > 0)))
    main = np.zeros(len(rows.index), bool)
    if len(indices):
        keys = np.stack([np.where(of_two, gradient, 0), family, rows.op])[:, indices]
        order = np.lexsort((rows.dur[indices], *keys))
        last = np.append((keys[:, order][:, 1:] != keys[:, order][:, :-1]).any(axis=0), True)
        alone = last & np.append(True, last[:-1])
        main[indices[order[np.where(is_aten[indices[order]], alone, last)]]] = True
    return main


def achieved(
    trace: Trace, rows: Launches, work: Work, indices: Int64s, peak: Peak, code: Definition | None
) -> dict[str, Any]:
    """Return the fields of `Kernel` that show what its launches achieved; code: as which inductor wrote it.

    Only launches count whose bytes (or operations) are known.
    """
    first, dur = indices[0], rows.dur[indices]
    category, name = kernels.CATEGORIES[rows.category[first]], trace.names[rows.name[first]]
    is_copy = int(rows.category[first]) in _COPIES
    top_gb_s = None if is_copy else peak.bandwidth_gb_s
    exact_bytes = code.num_gb * 1e9 if code and code.num_gb else None
    exact_flop = code.flop if code and kernels.may_multiply(name, category) else None
    moved, gb_s, bytes_from = _rate(work.bytes[indices], work.estimated[indices], exact_bytes, dur)
    flop, flop_per_ns, flop_from = _rate(work.flop[indices], work.estimated[indices], exact_flop, dur)
    tflop_s = None if flop_per_ns is None else flop_per_ns / 1e3
    precision = _precision(trace, work.types[indices], name)
    limit: float | None = getattr(peak, f"{precision}_tflop_s") if precision else None
    fastest = limit or peak.bf16_tflop_s
    if tflop_s is not None and fastest is not None and tflop_s > _MAX_OF_PEAK * fastest:
        flop, tflop_s, flop_from = np.full(len(flop), np.nan), None, None
    both = ~np.isnan(moved) & ~np.isnan(flop) & (moved > 0)
    return {
        "bandwidth_gb_s": gb_s,
        "bandwidth_percent": 100 * gb_s / top_gb_s if gb_s is not None and top_gb_s else None,
        "bandwidth_from": "copy" if is_copy and gb_s is not None else bytes_from,
        "tflop_s": tflop_s,
        "tflop_percent": 100 * tflop_s / limit if tflop_s is not None and limit else None,
        "tflop_from": flop_from,
        "flop_per_byte": float(flop[both].sum() / moved[both].sum()) if both.any() else None,
        "precision": None if tflop_s is None else precision,
        "bytes_per_launch": None if np.isnan(moved).all() else float(np.nanmean(moved)),
        "above_floor_us": None if is_copy else _above_floor_us(category, moved, flop, dur, peak, limit),
    }


def _rate(
    recorded: Floats, estimated: Mask, exact: float | None, dur_ns: Int64s
) -> tuple[Floats, float | None, WorkFrom | None]:
    """Return the amount of each launch, the amount per ns where it is known (bytes give GB/s), and what reported it.

    exact: by the generated code, where inductor counted it.
    """
    unknown = np.isnan(recorded)
    amount = np.where(unknown | estimated, exact, recorded) if exact else recorded
    is_estimate = not exact and bool((estimated & ~unknown).any())
    known = ~np.isnan(amount)
    time = int(dur_ns[known].sum())
    if not time:
        return amount, None, None
    return amount, float(amount[known].sum()) / time, "shapes" if is_estimate else "inductor"


def _precision(trace: Trace, codes: Int64s, name: str) -> Precision | None:
    """Return the precision by the type of the first tensor, for float32 by whether the kernel uses tensor cores."""
    types = decoded(trace.texts["input_types"][codes.max()]) if codes.max() >= 0 else []
    first = next((kind for kind in types if kind), "")
    if first in operators.HALF_TYPES:
        return "bf16"
    if first != "float" or kernels.multiplies_three_times(name):
        return None
    rounds = kernels.rounds_to_tf32(name)
    return None if rounds is None else "tf32" if rounds else "fp32"


def _above_floor_us(
    category: kernels.Category, moved: Floats, flop: Floats, dur: Int64s, peak: Peak, tflop_s: float | None
) -> float | None:
    """Return the time above the floor, of the launches whose floor is known."""
    needs_flop = category in kernels.PRODUCTS
    if not peak.bandwidth_gb_s or (needs_flop and not tflop_s):
        return None
    least = moved / peak.bandwidth_gb_s  # a byte per ns is a GB/s
    if tflop_s:
        least = np.fmax(least, flop / (1e3 * tflop_s))
    known = ~np.isnan(flop if needs_flop else least)
    return us((dur[known] - least[known].round()).clip(min=0).sum()) if known.any() else None
