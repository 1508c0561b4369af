"""Find attention that is written out: a matrix product, a softmax over its rows, and a product with the result.

It is recognised by recorded shapes and the operators that launched the kernels, or are in a generated kernel's name;
not inside CUDA graphs. Scores changed by anything but scale, bias, mask and dropout are left out.
"""

import math
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis.runtime.roofline import (
    Shape,
    argument_texts,
    concrete_inputs,
    decoded,
    launching_operators,
    shapes_in,
)
from tb_torchcompile_plugin.profile.columns import Int64s, mask_of
from tb_torchcompile_plugin.profile.model.launch_sequence import gpu_queue
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.nest import first_ancestor
from tb_torchcompile_plugin.torch_names import operators

_NEAR = 12  # operators searched on either side of a softmax
# Rows or columns, and numbers, of the smallest score matrix: below, fused attention is not known to be faster.
_MIN_ROWS, _MIN_NUMBERS = 128, 512 * 512
# Five products instead of four: the backward of fused attention computes the first product again.
_BACKWARD_FLOP_FACTOR = 5 / 4


class UnfusedAttention(NamedTuple):
    """One attention that is written out, forward or backward."""

    way: operators.Way
    work: Int64s  # indices into the GPU queue: the products, and what passes over the matrix between them
    product: int  # index of the last product in the GPU queue
    matrix: Shape  # shape of the scores
    flop: float  # operations, as fused attention does them
    # Bytes of queries, keys, values and result, as fused attention moves them; twice in backward.
    moved: float
    kind: str  # type of the factors, as the trace names it


class _OpCall(NamedTuple):
    row: int  # of the trace
    name: str
    work: list[int]  # indices into the GPU queue
    shapes: list[Shape]
    kinds: list[str]  # types of the arguments

    @property
    def factors(self) -> list[Shape]:
        """Return the shapes of a batched product's factors; [] for any other call."""
        if self.name not in operators.FLOP_BATCHED:
            return []
        first = operators.PRODUCTS[self.name]
        shapes = self.shapes[first : first + 2]
        return shapes if [len(shape) for shape in shapes] == [3, 3] else []

    @property
    def result(self) -> Shape:
        """Return the shape of a batched product's result; [] for any other call."""
        return [*self.factors[0][:2], self.factors[1][2]] if self.factors else []

    def touches(self, matrix: Shape) -> bool:
        """Return whether an argument has as many numbers as the matrix."""
        return any(shape and math.prod(shape) == math.prod(matrix) for shape in self.shapes)

    def multiplies(self, matrix: Shape) -> bool:
        """Return whether the matrix, as it is or transposed, is a factor."""
        batch, rows, columns = matrix
        return any(shape in self.factors for shape in (matrix, [batch, columns, rows]))


class _UnsupportedError(Exception):
    """Something happens to the weights that fused attention cannot do."""


def unfused_attention(profile: Profile) -> list[UnfusedAttention]:
    """Return each attention once, in queue order, of sizes that have a forward and no unsupported one."""
    if not any(map(operators.softmax_direction, profile.trace.names)):
        return []
    by_work: dict[tuple[int, ...], UnfusedAttention] = {}
    unsupported: list[int] = []
    for calls, index in _softmaxes(profile):
        try:
            if attention := _around(profile, calls, index):
                by_work.setdefault(tuple(attention.work.tolist()), attention)
        except _UnsupportedError:
            unsupported += [math.prod(shape) for shape in calls[index].shapes]
    rows = [row for row in by_work.values() if math.prod(row.matrix) not in unsupported]
    forward = [row.matrix for row in rows if row.way == "forward"]
    return [row for row in rows if row.matrix in forward]


def _softmaxes(profile: Profile) -> Iterator[tuple[list[_OpCall], int]]:
    """Yield the calls around each softmax that is not part of fused attention, and its index among them."""
    trace = profile.trace
    is_softmax = mask_of(trace.names, lambda name: operators.softmax_direction(name) is not None)
    is_fused = mask_of(trace.names, operators.is_fused_attention)[trace.name]
    streams, operator = profile.of(gpu_queue).stream, profile.of(launching_operators)
    for stream in np.unique(streams):
        indices = np.flatnonzero(streams == stream)
        pairs = zip(operator[indices].tolist(), indices.tolist())
        # Operators (row of the trace, -1: none) in order, each with the work that it launched.
        calls = [(row, [index for _, index in group]) for row, group in groupby(pairs, lambda pair: pair[0])]
        rows = np.array([row for row, _ in calls], np.int64)
        written_out = (
            (rows >= 0) & is_softmax[trace.name[rows]] & (first_ancestor(trace.parent, rows, is_fused) < 0)
        )
        for index in np.flatnonzero(written_out).tolist():
            first = max(index - _NEAR, 0)
            yield [_call(profile, *call) for call in calls[first : index + _NEAR + 1]], index - first


