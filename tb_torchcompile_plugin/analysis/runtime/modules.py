"""Show which `nn.Module` took the time on host and device, from the module calls that `with_stack` records.

Calls with the same modules around them are one row of a tree. GPU work belongs to the innermost module around the
operator that launched it, in backward around the forward operator with the same sequence number. What a compiled graph
names stands below the module that ran it, or below the compiled frame: torch calls no modules there.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import column_head, duration, plural
from tb_torchcompile_plugin.analysis.runtime import source_lines
from tb_torchcompile_plugin.compile_log.record import forward_compilations
from tb_torchcompile_plugin.generated_code.user_lines import ROOT
from tb_torchcompile_plugin.profile.columns import distinct, mask_of, sums, us
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.host.host_tree import forwards, host_tree, merged_stacks, operator_calls
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.torch_names.python_frames import is_module_call, module_of
from tb_torchcompile_plugin.torch_names.slices import PYTHON_FUNCTION


class Module(msgspec.Struct, frozen=True):
    """One module as it was called from its callers, or one that a compiled graph names."""

    name: Annotated[str, column_head("Module")]  # in a graph: its path
    parent: int  # row of the module that called it, -1 for none
    depth: int
    # In a graph, device times are part of what the module around it launched itself; calls and host times are None,
    # except for C++ kernels on the CPU.
    in_graph: Annotated[bool, column_head("In a compiled graph", hidden=True)]
    host_us: Annotated[float | None, column_head(bar=True)]
    self_host_us: float | None  # without the modules that it called
    device_us: Annotated[float | None, column_head(bar=True)]  # of forward; None without GPU events
    self_device_us: float | None
    backward_device_us: Annotated[float | None, column_head("GPU in backward", bar=True)]
    calls: int | None
    # Of what it ran itself; [] where all was eager.
    compile_ids: Annotated[list[str], column_head("Compiled")]
    slices: str | None  # name of its calls on the timeline
    kernels_of: str | None  # name of its kernels by module


class Modules(msgspec.Struct, frozen=True):
    """All modules; callers come before what they called."""

    sentences: tuple[str, ...]
    modules: tuple[Module, ...]
    code: str | None  # what records stacks, where there were none


@dataclass
class _Node:
    """A module before it has its row. Times are its own (ns), without what it called or contains."""

    name: str
    parent: int = -1  # index among all nodes, -1 for none
    compile_ids: set[str] = field(default_factory=set)
    device: int = 0
    backward: int = 0
    calls: int | None = None  # None in a graph
    host: int = 0  # with what it called
    self_host: int = 0
    all_device: int = 0  # this and the next one: with the modules that it called or contains
    all_backward: int = 0

    @property
    def in_graph(self) -> bool:
        return self.calls is None


def modules(profile: Profile) -> Modules:
    """Return all modules that were called, and those that compiled graphs name."""
    nodes = _called_modules(profile)
    pairs = [(compile_id, index) for index, node in enumerate(nodes) for compile_id in node.compile_ids]
    ran_by = grouped(pairs, lambda pair: pair[0])
    # Where one module alone ran a graph, what the graph names stands below that.
    only_module = {compile_id: rows[0][1] for compile_id, rows in ran_by.items() if len(rows) == 1}
    for owner, paths in _graph_modules(profile, only_module).items():
        nodes += _graph_nodes(owner, paths, len(nodes))
    rows = _in_order(nodes, len(profile.of(gpu_work).index) > 0)
    recorded = PYTHON_FUNCTION in profile.trace.cats
    return Modules(tuple(_says(rows, recorded)), tuple(rows), None if recorded else "with_stack=True")


def _says(rows: list[Module], recorded: bool) -> Iterator[str]:
    yield _headline(rows)
    if any(row.in_graph for row in rows):
        yield (
            "Compiled code does not call modules. Its graph shows which modules a kernel belongs to; these rows are "
            "part of the self time of the module that ran the graph. A kernel of several modules counts for each in "
            "equal parts."
        )
    if not recorded:
        yield (
            "Calls of modules were not recorded, because Python stacks were not. To record them, pass this to "
            "torch.profiler.profile:"
        )


def _headline(rows: list[Module]) -> str:
    """Return "62 modules: ResNet_0 took 4.96 ms of GPU time in forward. conv2 has the largest self time, …"."""
    if not rows:
        return "No modules in this span."
    first = rows[0]
    with_graphs = {row.parent for row in rows if row.in_graph}
    most = max((row for index, row in enumerate(rows) if index not in with_graphs), key=_own_us)
    spent = f"{duration(first.host_us or 0)} of host time"
    if first.device_us is not None:
        spent = f"{duration(first.device_us)} of GPU time"
    own = ""
    if len(rows) > 1 and _own_us(most):
        own = f" {most.name} has the largest self time, {duration(_own_us(most))}."
    return f"{plural(len(rows), 'module')}: {first.name} took {spent} in forward, in the whole span.{own}"


def _own_us(row: Module) -> float:
    return (row.self_host_us if row.self_device_us is None else row.self_device_us) or 0.0


def _called_modules(profile: Profile) -> list[_Node]:
    """Return the modules in the recorded stacks, callers first."""
    trace, tree, calls = profile.trace, profile.of(host_tree), profile.of(operator_calls)
    is_module = tree.python & mask_of(trace.names, is_module_call)[trace.name[tree.index]]
    position = np.flatnonzero(is_module)
    number = np.full(len(tree.index) + 1, -1, np.int64)  # the last stands for "none"
    number[position] = np.arange(len(position))
    caller = number[tree.nearest(tree.parent[position], is_module)]
    (parents, names), row_of = merged_stacks(caller, trace.name[tree.index[position]])
    row_of = np.append(row_of, -1)  # the last stands for "none"
    around = row_of[number[tree.nearest(calls.position, is_module)]]
    # A call that is in no module itself belongs to that of its forward.
    forward = np.append(forwards(trace, tree), -1)
    linked = forward[tree.nearest(calls.position, forward[:-1] >= 0)]
    backward = np.where(around < 0, row_of[number[tree.nearest(linked, is_module)]], -1)
    dur, count = trace.dur[tree.index[position]], len(parents)
    host = sums(row_of[:-1], dur, count)
    figures = (  # in the order of the fields
        sums(around, calls.self_device_ns, count),
        sums(backward, calls.self_device_ns, count),
        sums(row_of[:-1], np.ones_like(dur), count),
        host,
        host - sums(row_of[caller], dur, count),
    )
    nodes = [
        _Node(module_of(trace.names[name]) or "", parent, set(), *numbers)
        for parent, name, *numbers in np.vstack([parents, names, *figures]).T.tolist()
    ]
    ownership = profile.of(Ownership)
    owners = ownership.compile_ids(calls.index)
    known = (around >= 0) & (owners >= 0)
    for row, owner in distinct(around[known], owners[known])[0].T.tolist():
        nodes[row].compile_ids.add(ownership.names[owner])
    return nodes


def _graph_modules(profile: Profile, ran_by: dict[str, int]) -> dict[int | str, dict[str, _Node]]:
    """Return the modules that a graph names, by path: by the module that ran it, otherwise by the compiled frame."""
    compiled = forward_compilations(profile.summary) if profile.summary else {}
    frames = {
        compile_id: f"{source_lines.without_resume(row.function)} ({row.file.rpartition('/')[2]})"
        for (_, compile_id), row in compiled.items()
    }

    def owner(launches: source_lines.LineLaunches) -> int | str:
        compile_id = launches.kernel.compile_id or ""
        return ran_by.get(compile_id, frames.get(compile_id, ""))

    by_owner = grouped(
        (row for row in profile.of(source_lines.line_launches) if row.kernel.compile_id), owner
    )
    return {key: _by_path(rows) for key, rows in by_owner.items() if any(any(row.modules) for row in rows)}


def _by_path(launches: Iterable[source_lines.LineLaunches]) -> dict[str, _Node]:
    """Return what graphs name; a kernel of several modules counts for each in equal parts of whole nanoseconds."""
    nodes: dict[str, _Node] = {}
    total = 0
    for row in launches:
        dur, paths = row.rows.dur[row.at], row.modules or [ROOT]
        for path, ns in zip(paths, source_lines.shares(dur, len(paths)).tolist()):
            node = nodes.setdefault(path, _Node(path))
            node.compile_ids.add(row.kernel.compile_id or "")
            if row.backward:
                node.backward += ns
            else:
                node.device += ns
        total += int(dur.sum())
    assert sum(node.device + node.backward for node in nodes.values()) == total
    for path in [*nodes]:
        while path:  # add what contains it, up to the module that was compiled
            ids, path = nodes[path].compile_ids, path.rpartition(".")[0]
            nodes.setdefault(path, _Node(path)).compile_ids.update(ids)
    return nodes


def _graph_nodes(owner: int | str, nodes: dict[str, _Node], first: int) -> list[_Node]:
    """Return containers before what they contain; the root is the module that ran the graph, where that is known."""
    index_of = {ROOT: owner if isinstance(owner, int) else first}
    rows: list[_Node] = []
    for path in sorted(path for path in nodes if path or isinstance(owner, str)):
        node = nodes[path]
        node.name = path or str(owner)
        node.parent = -1 if path == ROOT else index_of[path.rpartition(".")[0]]
        index_of[path] = first + len(rows)
        rows.append(node)
    return rows


def _in_order(nodes: list[_Node], gpu: bool) -> list[Module]:
    """Return the rows as a tree is read: each followed by what it called, the longest first."""
    for node in reversed(nodes):
        node.all_device += node.device
        node.all_backward += node.backward
        # What a module launched itself includes the graphs that it ran.
        if node.parent >= 0 and node.in_graph == nodes[node.parent].in_graph:
            nodes[node.parent].all_device += node.all_device
            nodes[node.parent].all_backward += node.all_backward
    weight = [node.all_device + node.all_backward if node.in_graph else node.host for node in nodes]
    children = grouped(sorted(range(len(nodes)), key=weight.__getitem__), lambda index: nodes[index].parent)
    rows: list[Module] = []
    waiting = [(index, -1, 0) for index in children.get(-1, [])]  # with the row of its caller, and its depth
    while waiting:
        index, parent, depth = waiting.pop()
        waiting += [(child, len(rows), depth + 1) for child in children.get(index, [])]
        rows.append(_module(nodes[index], parent, depth, gpu))
    return rows


def _module(node: _Node, parent: int, depth: int, gpu: bool) -> Module:
    host = (None, None) if node.in_graph else (us(node.host), us(node.self_host))
    if node.in_graph and not gpu:
        host = us(node.all_device), us(node.device)
    return Module(
        name=node.name,
        parent=parent,
        depth=depth,
        in_graph=node.in_graph,
        host_us=host[0],
        self_host_us=host[1],
        device_us=us(node.all_device) if gpu else None,
        self_device_us=us(node.device) if gpu else None,
        backward_device_us=us(node.all_backward) if gpu else None,
        calls=node.calls,
        compile_ids=sorted(node.compile_ids),
        slices=None if node.in_graph else node.name,
        kernels_of=node.name if node.in_graph else None,
    )
