"""Bytes and floating point operations of one call, from the shapes that the profiler recorded.

Estimates: each tensor counts once, dense, whatever a kernel really reads of it. A Triton kernel's arguments are all it
touches. Of a library's operators those are known whose result follows from their arguments: matrix products,
convolutions, attention, and what ATen computes element by element or sums up.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Literal, NamedTuple

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
_WINDOWS = {"aten::cudnn_convolution": 2, "aten::miopen_convolution": 3}
_GRADIENT = "aten::convolution_backward"


class _Attention(NamedTuple):
    """Where the arguments of an attention operator stand. `sequence`: the axis of a query that counts its positions."""

    query: int
    sequence: int
    causal: int
    backward: bool = False


_ATTENTION = {
    "aten::_flash_attention_forward": _Attention(0, 1, 8),
    "aten::_flash_attention_backward": _Attention(1, 1, 11, backward=True),
    "aten::_efficient_attention_forward": _Attention(0, 1, 9),
    "aten::_efficient_attention_backward": _Attention(1, 1, 14, backward=True),
    "aten::_cudnn_attention_forward": _Attention(0, 2, 10),
    "aten::_cudnn_attention_backward": _Attention(1, 2, 14, backward=True),
    "aten::_scaled_dot_product_cudnn_attention": _Attention(0, 2, 6),
    "aten::_scaled_dot_product_cudnn_attention_backward": _Attention(1, 2, 14, backward=True),
}
# One result, as large as the arguments together make it; with a `_` at the end it takes the place of the first.
_ELEMENTWISE = re.compile(
    r"abs|add|addcdiv|addcmul|clamp|clamp_min|cos|div|elu|exp|gelu|gelu_backward|hardtanh|leaky_relu|lerp|log|masked_fill|"
    r"maximum|minimum|mul|native_layer_norm|neg|pow|reciprocal|relu|rsqrt|rsub|sigmoid|sigmoid_backward|silu|silu_backward|"
    r"sin|softplus|sqrt|sub|tanh|tanh_backward|threshold_backward|where|_softmax|_log_softmax"
)
_WRITTEN_ONLY = re.compile(r"copy_|fill_|zero_")  # the first argument is not read
_SUMMED = re.compile(r"sum|mean|prod|amax|amin|max|min|argmax|argmin|norm|linalg_vector_norm|var|std")

Shape = list[int]
CallWork = tuple[float | None, float | None]  # bytes, floating point operations
Family = Literal["library", "attention", "aten"]
_UNKNOWN: CallWork = None, None


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


def family_of(operator: str) -> Family | None:
    """Which kernels do the work of an operator: those of a library's products, of attention, or ATen's own."""
    if operator in _PRODUCTS or operator in _WINDOWS or operator == _GRADIENT:
        return "library"
    if operator in _ATTENTION:
        return "attention"
    plain = _plain(operator)
    return "aten" if any(rule.fullmatch(plain) for rule in (_ELEMENTWISE, _WRITTEN_ONLY, _SUMMED)) else None


def asks_for_values(operator: str) -> bool:
    """Whether `operator_work` needs the values of arguments that are no tensors."""
    return operator in _WINDOWS or operator in _ATTENTION


def operator_work(name: str, dims: str, types: str, values: list[str] | None = None) -> CallWork:
    """(bytes, FLOP) of one call of a library's operator; (None, None) for one that is not known.

    values: "Concrete Inputs" of the call, where `asks_for_values`.
    """
    shapes, kinds = _decoded(dims), _decoded(types)
    try:
        if name in _PRODUCTS:
            return _product(shapes[_PRODUCTS[name] :], kinds[_PRODUCTS[name] :])
        if name in _WINDOWS and values:
            first = _WINDOWS[name]
            return _convolution(shapes, kinds, [json.loads(text) for text in values[first : first + 3]])
        if name == _GRADIENT:
            return _gradient(shapes, kinds)
        if name in _ATTENTION and values:
            return _attention(_ATTENTION[name], shapes, kinds, values)
        if family_of(name) == "aten":
            return _aten_bytes(name, dims, types), None
    except (IndexError, ValueError, TypeError, ZeroDivisionError):
        pass
    return _UNKNOWN


def _plain(operator: str) -> str:
    """ "aten::add_" → "add", but "copy_" stays what it is."""
    name = operator.removeprefix("aten::")
    in_place = name.endswith("_") and not _WRITTEN_ONLY.fullmatch(name)
    return name[:-1] if in_place else name


def _attention(where: _Attention, shapes: list[Shape], kinds: list[str], values: list[str]) -> CallWork:
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
    size = _SIZES.get(kinds[where.query])
    moved = None if size is None else float(size * numbers * (2 if where.backward else 1))
    return moved, 2.0 * seen * products


def _is_true(value: str) -> bool:
    """A flag, or the number of a mask: 1 and 2 are causal."""
    return value in ("True", "1", "2")


def _aten_bytes(name: str, dims: str, types: str) -> float | None:
    """All arguments, and the result: as large as they make it together, of the type of the largest."""
    arguments = tensor_bytes(dims, types)
    plain = _plain(name)
    if arguments is None or _SUMMED.fullmatch(plain) or _WRITTEN_ONLY.fullmatch(plain):
        return arguments
    tensors = [
        (shape, _SIZES[kind])
        for shape, kind in zip(_decoded(dims), _decoded(types))
        if kind in _SIZES and _is_shape(shape)
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
    size = _SIZES.get(kinds[0])
    numbers = many * (rows * inner + inner * columns + rows * columns)
    return (None if size is None else float(size * numbers)), 2.0 * many * rows * inner * columns


def _convolution(shapes: list[Shape], kinds: list[str], window: list[Shape]) -> CallWork:
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


def _gradient(shapes: list[Shape], kinds: list[str]) -> CallWork:
    """Of one of the two gradients: of result, image and weight it reads two and writes what belongs to the third."""
    result, image, weight = shapes[:3]
    size = _SIZES.get(kinds[0])
    numbers = math.prod(result) + math.prod(image) + math.prod(weight)
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
