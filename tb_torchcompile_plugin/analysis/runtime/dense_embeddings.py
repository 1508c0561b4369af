"""Find embeddings whose gradient is dense although a step looks up a small part of their rows.

They are recognised by recorded shapes of what fills a gradient with zeros and of what adds to rows of it: operators, or
those in a generated kernel's name; not inside CUDA graphs. A weight that is used elsewhere, too (tied weights), has a
dense gradient anyway and is left out; so is what sparse gradients cannot do, and all where NCCL would reduce them.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis.runtime import op_shapes
from tb_torchcompile_plugin.profile.columns import host_slices, mask_at, mask_of
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import launch_sequence
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.nest import first_ancestor
from tb_torchcompile_plugin.torch_names import operators
from tb_torchcompile_plugin.torch_names.kernels import category_of
from tb_torchcompile_plugin.torch_names.operators import ACCUMULATES, ACCUMULATION, SUMS, is_node

# Share of the rows looked up at a time. A dense gradient and a fused Adam move each number of the table 8 times, sparse
# ones each number of the rows looked up 40 times: break-even is at a fifth, and this is half of that.
_MAX_LOOKED_UP = 0.1
_MAX = "2"  # mode of a bag that takes the largest of its rows

Table = tuple[int, int]  # rows, columns


class DenseEmbedding(NamedTuple):
    """Embeddings of one shape."""

    shape: Table
    looked_up: float  # rows that a step looks up, at most
    calls: int  # gradients that are computed
    fills: Int64s  # indices into the GPU queue of what sets the gradients to zero
    tables: float  # how many embeddings there are
    share: float  # of the parameters of this shape that are embeddings

    @property
    def numbers(self) -> int:
        """Return how many numbers one of the tables has."""
        return math.prod(self.shape)


class _Fill(NamedTuple):
    """What fills a gradient with zeros."""

    lookup: int  # row of the slice that computes the gradient
    shape: Table
    work: int  # index in the GPU queue


def dense_embeddings(profile: Profile) -> list[DenseEmbedding]:
    """Return the embeddings of which a step looks up a small part, the largest first; [] where unknown."""
    if not len(profile.of(_lookups)):
        return []
    is_communication = mask_of(profile.trace.names, lambda name: category_of(name) == "communication")
    if is_communication[profile.trace.name[profile.of(gpu_queue).row]].any():
        return []
    rows = (_embedding(profile, shape, calls) for shape, calls in _looked_up(profile).items())
    return sorted((row for row in rows if row is not None), key=lambda row: -row.numbers)


def accumulated_gradients(profile: Profile) -> list[op_shapes.Shape]:
    """Return the shape of each gradient that is kept for a parameter, in the steps of the model."""
    lane, trace = profile.of(launch_sequence), profile.trace
    rows = host_slices(trace, ACCUMULATION.__eq__)
    rows = rows[(trace.ts[rows] >= lane.begin[0]) & (trace.ts[rows] < lane.end[-1])]
    return [shape for shapes in op_shapes.tensor_shapes(profile, rows).values() for shape in shapes[:1]]


def _lookups(profile: Profile) -> Int64s:
    """Return the slices that compute a dense gradient of an embedding which could be sparse."""
    trace = profile.trace
    computes_gradient = mask_of(trace.names, operators.is_embedding_backward)
    rows = np.unique(
        first_ancestor(trace.parent, profile.of(op_shapes.launching_operators), computes_gradient[trace.name])
    )
    return np.array([row for row in rows[rows >= 0].tolist() if _can_be_sparse(profile, row)], np.int64)


def _can_be_sparse(profile: Profile, row: int) -> bool:
    """Return whether rows are neither scaled by their frequency nor the largest of a bag: sparse gradients cannot."""
    arguments = operators.LOOKUP_BACKWARDS.get(profile.trace.names[profile.trace.name[row]])
    if arguments is None:
        return True
    inputs = op_shapes.concrete_inputs(profile.trace, row)
    values = dict(enumerate(inputs or ()))
    is_max = arguments.mode is not None and values.get(arguments.mode) == _MAX
    return inputs is not None and values.get(arguments.scaled) != "True" and not is_max


def _looked_up(profile: Profile) -> dict[Table, list[int]]:
    """Return by the shape of a filled gradient how many rows each call that adds to it names."""
    trace, rows, fills = profile.trace, profile.of(_lookups), profile.of(_fills)
    by_lookup = {fill.lookup: fill.shape for fill in fills}
    kinds = dict(op_shapes.argument_texts(profile, "input_types", rows))
    calls: dict[Table, list[int]] = {fill.shape: [] for fill in fills}
    for row, text in op_shapes.argument_texts(profile, "input_dims", rows):
        arguments = operators.LOOKUP_BACKWARDS.get(trace.names[trace.name[row]])
        shapes = op_shapes.shapes_in(text)
        if arguments:
            filled = [by_lookup[row]] if row in by_lookup else []
            indices = shapes[arguments.indices : arguments.indices + 1]
        else:  # a generated kernel: any tensor of whole numbers may name rows
            filled = [shape for shape in calls if list(shape) in shapes]
            typed = zip(shapes, op_shapes.decoded(kinds[row]))
            indices = [shape for shape, kind in typed if shape and kind in operators.INDICES]
        for shape in filled if indices else ():
            calls[shape].append(max(map(math.prod, indices)))
    return calls


def _fills(profile: Profile) -> list[_Fill]:
    """Return what fills such gradients with zeros: calls inside torch's operator, and kernels that do nothing else."""
    trace, launched, lookups = profile.trace, profile.of(op_shapes.launching_operators), profile.of(_lookups)
    rows = np.unique(launched[launched >= 0])
    lookup = first_ancestor(trace.parent, rows, mask_at(lookups, len(trace)))
    is_zero = mask_of(trace.names, operators.ZEROES.__contains__)[trace.name[rows]]
    fills = (lookup >= 0) & (is_zero | (lookup == rows))
    lookup_of, tensors = (
        dict(zip(rows.tolist(), lookup.tolist())),
        op_shapes.tensor_shapes(profile, rows[fills]),
    )
    return [
        _Fill(lookup_of[row], (shapes[0][0], shapes[0][1]), index)
        for index, row in enumerate(launched.tolist())
        if len(shapes := tensors.get(row, [])) == 1 and len(shapes[0]) == 2
    ]


