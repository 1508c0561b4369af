"""Which `nn.Module` took the time, on the host and on the device? From the module calls that `with_stack` records.

Calls with the same modules around them are one row of a tree. GPU work belongs to the innermost module around the
operator that launched it, in backward around the forward operator with the same sequence number. Inside compiled code
torch calls no modules: what the compiled graph tells of them stands below the module that ran it, and without stacks
below the frame that was compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import duration, plural
from tb_torchcompile_plugin.analysis.runtime.source import shares
from tb_torchcompile_plugin.analysis.runtime.source_lines import LineLaunches, line_launches
from tb_torchcompile_plugin.analysis.sheet import head
from tb_torchcompile_plugin.compile_log.record import forward_compilations
from tb_torchcompile_plugin.generated_code.user_lines import ROOT
from tb_torchcompile_plugin.profile.columns import distinct, mask_of, sums
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.host.host_tree import host_tree, merged_stacks
from tb_torchcompile_plugin.profile.host.operator_calls import forwards, operator_calls
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.torch_names.python_frames import is_module_call, module_of, resumed_from
from tb_torchcompile_plugin.torch_names.slices import PYTHON_FUNCTION

# What do the modules inside of compiled code take? torch calls none there: the compiled graph names them. A
# kernel that computes several modules counts for each in equal parts of whole nanoseconds, and one of which
# nothing tells for the module that was compiled.


@dataclass
class GraphModule:
    """Kernel time (ns) of one path itself, what it holds left out."""

    forward: int = 0
    backward: int = 0
    compile_ids: set[str] = field(default_factory=set)

    def add(self, of: LineLaunches, ns: int) -> None:
        if of.backward:
            self.backward += ns
        else:
            self.forward += ns
        self.compile_ids.add(of.kernel.compile_id or "")


def graph_modules(profile: Profile, owner: Mapping[str, Hashable]) -> dict[Hashable, dict[str, GraphModule]]:
    """By the owner of a compile id (of others the compiled frame) the modules inside by path, those between
    included. Frames whose graphs name no module are left out."""
    known = [one for one in profile.of(line_launches) if one.kernel.compile_id]
    frames = _frames(profile)
    by_owner = grouped(
        known, lambda one: owner.get(one.kernel.compile_id or "", frames.get(one.kernel.compile_id or "", ""))
    )
    return {key: _by_path(mine) for key, mine in by_owner.items() if any(any(one.modules) for one in mine)}


def _by_path(launches: Iterable[LineLaunches]) -> dict[str, GraphModule]:
    modules: dict[str, GraphModule] = {}
    whole = 0
    for one in launches:
        paths = one.modules or [ROOT]
        for path, ns in zip(paths, shares(one.rows.dur[one.at], len(paths)).tolist()):
            modules.setdefault(path, GraphModule()).add(one, ns)
        whole += int(one.rows.dur[one.at].sum())
    assert sum(row.forward + row.backward for row in modules.values()) == whole
    return _with_containers(modules)


def _with_containers(modules: dict[str, GraphModule]) -> dict[str, GraphModule]:
    """And those that hold them, up to the one that was compiled."""
    for path in [*modules]:
        while path:
            ids, path = modules[path].compile_ids, path.rpartition(".")[0]
            modules.setdefault(path, GraphModule()).compile_ids.update(ids)
    return modules


def _frames(profile: Profile) -> dict[str, str]:
    """Compile id → "forward (model.py:17)", the frame that was compiled: what goes on after a break is the same one."""
    frames: dict[str, str] = {}
    for (_, compile_id), row in forward_compilations(profile.summary).items() if profile.summary else ():
        resumed = resumed_from(row.function)
        frames[compile_id] = f"{resumed[0] if resumed else row.function} ({row.file.rpartition('/')[2]})"
    return frames


_RECORDS_STACKS = "with_stack=True"


class Module(msgspec.Struct, frozen=True):
    """`parent`: place of the row of the module that called it, -1 for none. Device fields are None without GPU events.

    `self_…` is without the modules it called; `backward_device_us` is no part of `device_us`. `compile_ids`: of what
    it ran itself, empty where all of it was eager. in_graph: of a compiled graph, its `name` being its path: a part of
    what the module around it launched itself. There calls and host time are None, but for C++ kernels on the CPU.
    slices, kernels_of: what its calls are called on the timeline, and its kernels by module, where it has those.
    """

    name: Annotated[str, head("Module")]
    parent: int
    depth: int
    in_graph: Annotated[bool, head("In a compiled graph", hidden=True)]
    host_us: Annotated[float | None, head(bar=True)]
    self_host_us: float | None
    device_us: Annotated[float | None, head(bar=True)]
    self_device_us: float | None
    backward_device_us: Annotated[float | None, head("GPU in backward", bar=True)]
    calls: int | None
    compile_ids: Annotated[list[str], head("Compiled")]
    slices: str | None
    kernels_of: str | None


class Modules(msgspec.Struct, frozen=True):
    """Callers come before what they called. code: what records stacks, where there were none, and so no calls."""

    says: tuple[str, ...]
    modules: tuple[Module, ...]
    code: str | None


def modules(profile: Profile) -> Modules:
    trace, tree, calls = profile.trace, profile.of(host_tree), profile.of(operator_calls)
    is_module = mask_of(trace.names, is_module_call)[trace.name[tree.index]]
    is_module &= tree.python
    position = np.flatnonzero(is_module)
    number = np.full(len(tree.index) + 1, -1, np.int64)  # the last answers for "none"
    number[position] = np.arange(len(position))
    caller = number[tree.nearest(tree.parent[position], is_module)]
    rows, row = merged_stacks(caller, trace.name[tree.index[position]])
    row = np.append(row, -1)
    around = row[number[tree.nearest(calls.position, is_module)]]
    backward = _backward(profile, around, lambda places: row[number[tree.nearest(places, is_module)]])
    parent = rows[0]
    dur = trace.dur[tree.index[position]]
    host = sums(row[:-1], dur, len(parent))
    inner = sums(row[caller], dur, len(parent))
    own = sums(around, calls.self_device_ns, len(parent))
    later = sums(backward, calls.self_device_ns, len(parent))
    return _modules(
        profile,
        rows,
        (sums(row[:-1], np.ones_like(dur), len(parent)), host, host - inner, own, later),
        around,
    )


def _backward(profile: Profile, around: Int64s, row_of: Callable[[Int64s], Int64s]) -> Int64s:
    """The row of the forward of each call that is in no module itself, -1 elsewhere."""
    tree, calls = profile.of(host_tree), profile.of(operator_calls)
    forward = np.append(forwards(profile.trace, tree), -1)
    linked = tree.nearest(calls.position, forward[:-1] >= 0)
    return np.where(around < 0, row_of(forward[linked]), -1)


def _modules(profile: Profile, rows: Int64s, figures: tuple[Int64s, ...], around: Int64s) -> Modules:
    called = _called(profile, rows, figures, around)
    inside = graph_modules(profile, _alone(called))
    nodes: list[_Node] = [*called]
    for owner, paths in inside.items():
        nodes += _graph_nodes(owner, paths, len(nodes))
    gpu = len(profile.of(gpu_work).index) > 0
    made = _in_order(nodes, gpu)
    recorded = PYTHON_FUNCTION in profile.trace.cats
    return Modules(tuple(_says(made, recorded)), tuple(made), None if recorded else _RECORDS_STACKS)


def _says(rows: list[Module], recorded: bool) -> Iterator[str]:
    yield _headline(rows)
    if any(row.in_graph for row in rows):
        yield (
            "torch calls no modules in compiled code: there the graph tells whose parameters and lines a kernel "
            "computes; one of several modules counts for each in equal parts."
        )
    if not recorded:
        yield (
            "Python stacks, and with them calls of modules, were not recorded. The next profile has them with this "
            "argument of torch.profiler.profile:"
        )


@dataclass
class _Node:
    """A row before it has its place; device times are its own (ns). parent: of all nodes, -1 for none."""

    name: str
    parent: int
    compile_ids: set[str]
    device: int
    backward: int
    calls: int | None = None
    host: int = 0
    self_host: int = 0

    @property
    def in_graph(self) -> bool:
        return self.calls is None


def _called(profile: Profile, rows: Int64s, figures: tuple[Int64s, ...], around: Int64s) -> list[_Node]:
    trace, calls = profile.trace, profile.of(operator_calls)
    parents, names = (column.tolist() for column in rows)
    nodes = [
        _Node(module_of(trace.names[name]) or "", parent, set(), own, later, count, host, self_host)
        for name, parent, count, host, self_host, own, later in zip(
            names, parents, *(column.tolist() for column in figures), strict=True
        )
    ]
    owners = profile.of(Ownership).compile_ids(calls.index)
    known = (around >= 0) & (owners >= 0)
    pairs, _ = distinct(around[known], owners[known])
    for row, owner in pairs.T.tolist():
        nodes[row].compile_ids.add(profile.of(Ownership).names[owner])
    return nodes


def _alone(nodes: list[_Node]) -> dict[str, int]:
    """Compile id → the place of the module that ran it, where it is the only one."""
    ran: dict[str, list[int]] = {}
    for place, node in enumerate(nodes):
        for compile_id in node.compile_ids:
            ran.setdefault(compile_id, []).append(place)
    return {compile_id: places[0] for compile_id, places in ran.items() if len(places) == 1}


def _graph_nodes(owner: Hashable, paths: dict[str, GraphModule], first: int) -> list[_Node]:
    """Containers before what they hold. The root is the module that ran the graph, where that is known."""
    is_module = isinstance(owner, int)
    place = {ROOT: owner if isinstance(owner, int) else first}
    nodes: list[_Node] = []
    for path in sorted(path for path in paths if path or not is_module):
        row, parent = paths[path], -1 if path == ROOT else place[path.rpartition(".")[0]]
        place[path] = first + len(nodes)
        nodes.append(_Node(path or str(owner), parent, row.compile_ids, row.forward, row.backward))
    return nodes


def _in_order(nodes: list[_Node], gpu: bool) -> list[Module]:
    parents = [node.parent for node in nodes]
    depth, device, backward = [0] * len(nodes), [node.device for node in nodes], [n.backward for n in nodes]
    for place, node in enumerate(nodes):
        depth[place] = depth[node.parent] + 1 if node.parent >= 0 else 0
    # What the module around a graph launched itself holds what stands in the graph.
    within = [node.in_graph and node.parent >= 0 and not nodes[node.parent].in_graph for node in nodes]
    for place in range(len(nodes) - 1, -1, -1):
        if parents[place] >= 0 and not within[place]:
            device[parents[place]] += device[place]
            backward[parents[place]] += backward[place]
    weight = [
        device[place] + backward[place] if node.in_graph else node.host for place, node in enumerate(nodes)
    ]
    order = _tree_order(parents, weight)
    at = {place: row for row, place in enumerate(order)} | {-1: -1}
    return [
        _module(nodes[place], at[parents[place]], depth[place], (device[place], backward[place]), gpu)
        for place in order
    ]


def _module(node: _Node, parent: int, depth: int, total: tuple[int, int], gpu: bool) -> Module:
    host = (None, None) if node.in_graph else (us(node.host), us(node.self_host))
    if node.in_graph and not gpu:
        host = us(total[0]), us(node.device)
    return Module(
        name=node.name,
        parent=parent,
        depth=depth,
        in_graph=node.in_graph,
        host_us=host[0],
        self_host_us=host[1],
        device_us=us(total[0]) if gpu else None,
        self_device_us=us(node.device) if gpu else None,
        backward_device_us=us(total[1]) if gpu else None,
        calls=node.calls,
        compile_ids=sorted(node.compile_ids),
        slices=None if node.in_graph else node.name,
        kernels_of=node.name if node.in_graph else None,
    )


def _headline(rows: list[Module]) -> str:
    """ "62 modules: ResNet_0 took 4.96 ms of GPU time in forward; most of its own has layer4.0.conv2: 510 µs." """
    if not rows:
        return "No modules in this span."
    first = rows[0]
    holding = {row.parent for row in rows if row.in_graph}
    most = max((row for place, row in enumerate(rows) if place not in holding), key=_own)
    spent = f"{duration(first.host_us or 0)} of host time"
    if first.device_us is not None:
        spent = f"{duration(first.device_us)} of GPU time"
    own = f"; {most.name} has most of its own, {duration(_own(most))}" if len(rows) > 1 and _own(most) else ""
    return f"{plural(len(rows), 'module')}: {first.name} took {spent} in forward{own}."


def _own(row: Module) -> float:
    return (row.self_host_us if row.self_device_us is None else row.self_device_us) or 0.0


def _tree_order(parents: list[int], weight: list[int]) -> list[int]:
    """Rows as a tree is read: each followed by what it called, the longest first."""
    children = grouped(range(len(parents)), parents.__getitem__)
    order: list[int] = []
    waiting = sorted(children.get(-1, []), key=lambda row: weight[row])
    while waiting:
        row = waiting.pop()
        order.append(row)
        waiting += sorted(children.get(row, []), key=lambda child: weight[child])
    return order