def _call(profile: Profile, row: int, work: list[int]) -> _OpCall:
    if row < 0:
        return _OpCall(row, "", work, [], [])
    rows = np.array([row], np.int64)
    _, dims = next(argument_texts(profile, "input_dims", rows))
    _, types = next(argument_texts(profile, "input_types", rows))
    return _OpCall(row, profile.trace.names[profile.trace.name[row]], work, shapes_in(dims), decoded(types))


def _around(profile: Profile, calls: list[_OpCall], index: int) -> UnfusedAttention | None:
    """Return the attention that this softmax is part of; None where it is part of something else."""
    softmax = calls[index]
    way = operators.softmax_direction(softmax.name)
    products = (call.result for call in reversed(calls[:index]))
    scores = next((result for result in products if softmax.touches(result or [0])), None)
    if way is None or scores is None:
        return None
    if min(scores[1:]) < _MIN_ROWS or scores[1] * scores[2] < _MIN_NUMBERS:
        return None
    if way == "forward" and not _is_over_rows(profile, softmax, scores):
        return None
    before = _side(reversed(calls[:index]), scores, way)
    after = _side(calls[index + 1 :], scores, way)
    has_products = any(call.result == scores for call in before)
    if not has_products or not any(call.multiplies(scores) for call in after):
        return None
    return _attention(way, scores, [*reversed(before), softmax, *after])


def _is_over_rows(profile: Profile, softmax: _OpCall, matrix: Shape) -> bool:
    """Return whether a softmax is over the last axis of the matrix."""
    values = map(str, concrete_inputs(profile.trace, softmax.row) or ())
    numbers = [int(value) for value in values if re.fullmatch(r"-?\d+", value)]
    if operators.is_library_operator(softmax.name):
        return numbers[:1] in ([-1], [len(softmax.shapes[0]) - 1]) and softmax.shapes[0][-1:] == matrix[-1:]
    return numbers[-1:] == matrix[-1:]  # the last argument of a generated kernel: how many numbers it reduces


def _side(calls: Iterable[_OpCall], matrix: Shape, way: operators.Way) -> list[_OpCall]:
    """Return the calls that pass over the matrix, from a softmax to its product (in backward to its two products)."""
    side: list[_OpCall] = []
    products = 0
    for call in calls:
        if operators.multiplies_matrices(call.name):
            if call.result != matrix and not call.multiplies(matrix):
                break
            side.append(call)
            products += 1
            if products == (1 if way == "forward" else 2):
                break
        elif call.touches(matrix) and not products:
            if operators.softmax_direction(call.name) != way and not operators.is_score_step(call.name):
                raise _UnsupportedError
            side.append(call)
    return side if products else []


def _attention(way: operators.Way, matrix: Shape, calls: list[_OpCall]) -> UnfusedAttention | None:
    """Return the figures of one attention; None where the size of its type is unknown."""
    products = [call for call in calls if call.factors]
    kind = next((str(kind) for kind in products[0].kinds if kind), "")
    size = operators.TYPE_BYTES.get(kind)
    if size is None:
        return None
    batch, rows, columns = matrix
    is_backward = way == "backward"
    flop = sum(2.0 * math.prod(call.factors[0]) * call.factors[1][2] for call in products)
    width = flop / len(products) / (2 * math.prod(matrix))  # mean numbers of a query, a key or a value
    return UnfusedAttention(
        way=way,
        work=np.array([index for call in calls for index in call.work], np.int64),
        product=products[-1].work[0],
        matrix=matrix,
        flop=flop * (_BACKWARD_FLOP_FACTOR if is_backward else 1.0),
        moved=2.0 * size * batch * (rows + columns) * width * (2 if is_backward else 1),
        kind=kind,
    )
