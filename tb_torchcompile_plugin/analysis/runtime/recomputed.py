"""Find where a compiled backward computes its forward again, as a checkpoint inside the graph asks for.

Inductor computes products of matrices, convolutions and attention again only when asked to. Attention and convolutions
have backwards of another name: if they run forward in a backward, that is certain, and so are the products next to them
that look like forward by operator, sizes and kernels.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.generated_code.user_lines import checkpoint_lines
from tb_torchcompile_plugin.profile.columns import codes_of, mask_of
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import all_calls, region_calls
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import launch_sequence
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.nest import outermost_ancestor
from tb_torchcompile_plugin.torch_names.operators import heavy_work

_NUMBER = re.compile(r"_\d+$")  # of a kernel in its graph
Moment = tuple[int, int, int]  # a slice of its thread, begin and end (ns)
_Key = tuple[str, int, frozenset[int]]  # what a call computes: its name, sizes and, of a product, kernels


class Recomputed(NamedTuple):
    """A stretch of a compiled backward that computes its forward again."""

    compile_id: str
    heavy: list[Moment]  # its heavy operators, in order of time
    likely: Moment  # from the first one to the last
    widest: Moment  # from the end of the heavy one before to the begin of the next one


class _Heavy(NamedTuple):
    """A call of an operator that launches heavy work."""

    moment: Moment
    kind: str
    key: _Key


def recomputed(profile: Profile) -> Iterator[Recomputed]:
    """Yield what backwards compute again, in order of time."""
    trace, ownership, data = profile.trace, profile.of(Ownership), profile.data
    forward: dict[str, set[_Key]] = defaultdict(set)
    for call in all_calls(profile.of(region_calls)) if ownership.backwards else ():
        for graph in call.graphs:
            forward[call.compile_id] |= {operator.key for operator in _inside(profile, call.index, graph)}
    for row, code in ownership.backwards:
        begin, keys = int(trace.ts[row]), forward[ownership.names[code]]
        end = begin + int(trace.dur[row])
        heavy = _inside(profile, row, (begin, end))
        # A backward without a gradient by name may be a library's, which calls a forward: then the log decides.
        is_certain = any(operator.kind == "gradient" for operator in heavy)
        if not is_certain and not (data and data.of(checkpoint_lines, ownership.names[code])):
            continue
        begins = [*(operator.moment[1] for operator in heavy), end]
        ends = [begin, *(operator.moment[2] for operator in heavy)]
        again = [operator.kind != "gradient" and operator.key in keys for operator in heavy]
        for is_again, group in groupby(range(len(heavy)), again.__getitem__):
            indices = list(group)
            if is_again and any(heavy[index].kind == "forward" for index in indices):
                first, last = indices[0], indices[-1]
                moments = [heavy[index].moment for index in indices]
                likely, widest = (begins[first], ends[last + 1]), (ends[first], begins[last + 1])
                yield Recomputed(ownership.names[code], moments, (row, *likely), (row, *widest))


def _inside(profile: Profile, row: int, edges: tuple[int, int]) -> list[_Heavy]:
    """Return the heavy calls that begin between two moments (ns) on the thread of this slice."""
    trace, (rows, calls) = profile.trace, profile.of(_heavy_calls)
    first, last = trace.track_bounds[trace.track[row] :][:2].tolist()
    bounds = np.searchsorted(rows, first + np.searchsorted(trace.ts[first:last], edges))
    return calls[slice(*bounds.tolist())]


def _heavy_calls(profile: Profile) -> tuple[Int64s, list[_Heavy]]:
    """Return the outermost operators that launched heavy work, and their rows in order."""
    trace, queue = profile.trace, profile.of(gpu_queue)
    is_heavy = mask_of(trace.names, lambda name: heavy_work(name) is not None)
    launches = profile.of(launch_sequence).row[queue.point].astype(np.int64)
    outermost = outermost_ancestor(trace.parent, launches, lambda at: is_heavy[trace.name[at]])
    kernels: dict[int, set[int]] = defaultdict(set)  # codes of names, by row of the operator
    for row, code in zip(outermost.tolist(), trace.name[queue.row].tolist()):
        if row >= 0:  # generated kernels have other numbers in each graph: their operator identifies them
            kernels[row] |= set() if trace.names[code].startswith("triton_") else {code}
    rows, calls = np.array(sorted(kernels), np.int64), []
    for row, size in zip(rows.tolist(), codes_of(trace, "input_dims", rows).tolist()):
        name, begin = trace.names[trace.name[row]], int(trace.ts[row])
        kind = heavy_work(name) or ""
        key = (_NUMBER.sub("", name), size, frozenset(kernels[row] if kind == "product" else ()))
        calls.append(_Heavy((row, begin, begin + int(trace.dur[row])), kind, key))
    return rows, calls
