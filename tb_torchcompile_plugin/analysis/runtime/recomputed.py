"""Where does a compiled backward compute what its forward had computed, as a checkpoint inside of the graph asks for?

Inductor computes cheap kernels anew in any backward. What is heavy, a product of matrices, a convolution or attention,
it does not, unless it is told to: so these tell. Attention and convolutions have backwards of their own, by name; that
they run forward in a backward tells for certain. Products do not, but each has two gradients at most: where a backward
has more than twice those of its forward, what looks like forward, by operator, sizes and kernels, is no gradient.
Nothing is known of graphs that run inside of CUDA graphs, whose operators are not recorded.
"""

from __future__ import annotations

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
from tb_torchcompile_plugin.profile.compiled.regions import every, region_calls
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.nest import ways_up
from tb_torchcompile_plugin.torch_names.operators import heavy_work

_LEAST = 2  # products more than gradients need, of one backward
_NUMBER = re.compile(r"_\d+$")  # of a kernel in its graph
_Key = tuple[str, int, frozenset[int]]  # what a call does: its name, sizes and, of a product, kernels


class Recomputed(NamedTuple):
    """A stretch of a compiled backward that computes anew. begin, end: of its heavy operators (ns), whose slices are
    `rows`. earliest, latest: where the last heavy operator before it ended, and the next one begins."""

    compile_id: str
    rows: list[int]
    begin: int
    end: int
    earliest: int
    latest: int


class _Heavy(NamedTuple):
    """A call of an operator that takes heavy work."""

    row: int
    begin: int
    end: int
    kind: str
    key: _Key


class _Graph(NamedTuple):
    """One run of a compiled graph, forward or backward, with what is heavy in it, in order of time."""

    compile_id: str
    begin: int
    end: int
    heavy: list[_Heavy]

    @property
    def products(self) -> int:
        return sum(one.kind == "product" for one in self.heavy)


def recomputed(profile: Profile) -> list[Recomputed]:
    """In the order of compile ids, of each in that of time."""
    heavy = profile.of(_heavy_calls) if profile.of(Ownership).backwards else {}
    forwards, backwards = (_by_id(runs(profile, heavy)) for runs in (_forwards, _backwards))
    return [
        one
        for name in backwards
        if name in forwards
        for one in _anew(forwards[name], backwards[name], _asks_for_checkpoints(profile, name))
    ]


def _asks_for_checkpoints(profile: Profile, name: str) -> bool:
    """Whether the captured graph, where it is kept, asks for checkpoints."""
    return profile.data is not None and bool(profile.data.of(checkpoint_lines, name))


def _anew(forwards: list[_Graph], backwards: list[_Graph], asked: bool) -> Iterator[Recomputed]:
    """Of the backwards of one compilation. Of its forwards the one that does most counts: of others begin or end may
    not be recorded, and DDP makes several graphs of one."""
    known = {one.key for graph in forwards for one in graph.heavy}
    products = max(graph.products for graph in forwards)
    for graph in backwards:
        alike = groupby(graph.heavy, lambda one: one.kind != "gradient" and one.key in known)
        stretches = [list(calls) for same, calls in alike if same]
        beyond = graph.products - 2 * products
        # A backward without one of its own by name may be a library's, which calls a forward or more products.
        named = any(one.kind == "gradient" for one in graph.heavy)
        certain = named and any(one.kind == "forward" for calls in stretches for one in calls)
        if not certain and not asked:
            continue
        for stretch in _chosen(stretches, beyond if beyond >= _LEAST else 0):
            yield _stretch(graph, stretch)


def _chosen(stretches: list[list[_Heavy]], beyond: int) -> list[list[_Heavy]]:
    """Those with what only a forward does; of the others, the longest first, as many products as are beyond need."""
    certain = [stretch for stretch in stretches if any(one.kind == "forward" for one in stretch)]
    left = beyond - sum(one.kind == "product" for stretch in certain for one in stretch)
    for stretch in sorted((one for one in stretches if one not in certain), key=len, reverse=True):
        if len(stretch) <= left:
            certain.append(stretch)
            left -= len(stretch)
    return sorted(certain)


