"""Find where a compiled backward computes its forward again, as a checkpoint inside the graph asks for.

Inductor computes products of matrices, convolutions and attention again only when asked to. Attention and convolutions
have backwards of another name: if they run forward in a backward, that is certain. A product has two gradients at most:
of more products, those are no gradients that look like forward by operator, sizes and kernels.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.generated_code.user_lines import checkpoint_lines
from tb_torchcompile_plugin.profile.columns import codes_of, mask_of
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.compiled.regions import all_calls, region_calls
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import launch_sequence
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.nest import outermost_ancestor
from tb_torchcompile_plugin.torch_names.operators import heavy_work

_MIN_EXTRA_PRODUCTS = 2  # of one backward, beyond those that gradients need
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

    row: int
    begin: int
    end: int
    kind: str
    key: _Key


class _Graph(NamedTuple):
    """One run of a compiled graph, forward or backward, with its heavy calls in order of time."""

    compile_id: str
    begin: int
    end: int
    heavy: list[_Heavy]


def recomputed(profile: Profile) -> list[Recomputed]:
    """Return what backwards compute again, by compile id and in order of time."""
    if not profile.of(Ownership).backwards:
        return []
    trace, names = profile.trace, profile.of(Ownership).names
    forwards, backwards = [], []
    for call in all_calls(profile.of(region_calls)):
        forwards += [(call.compile_id, call.index, begin, end) for begin, end in call.graphs]
    for row, code in profile.of(Ownership).backwards:
        begin = int(trace.ts[row])
        backwards.append((names[code], row, begin, begin + int(trace.dur[row])))
    forward = _by_id(profile, forwards)
    return [
        row
        for name, graphs in _by_id(profile, backwards).items()
        if name in forward
        for row in _recomputed(profile, name, forward[name], graphs)
    ]


def _recomputed(
    profile: Profile, name: str, forwards: list[_Graph], backwards: list[_Graph]
) -> Iterator[Recomputed]:
    """Yield what the backwards of one compilation compute again."""
    data = profile.data
    forward_keys = {call.key for graph in forwards for call in graph.heavy}
    # Of the forward that does most: others may be cut off, and DDP splits a graph into several.
    products = max(_products(graph.heavy) for graph in forwards)
    for graph in backwards:
        runs = groupby(graph.heavy, lambda call: call.kind != "gradient" and call.key in forward_keys)
        stretches = [list(calls) for is_forward, calls in runs if is_forward]
        # A backward without a gradient by name may be a library's, which calls a forward or more products.
        has_gradient = any(call.kind == "gradient" for call in graph.heavy)
        has_forward = any(map(_has_forward, stretches))
        is_certain = has_gradient and has_forward
        extra = _products(graph.heavy) - 2 * products
        extra = extra if extra >= _MIN_EXTRA_PRODUCTS else 0
        # The texts of graphs are read only where they decide.
        if not is_certain and not ((has_forward or extra) and data and data.of(checkpoint_lines, name)):
            continue
        for calls in _chosen(stretches, extra):
            row, begin, end = calls[0].row, calls[0].begin, calls[-1].end
            earliest = max((call.end for call in graph.heavy if call.end <= begin), default=graph.begin)
            latest = min((call.begin for call in graph.heavy if call.begin >= end), default=graph.end)
            moments = [(call.row, call.begin, call.end) for call in calls]
            yield Recomputed(graph.compile_id, moments, (row, begin, end), (row, earliest, latest))


def _has_forward(stretch: list[_Heavy]) -> bool:
    return any(call.kind == "forward" for call in stretch)


def _products(calls: list[_Heavy]) -> int:
    return sum(call.kind == "product" for call in calls)


def _chosen(stretches: list[list[_Heavy]], extra: int) -> list[list[_Heavy]]:
    """Return those with what only a forward does; of the others, the longest first, as many products as are extra."""
    chosen = [stretch for stretch in stretches if _has_forward(stretch)]
    left = extra - sum(map(_products, chosen))
    others = [stretch for stretch in stretches if stretch not in chosen]
    for stretch in sorted(others, key=len, reverse=True):
        if len(stretch) <= left:
            chosen.append(stretch)
            left -= len(stretch)
    return sorted(chosen)


def _by_id(profile: Profile, runs: Iterable[tuple[str, int, int, int]]) -> dict[str, list[_Graph]]:
    """Return by compile id the graphs that do anything heavy; runs: (id, a slice of its thread, begin, end)."""
    graphs: dict[str, list[_Graph]] = defaultdict(list)
    for name, row, begin, end in runs:
        calls = profile.of(_heavy_calls).get(int(profile.trace.track[row]), [])
        first, last = (bisect_left(calls, time, key=attrgetter("begin")) for time in (begin, end))
        if first < last:
            graphs[name].append(_Graph(name, begin, end, calls[first:last]))
    return graphs


def _heavy_calls(profile: Profile) -> dict[int, list[_Heavy]]:
    """Return by thread, in order of time, the outermost operators that launched heavy work."""
    trace, queue = profile.trace, profile.of(gpu_queue)
    is_heavy = mask_of(trace.names, lambda name: heavy_work(name) is not None)
    if not is_heavy.any():
        return {}
    launches = profile.of(launch_sequence).row[queue.point].astype(np.int64)
    outermost = outermost_ancestor(trace.parent, launches, lambda at: is_heavy[trace.name[at]])
    generated = mask_of(trace.names, lambda name: name.startswith("triton_"))
    kernels: dict[int, set[int]] = defaultdict(set)  # codes of names, by row of the operator
    for row, code in zip(outermost.tolist(), trace.name[queue.row].tolist()):
        if row >= 0:  # generated kernels have other numbers in each graph: their operator identifies them
            kernels[row] |= set() if generated[code] else {code}
    rows = np.array(sorted(kernels, key=trace.ts.__getitem__), np.int64)
    calls: dict[int, list[_Heavy]] = defaultdict(list)
    for row, size in zip(rows.tolist(), codes_of(trace, "input_dims", rows).tolist()):
        name, begin = trace.names[trace.name[row]], int(trace.ts[row])
        kind = heavy_work(name) or ""
        key = (_NUMBER.sub("", name), size, frozenset(kernels[row] if kind == "product" else ()))
        calls[int(trace.track[row])].append(_Heavy(row, begin, begin + int(trace.dur[row]), kind, key))
    return calls
