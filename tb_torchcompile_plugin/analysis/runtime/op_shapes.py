"""Bytes and floating point operations of one call, from the shapes that the profiler recorded.

Estimates: each tensor counts once, dense, whatever a kernel really reads of it. A Triton kernel's arguments are all it
touches. Of a library's operators those are known whose result follows from their arguments: matrix products,
convolutions, attention, and what ATen computes element by element or sums up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from tb_torchcompile_plugin.profile.columns import codes_of, mask_of
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.nest import climb
from tb_torchcompile_plugin.torch_names import operators
from tb_torchcompile_plugin.torch_names.slices import OPERATOR

Shape = list[int]
CallWork = tuple[float | None, float | None]  # bytes, floating point operations
_UNKNOWN: CallWork = None, None


def tensor_bytes(dims: str, types: str) -> float | None:
    """The summed size of all tensors among the arguments; None where a type or a shape is not known."""
    shapes, kinds = decoded(dims), decoded(types)
    sizes = [
        math.prod(shape) * size
        for shape, kind in zip(shapes, kinds)
        if (size := operators.TYPE_BYTES.get(kind)) and is_shape(shape)
    ]
    strange = any(
        kind not in operators.TYPE_BYTES and kind not in ("", "Scalar", "ScalarList") for kind in kinds
    )
    return None if strange or not sizes else float(sum(sizes))


def asks_for_values(operator: str) -> bool:
    """Whether `operator_work` needs the values of arguments that are no tensors."""
    return operator in operators.WINDOWS or operator in operators.ATTENTION


def operator_work(name: str, dims: str, types: str, values: list[str] | None = None) -> CallWork:
    """(bytes, FLOP) of one call of a library's operator; (None, None) for one that is not known.

    values: "Concrete Inputs" of the call, where `asks_for_values`.
    """
    shapes, kinds = shapes_in(dims), decoded(types)
    try:
        if name in operators.PRODUCTS:
            return _product(shapes[operators.PRODUCTS[name] :], kinds[operators.PRODUCTS[name] :])
        if name in operators.WINDOWS and values:
            first = operators.WINDOWS[name]
            return _convolution(shapes, kinds, [*map(_sizes, values[first : first + 3])])
        if name == operators.CONVOLUTION_BACKWARD:
            return _of_three(kinds[0], *shapes[:3])
        if name in operators.ATTENTION and values:
            return _attention(operators.ATTENTION[name], shapes, kinds, values)
        if operators.family_of(name) == "aten":
            return _aten_bytes(name, dims, types), None
    except (IndexError, ValueError, TypeError, ZeroDivisionError, OverflowError):
        pass
    return _UNKNOWN


def _attention(
    where: operators.AttentionArguments, shapes: list[Shape], kinds: list[str], values: list[str]
) -> CallWork:
    """Two products of each query with each key it sees: one with the key, one with its value. The gradient makes
    the first anew, and of both those of either factor. Packed sequences of several lengths are not known."""
    query, key, value = shapes[where.query : where.query + 3]
    if len(query) != 4:
        return _UNKNOWN
    length, heads = where.sequence, 3 - where.sequence
    pairs = query[0] * query[heads] * query[length] * key[length]
    seen = pairs / 2 if _is_true(values[where.causal]) else float(pairs)
    products = (3 * query[3] + 2 * value[3]) if where.backward else (query[3] + value[3])
    result = math.prod(query[:3]) * value[3]
    numbers = math.prod(query) + math.prod(key) + math.prod(value) + result
    return _moved(kinds[where.query], numbers * (2 if where.backward else 1)), 2.0 * seen * products


def _is_true(value: str) -> bool:
    """A flag, or the number of a mask: 1 and 2 are causal."""
    return value in ("True", "1", "2")


def _aten_bytes(name: str, dims: str, types: str) -> float | None:
    """All arguments, and the result: as large as they make it together, of the type of the largest."""
    arguments = tensor_bytes(dims, types)
    if arguments is None or operators.touches_arguments_only(name):
        return arguments
    tensors = [
        (shape, operators.TYPE_BYTES[kind])
        for shape, kind in zip(decoded(dims), decoded(types))
        if kind in operators.TYPE_BYTES and is_shape(shape)
    ]
    if name.endswith("_"):
        shape, size = tensors[0]
    else:
        shape = _broadcast([shape for shape, _ in tensors])
        _, size = max(tensors, key=lambda row: (math.prod(row[0]), row[1]))  # not a mask's but the value's
    return arguments + float(size * math.prod(shape))


def _broadcast(shapes: list[Shape]) -> Shape:
    axes = max(map(len, shapes))
    aligned = ([1] * (axes - len(shape)) + shape for shape in shapes)
    return [max(sizes) if 0 not in sizes else 0 for sizes in zip(*aligned)]


def _product(shapes: list[Shape], kinds: list[str]) -> CallWork:
    *batch, rows, inner = shapes[0]
    columns = shapes[1][-1]
    many = math.prod(batch)
    numbers = many * (rows * inner + inner * columns + rows * columns)
    return _moved(kinds[0], numbers), 2.0 * many * rows * inner * columns


def _convolution(shapes: list[Shape], kinds: list[str], window: list[Shape]) -> CallWork:
    image, weight = shapes[0], shapes[1]
    padding, stride, dilation = window
    spatial = [
        (size + 2 * pad - gap * (taps - 1) - 1) // step + 1
        for size, taps, step, pad, gap in zip(image[2:], weight[2:], stride, padding, dilation, strict=True)
    ]
    return _of_three(kinds[0], [image[0], weight[0], *spatial], image, weight)


def _of_three(kind: str, result: Shape, image: Shape, weight: Shape) -> CallWork:
    """A convolution, or one of its two gradients: of result, image and weight two are read and one is written. Two
    operations for each number of the result and each weight that goes into it; the same for either gradient."""
    numbers = math.prod(image) + math.prod(weight) + math.prod(result)
    return _moved(kind, numbers), 2.0 * math.prod(result) * math.prod(weight[1:])


def _moved(kind: str, numbers: int) -> float | None:
    """Bytes of so many numbers; None where the size of their type is not known."""
    size = operators.TYPE_BYTES.get(kind)
    return None if size is None else float(size * numbers)


def shapes_in(dims: str) -> list[Shape]:
    """Of "Input Dims"; [] for what is no shape, such as those of several tensors."""
    return [shape if is_shape(shape) else [] for shape in decoded(dims)]


def tensors_in(dims: str) -> list[Shape]:
    """Of "Input Dims" the shapes of all tensors, those of lists of tensors among them; none of single numbers."""
    shapes: list[Shape] = []
    for entry in decoded(dims):
        shapes += [entry] if is_shape(entry) else filter(is_shape, entry if isinstance(entry, list) else [])
    return [shape for shape in shapes if shape]


def _sizes(text: str) -> Shape:
    """Raises ValueError where they are none."""
    sizes = json.loads(text)
    if not is_shape(sizes):
        raise ValueError(text)
    return list[int](sizes)


def decoded(text: str) -> list[Any]:
    """The list that a JSON text is; [] where it is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else []


