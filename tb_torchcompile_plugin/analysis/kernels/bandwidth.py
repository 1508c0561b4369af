"""How many bytes did each launch move, and how many floating point operations did it do?

What inductor computed when it wrote the kernel is taken as it is: from the launch, else from the generated code. Where
it computed nothing, recorded shapes give an estimate. Copies say themselves what they moved. The rest is not known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_torchcompile_plugin.analysis.kernels.op_shapes import (
    CallWork,
    asks_for_values,
    operator_work,
    tensor_bytes,
)
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.profile.columns import Floats, Mask, alike, codes_of, distinct, mask_of, values_of
from tb_torchcompile_plugin.profile.gpu.launches import Launches, kernel_launches
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.kernels import (
    CATEGORIES,
    Category,
    gradient_of,
    is_triton,
    launches,
    multiplies,
)
from tb_torchcompile_plugin.torch_names.operators import CONVOLUTION_BACKWARD, Family, family_of

_TRITON = [code for code, name in enumerate(CATEGORIES) if is_triton(name)]
_FAMILY: dict[Category, Family] = {
    "gemm": "library",
    "convolution": "library",
    "attention": "attention",
    "normalization": "aten",
    "aten": "aten",
}
_GRADIENTS = {None: 0, "dgrad": 1, "wgrad": 2}


@dataclass(frozen=True)
class Work:
    """Columns beside those of a `Launches`; NaN where not known. estimated: from shapes. types: of the operator's
    tensors, as codes of texts, -1 where not known."""

    bytes: Floats
    flop: Floats
    estimated: Mask
    types: Int64s


def launched_work(profile: Profile) -> list[Work]:
    """Of each of `kernel_launches`."""
    return [work_of(profile.trace, rows) for rows in profile.of(kernel_launches)]


def work_of(trace: Trace, rows: Launches) -> Work:
    """Bytes and operations of each launch, as far as the trace tells."""
    count = len(rows.index)
    types = codes_of(trace, "input_types", rows.op)
    work = Work(np.full(count, np.nan), np.full(count, np.nan), np.zeros(count, bool), types)
    _copies(trace, rows, work)
    _from_shapes(trace, rows, work)
    _from_launches(trace, rows, work)
    return work


def _copies(trace: Trace, rows: Launches, work: Work) -> None:
    recorded = values_of(trace, "bytes", rows.index)
    copies = np.isin(rows.category, [CATEGORIES.index("memcpy"), CATEGORIES.index("memset")])
    work.bytes[copies] = recorded[copies]


def _from_launches(trace: Trace, rows: Launches, work: Work) -> None:
    """kernel_num_gb and kernel_flop. No operation at all says that inductor does not count them for this kernel."""
    gb = values_of(trace, "kernel_num_gb", rows.op)
    flop = values_of(trace, "kernel_flop", rows.op)
    known = np.isin(rows.category, _TRITON) & (gb > 0)
    work.bytes[known] = gb[known] * 1e9
    work.estimated[known] = False
    counted = np.isin(rows.category, _TRITON) & (flop > 0) & _multiply(trace, rows)
    work.flop[counted] = flop[counted]


def _multiply(trace: Trace, rows: Launches) -> Mask:
    """Which launches may do the operations of a product."""
    kinds, place = distinct(rows.name, rows.category)
    able = [multiplies(trace.names[name], CATEGORIES[code]) for name, code in kinds.T.tolist()]
    return np.array(able, bool)[place]


def _from_shapes(trace: Trace, rows: Launches, work: Work) -> None:
    """Launches of equal shapes are looked at once."""
    dims, types = codes_of(trace, "input_dims", rows.op), work.types
    called = np.where(rows.op >= 0, trace.name[rows.op], -1).astype(np.int64)
    main = _is_main(trace, rows)
    for places in alike(
        np.flatnonzero(dims >= 0), dims, types, called, rows.name, codes_of(trace, "grid", rows.index)
    ):
        one = places[0]
        operator, kernel = trace.names[called[one]], trace.names[rows.name[one]]
        shapes = trace.texts["input_dims"][dims[one]]
        kinds = trace.texts["input_types"][types[one]] if types[one] >= 0 else "[]"
        if launches(operator, kernel):
            moved, flop = tensor_bytes(shapes, kinds), None
        elif family_of(operator) == _FAMILY.get(CATEGORIES[rows.category[one]], "none"):
            moved, flop = _of_operator(trace, int(rows.op[one]), operator, shapes, kinds)
            places = places[main[places]]
        else:
            continue
        work.estimated[places] = True
        work.bytes[places] = np.nan if moved is None else moved
        work.flop[places] = np.nan if flop is None else flop


def _of_operator(trace: Trace, op: int, operator: str, shapes: str, kinds: str) -> CallWork:
    values = None
    if asks_for_values(operator):
        try:
            values = trace.args(op).get("Concrete Inputs")
        except UserError:
            return None, None
    return operator_work(operator, shapes, kinds, values if isinstance(values, list) else None)


def _is_main(trace: Trace, rows: Launches) -> Mask:
    """An operator may launch several kernels of a family: the longest computes the result, others prepare it or sum
    it up. Two of ATen's own share the work in a way that is not known.

    The backward of a convolution computes two results: only names tell which kernel is for which.
    """
    of_category = [_FAMILY.get(name, "") for name in CATEGORIES]
    families = sorted(set(of_category))
    family = np.array([families.index(name) for name in of_category], np.int64)[rows.category]
    gradient = np.array([_GRADIENTS[gradient_of(name)] for name in trace.names] or [0], np.int64)[rows.name]
    backward = mask_of(trace.names, CONVOLUTION_BACKWARD.__eq__)
    of_two = np.where(rows.op >= 0, backward[trace.name[rows.op]], False)
    is_aten = family == families.index("aten")
    able = (family > 0) & (is_aten | _multiply(trace, rows))
    places = np.flatnonzero(able & (rows.op >= 0) & (~of_two | (gradient > 0)))
    main = np.zeros(len(rows.index), bool)
    if len(places):
        keys = np.stack([np.where(of_two, gradient, 0), family, rows.op])[:, places]
        order = np.lexsort((rows.dur[places], *keys))
        last = np.append((keys[:, order][:, 1:] != keys[:, order][:, :-1]).any(axis=0), True)
        alone = last & np.append(True, last[:-1])
        main[places[order[np.where(is_aten[places[order]], alone, last)]]] = True
    return main
