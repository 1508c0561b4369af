"""Which kernels compute attention that is written out: a product, a softmax over its rows, a product with that?

Told by the operators that launched them, in the order of their stream, and by recorded shapes; of compiled code by the
operators in a generated kernel's name. Not known without shapes, nor inside of CUDA graphs. What may bend scores
otherwise than by scale, bias, mask and dropout is left out, and so is a softmax over another axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis.runtime.op_shapes import Shape, decoded, shapes_in
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.profile.columns import codes_of, mask_of
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.nest import climb
from tb_torchcompile_plugin.torch_names import operators
from tb_torchcompile_plugin.torch_names.slices import OPERATOR

_NEAR = 12  # calls on either side of a softmax that are looked at
# Of smaller matrices of weights, or narrower ones, it is not known that fused attention is faster.
_LEAST_ROWS, _LEAST = 128, 512 * 512
_RECOMPUTED = 5 / 4  # fused attention makes the first product anew on the way back, beside the four


class WrittenAttention(NamedTuple):
    """One attention, forward or backward. work: places of its kernels in the GPU queue: products, and what passes over
    the matrix between them. product: the place of the last product. matrix: its shape. flop, moved: operations, and
    bytes of queries, keys, values and result (twice on the way back), as fused attention has them. kind: the type of
    the factors, in the trace's words."""

    way: operators.Way
    work: Int64s
    product: int
    matrix: Shape
    flop: float
    moved: float
    kind: str


class _Launching(NamedTuple):
    """An operator that launched work. row: in the trace. work: places in the queue. kinds: types of its arguments."""

    row: int
    name: str
    work: list[int]
    shapes: list[Shape]
    kinds: list[str]

    @property
    def factors(self) -> list[Shape]:
        """Of a batched product; [] of anything else."""
        first = operators.PRODUCTS[self.name] if self.name in operators.FLOP_BATCHED else None
        shapes = [] if first is None else self.shapes[first : first + 2]
        return shapes if [len(shape) for shape in shapes] == [3, 3] else []

    @property
    def result(self) -> Shape:
        """The shape of a product's result; [] of anything else."""
        return [*self.factors[0][:2], self.factors[1][2]] if self.factors else []

    @property
    def flop(self) -> float:
        return 2.0 * math.prod(self.factors[0]) * self.factors[1][2]

    def touches(self, matrix: Shape) -> bool:
        """Whether an argument has as many numbers."""
        return any(shape and math.prod(shape) == math.prod(matrix) for shape in self.shapes)

    def takes(self, matrix: Shape) -> bool:
        """Whether it multiplies the matrix, as it is or transposed."""
        batch, rows, columns = matrix
        return any(one in self.factors for one in (matrix, [batch, columns, rows]))


class _Refused(Exception):
    """Something happens to the weights that fused attention cannot do."""


def written_attention(profile: Profile) -> list[WrittenAttention]:
    """In the order of the queue. The way back counts where its forward does; where one is refused, none of its size is
    told."""
    by_work: dict[tuple[int, ...], WrittenAttention] = {}
    refused: list[int] = []
    for calls, place in profile.of(_softmaxes):
        try:
            if one := _around(profile, calls, place):
                by_work.setdefault(tuple(one.work.tolist()), one)
        except _Refused:
            refused += [math.prod(shape) for shape in calls[place].shapes]
    rows = [one for one in by_work.values() if math.prod(one.matrix) not in refused]
    known = [one.matrix for one in rows if one.way == "forward"]
    return [one for one in rows if one.matrix in known]


def _softmaxes(profile: Profile) -> list[tuple[list[_Launching], int]]:
    """Each softmax, forward or backward, as its place among the calls around it; not those of fused attention."""
    trace = profile.trace
    wanted = mask_of(trace.names, lambda name: operators.softmax_way(name) is not None)
    if not wanted.any():
        return []
    fused = mask_of(trace.names, operators.is_fused_attention)[trace.name]
    around = []
    for calls in _by_stream(profile):
        rows = np.array([row for row, _ in calls], np.int64)
        alone = (rows >= 0) & wanted[trace.name[rows]] & (climb(trace.parent, rows, fused) < 0)
        for place in np.flatnonzero(alone).tolist():
            first = max(place - _NEAR, 0)
            near = [_call(profile, *one) for one in calls[first : place + _NEAR + 1]]
            around.append((near, place - first))
    return around