def _embedding(profile: Profile, shape: Table, calls: list[int]) -> DenseEmbedding | None:
    """Return the embeddings of this shape; None for too many lookups, or gradients that may have two origins."""
    kept, computed = profile.of(accumulated_gradients).count(list(shape)), len(calls)
    if not kept or not computed or sum(calls) > _MAX_LOOKED_UP * shape[0] * computed:
        return None
    # A generated kernel that touches two tensors of this shape adds another gradient.
    rows, names = profile.of(_lookups), profile.trace.names
    generated = ~mask_of(names, operators.LOOKUP_BACKWARDS.__contains__)[profile.trace.name[rows]]
    texts = op_shapes.argument_texts(profile, "input_dims", rows[generated])
    if any(op_shapes.shapes_in(text).count(list(shape)) > 1 for _, text in texts):
        return None
    products = sum(sorted(result) == sorted(shape) for result in profile.of(_results))
    sums = _sums(profile, shape)
    is_separate = not sums and kept >= computed + products
    if not is_separate and (products or kept + sums > computed):
        return None
    fills = np.array([fill.work for fill in profile.of(_fills) if fill.shape == shape], np.int64)
    steps, share = profile.of(launch_sequence).steps, computed / kept if is_separate else 1.0
    # All micro-batches but the first add to the gradient that is there.
    tables = (kept - _sums(profile, shape, to_kept=True)) or kept
    return DenseEmbedding(shape, sum(calls) / steps, computed, fills, tables * share / steps, share)


def _results(profile: Profile) -> list[op_shapes.Shape]:
    """Return the shapes that products of two matrices give, and all that a template's kernel touches."""
    trace, rows = profile.trace, _operators(profile, operators.multiplies_matrices)
    results: list[op_shapes.Shape] = []
    for row, text in op_shapes.argument_texts(profile, "input_dims", rows):
        first = operators.PRODUCTS.get(trace.names[trace.name[row]])
        shapes = op_shapes.shapes_in(text)
        if first is None:
            results += shapes
            continue
        factors = shapes[first : first + 2]
        if len(factors) > 1 and all(len(shape) > 1 for shape in factors):
            results.append([factors[0][-2], factors[1][-1]])
    return results


def _sums(profile: Profile, shape: Table, *, to_kept: bool = False) -> int:
    """Return how often autograd sums two gradients of this shape before it keeps them, or adds to a kept one."""
    trace, rows = profile.trace, _operators(profile, SUMS.__contains__)
    node = first_ancestor(trace.parent, rows, mask_of(trace.names, is_node)[trace.name])
    accumulates = mask_of(trace.names, ACCUMULATES.__eq__)[trace.name[node]]
    tensors = op_shapes.tensor_shapes(profile, rows[(node >= 0) & (accumulates == to_kept)]).values()
    return sum(shapes[:2] == [list(shape)] * 2 for shapes in tensors)


def _operators(profile: Profile, is_wanted: Callable[[str], bool]) -> Int64s:
    """Return the operators of such a name that launched work."""
    rows, trace = np.unique(profile.of(op_shapes.launching_operators)), profile.trace
    rows = rows[rows >= 0]
    return np.asarray(rows[mask_of(trace.names, is_wanted)[trace.name[rows]]])