def _stretch(graph: _Graph, calls: list[_Heavy]) -> Recomputed:
    first, last = calls[0], calls[-1]
    return Recomputed(
        compile_id=graph.compile_id,
        rows=[one.row for one in calls],
        begin=first.begin,
        end=last.end,
        earliest=max((one.end for one in graph.heavy if one.end <= first.begin), default=graph.begin),
        latest=min((one.begin for one in graph.heavy if one.begin >= last.end), default=graph.end),
    )


def _by_id(graphs: Iterable[_Graph]) -> dict[str, list[_Graph]]:
    """Those that do anything heavy, by compile id."""
    named: dict[str, list[_Graph]] = defaultdict(list)
    for graph in graphs:
        if graph.heavy:
            named[graph.compile_id].append(graph)
    return named


def _forwards(profile: Profile, heavy: dict[int, list[_Heavy]]) -> Iterator[_Graph]:
    for call in every(profile.of(region_calls)):
        for begin, end in call.graphs:
            yield _graph(profile, heavy, call.compile_id, call.index, (begin, end))


def _backwards(profile: Profile, heavy: dict[int, list[_Heavy]]) -> Iterator[_Graph]:
    trace, ownership = profile.trace, profile.of(Ownership)
    for row, code in ownership.backwards:
        begin = int(trace.ts[row])
        yield _graph(profile, heavy, ownership.names[code], row, (begin, begin + int(trace.dur[row])))


def _graph(
    profile: Profile, heavy: dict[int, list[_Heavy]], name: str, row: int, moment: tuple[int, int]
) -> _Graph:
    """row: a slice of the thread that ran it."""
    calls = heavy.get(int(profile.trace.track[row]), [])
    first, last = (bisect_left(calls, time, key=attrgetter("begin")) for time in moment)
    return _Graph(name, *moment, calls[first:last])


def _heavy_calls(profile: Profile) -> dict[int, list[_Heavy]]:
    """By thread, in order of time: operators that launched heavy work, the outermost of those inside of each other."""
    trace = profile.trace
    kinds = [heavy_work(name) for name in trace.names]
    kernels = _kernels(profile)
    rows = np.array(sorted(kernels, key=trace.ts.__getitem__), np.int64)
    sizes = codes_of(trace, "input_dims", rows)
    calls: dict[int, list[_Heavy]] = defaultdict(list)
    for row, size in zip(rows.tolist(), sizes.tolist()):
        name, kind = trace.names[trace.name[row]], kinds[trace.name[row]] or ""
        mine = frozenset(kernels[row] if kind == "product" else ())
        begin = int(trace.ts[row])
        key = (_NUMBER.sub("", name), size, mine)
        calls[int(trace.track[row])].append(_Heavy(row, begin, begin + int(trace.dur[row]), kind, key))
    return calls


def _kernels(profile: Profile) -> dict[int, set[int]]:
    """Operators that launched heavy work, with the codes of the names of what they launched. Generated kernels have
    numbers of their own in each graph: those of templates are left out, their operator tells."""
    trace, queue = profile.trace, profile.of(gpu_queue)
    operator = _outermost(profile, profile.of(host_lane).row[queue.point].astype(np.int64))
    generated = mask_of(trace.names, lambda name: name.startswith("triton_"))
    kernels: dict[int, set[int]] = defaultdict(set)
    for row, code in zip(operator.tolist(), trace.name[queue.row].tolist()):
        if row >= 0:
            kernels[row] |= set() if generated[code] else {code}
    return kernels


def _outermost(profile: Profile, calls: Int64s) -> Int64s:
    """The outermost operator of heavy work around each call; -1 for none."""
    trace = profile.trace
    heavy = mask_of(trace.names, lambda name: heavy_work(name) is not None)
    outermost = np.full(len(calls), -1)
    if not heavy.any():
        return outermost
    for which, at in ways_up(trace.parent, calls):
        mine = heavy[trace.name[at]]
        outermost[which[mine]] = at[mine]
    return outermost
