"""Estimate the bytes and floating point operations of one call from the shapes that the profiler recorded.

Each tensor counts once, dense, whatever a kernel really reads of it. The arguments of a Triton kernel are all that it
touches. Library operators are known whose result follows from their arguments: matrix products, convolutions,
attention, and what ATen computes element by element or sums up.
"""

import json
import math
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.profile.columns import codes_of, mask_of
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import launch_sequence
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.nest import first_ancestor
from tb_torchcompile_plugin.torch_names import operators
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
