"""Which embeddings have a dense gradient though a step looks up a small part of their rows?

Told by what fills the gradient with zeros and by what adds to rows of it, with recorded shapes: of eager code by
torch's own operators, of compiled code by the operators in a generated kernel's name. Not known without shapes, nor
inside of CUDA graphs. A weight that is multiplied, too, or used elsewhere (tied weights), has a dense gradient anyway
and is left out; so is what no sparse gradient can do, and all of it where ranks communicate: NCCL reduces none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis.runtime.op_shapes import (
    Shape,
    decoded,
    launching,
    shapes_in,
    tensors_of,
    texts_of,
)
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.profile.columns import host_slices, mask_of, place_mask
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.nest import climb
from tb_torchcompile_plugin.torch_names import operators
from tb_torchcompile_plugin.torch_names.kernels import category_of
from tb_torchcompile_plugin.torch_names.operators import ACCUMULATES, ACCUMULATION, SUMS, is_node

# Each time at most this share of the rows is looked up. Filled and gone over by a fused Adam, each number of the table
# is moved 8 times; sparse, each of the rows that were looked up 40 times. They are even at a fifth: this is half of it.
_MOST_LOOKED_UP = 0.1
_MAX = "2"  # how a bag is reduced

Table = tuple[int, int]  # rows, columns


class DenseEmbedding(NamedTuple):
    """Embeddings of one shape. looked_up: rows that a step names, at most. calls: gradients that are made of them.
    fills: places in the queue of what sets these to zero. tables: how many they are. share: of the parameters of this
    shape they are."""

    shape: Table
    looked_up: float
    calls: int
    fills: Int64s
    tables: float
    share: float

    @property
    def numbers(self) -> int:
        return math.prod(self.shape)


class _Fill(NamedTuple):
    """lookup: the slice that makes the gradient. place: in the queue, of what fills it."""

    lookup: int
    shape: Table
    place: int


def dense_embeddings(profile: Profile) -> list[DenseEmbedding]:
    """Those that a step looks up a small part of, the largest first; [] where they cannot be told."""
    if not len(profile.of(_lookups)) or _of_ranks(profile):
        return []
    tables = (_embedding(profile, shape, calls) for shape, calls in _looked_up(profile).items())
    return sorted((one for one in tables if one is not None), key=lambda one: -one.numbers)


def accumulated(profile: Profile) -> list[Shape]:
    """The shape of each gradient that is kept for a parameter, in the steps of the model."""
    lane, trace = profile.of(host_lane), profile.trace
    rows = host_slices(trace, ACCUMULATION.__eq__)
    rows = rows[(trace.ts[rows] >= lane.begin[0]) & (trace.ts[rows] < lane.end[-1])]
    return [shape for tensors in tensors_of(profile, rows).values() for shape in tensors[:1]]


def _operators(profile: Profile, wanted: Callable[[str], bool]) -> Int64s:
    """Those that launched work and are called so."""
    rows, trace = np.unique(profile.of(launching)), profile.trace
    rows = rows[rows >= 0]
    return np.asarray(rows[mask_of(trace.names, wanted)[trace.name[rows]]])


def _lookups(profile: Profile) -> Int64s:
    """Slices that make a dense gradient of an embedding which could be sparse."""
    trace = profile.trace
    wanted = mask_of(trace.names, operators.looks_back)
    if not wanted.any():
        return np.zeros(0, np.int64)
    rows = np.unique(climb(trace.parent, profile.of(launching), wanted[trace.name]))
    return np.array([row for row in rows[rows >= 0].tolist() if not _refused(profile, row)], np.int64)


def _refused(profile: Profile, row: int) -> bool:
    """Whether rows are scaled by how often they came, or the largest of a bag is taken: no sparse gradient can."""
    where = operators.LOOKUP_BACKWARDS.get(profile.trace.names[profile.trace.name[row]])
    if where is None:
        return False
    try:
        values = profile.trace.args(row).get("Concrete Inputs")
    except UserError:
        return True
    known = dict(enumerate(values)) if isinstance(values, list) else {}
    return known.get(where.scaled) == "True" or (where.mode is not None and known.get(where.mode) == _MAX)


def _of_ranks(profile: Profile) -> bool:
    """Whether ranks communicate."""
    named = mask_of(profile.trace.names, lambda name: category_of(name) == "communication")
    return bool(named[profile.trace.name[profile.of(gpu_queue).row]].any())


def _fills(profile: Profile) -> list[_Fill]:
    """What fills such gradients with zeros: what torch's own operator calls for that, and generated kernels that touch
    nothing else."""
    trace, launched, lookups = profile.trace, profile.of(launching), profile.of(_lookups)
    rows = np.unique(launched[launched >= 0])
    above = climb(trace.parent, rows, place_mask(lookups, len(trace)))
    zeroes = mask_of(trace.names, operators.ZEROES.__contains__)[trace.name[rows]]
    wanted = (above >= 0) & (zeroes | (above == rows))
    lookup, tensors = dict(zip(rows.tolist(), above.tolist())), tensors_of(profile, rows[wanted])
    return [
        _Fill(lookup[row], (shapes[0][0], shapes[0][1]), place)
        for place, row in enumerate(launched.tolist())
        if len(shapes := tensors.get(row, [])) == 1 and len(shapes[0]) == 2
    ]


def _looked_up(profile: Profile) -> dict[Table, list[int]]:
    """By shape of a gradient that is filled, how many rows each call names that adds to it."""
    trace, rows, fills = profile.trace, profile.of(_lookups), profile.of(_fills)
    by_lookup = {fill.lookup: fill.shape for fill in fills}
    kinds = dict(texts_of(profile, "input_types", rows))
    calls: dict[Table, list[int]] = {fill.shape: [] for fill in fills}
    for row, text in texts_of(profile, "input_dims", rows):
        own, shapes = operators.LOOKUP_BACKWARDS.get(trace.names[trace.name[row]]), shapes_in(text)
        filled = [shape for shape in calls if list(shape) in shapes]
        if own:
            filled = [by_lookup[row]] if row in by_lookup else []
        named = shapes[own.indices : own.indices + 1] if own else _indices(shapes, decoded(kinds[row]))
        for shape in filled if named else ():
            calls[shape].append(max(map(math.prod, named)))
    return calls


def _indices(shapes: list[Shape], kinds: list[str]) -> list[Shape]:
    """Which tensors of a generated kernel may name rows."""
    return [shape for shape, kind in zip(shapes, kinds) if shape and kind in operators.INDICES]


def _embedding(profile: Profile, shape: Table, calls: list[int]) -> DenseEmbedding | None:
    """Where each kept gradient of this shape is made by looking up alone, or has one origin; None where one may have
    several, or too many rows are looked up."""
    kept, made = profile.of(accumulated).count(list(shape)), len(calls)
    if not kept or not made or sum(calls) > _MOST_LOOKED_UP * shape[0] * made:
        return None
    if _is_summed(profile, shape):
        return None
    products = sum(sorted(one) == sorted(shape) for one in profile.of(_results))
    sums = _sums(profile, shape)
    apart = not sums and kept >= made + products
    if not apart and (products or kept + sums > made):
        return None
    fills = np.array([fill.place for fill in profile.of(_fills) if fill.shape == shape], np.int64)
    steps, share = profile.of(host_lane).steps, made / kept if apart else 1.0
    # Of several rounds all but the first add to what is there.
    tables = (kept - _sums(profile, shape, of_rounds=True)) or kept
    return DenseEmbedding(shape, sum(calls) / steps, made, fills, tables * share / steps, share)


def _is_summed(profile: Profile, shape: Table) -> bool:
    """Whether a generated kernel that looks back touches two tensors of this shape: it adds another gradient."""
    rows = profile.of(_lookups)
    rows = rows[
        ~mask_of(profile.trace.names, operators.LOOKUP_BACKWARDS.__contains__)[profile.trace.name[rows]]
    ]
    return any(shapes_in(text).count(list(shape)) > 1 for _, text in texts_of(profile, "input_dims", rows))


def _results(profile: Profile) -> list[Shape]:
    """The shapes that products of two matrices give, and all that a template's kernel touches."""
    trace, rows = profile.trace, _operators(profile, operators.multiplies_matrices)
    results: list[Shape] = []
    for row, text in texts_of(profile, "input_dims", rows):
        first = operators.PRODUCTS.get(trace.names[trace.name[row]])
        shapes = shapes_in(text)
        factors = [] if first is None else shapes[first : first + 2]
        if first is None:
            results += shapes
        elif all(len(shape) > 1 for shape in factors) and len(factors) > 1:
            results.append([factors[0][-2], factors[1][-1]])
    return results


def _sums(profile: Profile, shape: Table, *, of_rounds: bool = False) -> int:
    """How often autograd adds two gradients of this shape up, before it keeps them; or adds to one that is kept."""
    trace, rows = profile.trace, _operators(profile, SUMS.__contains__)
    node = climb(trace.parent, rows, mask_of(trace.names, is_node)[trace.name])
    kept = mask_of(trace.names, ACCUMULATES.__eq__)[trace.name[node]]
    tensors = tensors_of(profile, rows[(node >= 0) & (kept == of_rounds)]).values()
    return sum(shapes[:2] == [list(shape)] * 2 for shapes in tensors)