def _by_stream(profile: Profile) -> Iterator[list[tuple[int, list[int]]]]:
    """The operators that launched the work of each stream, in its order, with the places of that work; -1: none."""
    queue, lane = profile.of(gpu_queue), profile.of(host_lane)
    is_operator = mask_of(profile.trace.cats, OPERATOR.__eq__)[profile.trace.cat]
    operator = climb(profile.trace.parent, lane.row[queue.point].astype(np.int64), is_operator)
    for stream in np.unique(queue.stream):
        here = np.flatnonzero(queue.stream == stream)
        pairs = zip(operator[here].tolist(), here.tolist())
        yield [(row, [place for _, place in own]) for row, own in groupby(pairs, lambda pair: pair[0])]


def _call(profile: Profile, row: int, work: list[int]) -> _Launching:
    if row < 0:
        return _Launching(row, "", work, [], [])
    trace = profile.trace
    dims, types = (codes_of(trace, name, np.array([row]))[0] for name in ("input_dims", "input_types"))
    shapes = shapes_in(trace.texts["input_dims"][dims]) if dims >= 0 else []
    kinds = decoded(trace.texts["input_types"][types]) if types >= 0 else []
    return _Launching(row, trace.names[trace.name[row]], work, shapes, kinds)


def _around(profile: Profile, calls: list[_Launching], place: int) -> WrittenAttention | None:
    """The attention whose softmax this is; None where it is of something else."""
    softmax = calls[place]
    way = operators.softmax_way(softmax.name)
    scores = next(
        (call.result for call in reversed(calls[:place]) if softmax.touches(call.result or [0])), None
    )
    if way is None or scores is None or min(scores[1:]) < _LEAST_ROWS or scores[1] * scores[2] < _LEAST:
        return None
    if way == "forward" and not _over_rows(profile, softmax, scores):
        return None
    before = _side(reversed(calls[:place]), scores, way)
    after = _side(calls[place + 1 :], scores, way)
    if not any(call.result == scores for call in before) or not any(call.takes(scores) for call in after):
        return None
    return _attention(way, scores, [*reversed(before), softmax, *after])


def _side(calls: Iterable[_Launching], matrix: Shape, way: operators.Way) -> list[_Launching]:
    """From a softmax on, one way: what passes over the matrix up to its product, or its two on the way back. Raises
    _Refused where something else happens to it."""
    side: list[_Launching] = []
    products = 0
    for call in calls:
        if operators.multiplies_matrices(call.name):
            if call.result != matrix and not call.takes(matrix):
                break
            side, products = [*side, call], products + 1
            if products == (1 if way == "forward" else 2):
                break
        elif call.touches(matrix) and not products:
            if operators.softmax_way(call.name) != way and not operators.keeps_scores(call.name):
                raise _Refused
            side.append(call)
    return side if products else []


def _attention(way: operators.Way, matrix: Shape, calls: list[_Launching]) -> WrittenAttention | None:
    products = [call for call in calls if call.factors]
    kind = next((str(kind) for kind in products[0].kinds if kind), "")
    size = operators.TYPE_BYTES.get(kind)
    if size is None:
        return None
    batch, rows, columns = matrix
    flop, back = sum(call.flop for call in products), way == "backward"
    wide = flop / len(products) / (2 * math.prod(matrix))  # numbers of a query, a key or a value, on average
    return WrittenAttention(
        way=way,
        work=np.array([place for call in calls for place in call.work], np.int64),
        product=products[-1].work[0],
        matrix=matrix,
        flop=flop * (_RECOMPUTED if back else 1.0),
        moved=2.0 * size * batch * (rows + columns) * wide * (2 if back else 1),
        kind=kind,
    )


def _over_rows(profile: Profile, softmax: _Launching, matrix: Shape) -> bool:
    """Whether a softmax is over the last axis of the matrix: an operator is told the axis, a generated kernel how many
    numbers it reduces, as its last argument."""
    try:
        values = profile.trace.args(softmax.row).get("Concrete Inputs")
        numbers = [int(value) for value in values if str(value).lstrip("-").isdecimal()] if values else []
    except (UserError, TypeError, ValueError):
        return False
    if operators.is_library_operator(softmax.name):
        return numbers[:1] in ([-1], [len(softmax.shapes[0]) - 1]) and softmax.shapes[0][-1:] == matrix[-1:]
    return numbers[-1:] == matrix[-1:]
