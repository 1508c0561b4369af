"""How many floating point operations did a call do? By torch's own rules for `with_flops`.

torch counts them for seven operators, but leaves them out of the trace it exports. They follow from what is in it where
`record_shapes` was on: the inputs' shapes, for a convolution also stride, padding, dilation and groups.
"""

from __future__ import annotations

import json
from math import prod
from typing import Any

import numpy as np

from tb_torchcompile_plugin.analysis.kernels.op_shapes import Shape, decoded, is_shape, shapes_in
from tb_torchcompile_plugin.profile.columns import codes_of, distinct, mask_of
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.operators import (
    CONVOLUTION,
    FLOP_BATCHED,
    FLOP_ELEMENTWISE,
    FLOP_FACTORS,
)

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
