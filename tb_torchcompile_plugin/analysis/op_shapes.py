"""Bytes and floating point operations of one call, from the shapes that the profiler recorded.

Estimates: each tensor counts once, dense, whatever a kernel really reads of it. A Triton kernel's arguments are all it
touches. Of a library's operators those are known whose result follows from their arguments: matrix products and
convolutions.
"""

from __future__ import annotations

import json
import math
from typing import Any

_SIZES = {
    "bool": 1,
    "unsigned char": 1,
    "signed char": 1,
    "c10::Float8_e4m3fn": 1,
    "c10::Float8_e5m2": 1,
    "c10::Float8_e4m3fnuz": 1,
    "c10::Float8_e5m2fnuz": 1,
    "short": 2,
    "short int": 2,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "int": 4,
    "float": 4,
    "long": 8,
    "long int": 8,
    "double": 8,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
}
# Where the two factors stand among the arguments.
_PRODUCTS = {"aten::mm": 0, "aten::addmm": 1, "aten::bmm": 0, "aten::baddbmm": 1, "aten::_scaled_mm": 0}
# Where padding, stride and dilation begin among the arguments.
FIRST_WINDOW = {"aten::cudnn_convolution": 2, "aten::miopen_convolution": 3}
Shape = list[int]
Work = tuple[float | None, float | None]  # bytes, floating point operations


def tensor_bytes(dims: str, types: str) -> float | None:
    """The summed size of all tensors among the arguments; None where a type or a shape is not known."""
    shapes, kinds = _decoded(dims), _decoded(types)
    sizes = [
        math.prod(shape) * size
        for shape, kind in zip(shapes, kinds)
        if (size := _SIZES.get(kind)) and _is_shape(shape)
    ]
    strange = any(kind not in _SIZES and kind not in ("", "Scalar", "ScalarList") for kind in kinds)
    return None if strange or not sizes else float(sum(sizes))


def operator_work(name: str, dims: str, types: str, window: list[Shape] | None = None) -> Work:
    """(bytes, FLOP) of one call of a library's operator; (None, None) for one that is not known.

    window: padding, stride, dilation of a convolution, whose result follows from them.
    """
    shapes, kinds = _decoded(dims), _decoded(types)
    try:
        if name in _PRODUCTS:
            return _product(shapes[_PRODUCTS[name] :], kinds[_PRODUCTS[name] :])
        if name in FIRST_WINDOW and window:
            return _convolution(shapes, kinds, window)
        if name == "aten::convolution_backward":
            return None, _convolution_flop(shapes[0], shapes[2])
    except (IndexError, ValueError, TypeError, ZeroDivisionError):
        pass
    return None, None


def is_operator_known(name: str) -> bool:
    """Whether `operator_work` can tell something about it."""
    return name in _PRODUCTS or name in FIRST_WINDOW or name == "aten::convolution_backward"


def _product(shapes: list[Shape], kinds: list[str]) -> Work:
    *batch, rows, inner = shapes[0]
    columns = shapes[1][-1]
    many = math.prod(batch)
    size = _SIZES.get(kinds[0])
    numbers = many * (rows * inner + inner * columns + rows * columns)
    return (None if size is None else float(size * numbers)), 2.0 * many * rows * inner * columns


def _convolution(shapes: list[Shape], kinds: list[str], window: list[Shape]) -> Work:
    image, weight = shapes[0], shapes[1]
    padding, stride, dilation = window
    spatial = [
        (size + 2 * pad - gap * (taps - 1) - 1) // step + 1
        for size, taps, step, pad, gap in zip(image[2:], weight[2:], stride, padding, dilation, strict=True)
    ]
    result = [image[0], weight[0], *spatial]
    size = _SIZES.get(kinds[0])
    numbers = math.prod(image) + math.prod(weight) + math.prod(result)
    return (None if size is None else float(size * numbers)), _convolution_flop(result, weight)


def _convolution_flop(result: Shape, weight: Shape) -> float:
    """Two for each number of the result and each weight that goes into it; the same for either gradient."""
    return 2.0 * math.prod(result) * math.prod(weight[1:])


def _decoded(text: str) -> list[Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return []
    return value if isinstance(value, list) else []


def _is_shape(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(size, int) for size in value)