def is_shape(value: object) -> bool:
    """Whether it is a list of whole numbers of which a tensor could be: others must not be calculated with, as texts
    can be multiplied, too."""
    if not isinstance(value, list) or not all(isinstance(size, int) for size in value):
        return False
    return bool(math.prod(max(1, abs(size)) for size in value) < 1 << 62)


# Which operator launched each piece of GPU work, and which tensors was it given?


def launching(profile: Profile) -> Int64s:
    """By work of the queue the innermost operator, or generated kernel, around its launch, as a slice; -1 for none."""
    queue, lane, trace = profile.of(gpu_queue), profile.of(host_lane), profile.trace
    is_operator = mask_of(trace.cats, OPERATOR.__eq__)[trace.cat]
    return np.asarray(climb(trace.parent, lane.row[queue.point].astype(np.int64), is_operator))


def tensors_of(profile: Profile, rows: Int64s) -> dict[int, list[Shape]]:
    """By slice the shapes of its tensors, those of lists among them."""
    return {row: tensors_in(text) for row, text in texts_of(profile, "input_dims", rows)}


def texts_of(
    profile: Profile, column: Literal["input_dims", "input_types"], rows: Int64s
) -> Iterator[tuple[int, str]]:
    """What was recorded of each slice's arguments, "" where nothing was."""
    texts = profile.trace.texts[column]
    for row, code in zip(rows.tolist(), codes_of(profile.trace, column, rows).tolist()):
        yield row, texts[code] if code >= 0 else ""
