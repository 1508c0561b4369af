"""Which `nn.Module` took the time, on the host and on the device? From the module calls that `with_stack` records.

Calls with the same modules around them are one row of a tree. GPU work belongs to the innermost module around the
operator that launched it, in backward around the forward operator with the same sequence number. Inside compiled code
torch calls no modules: all that a compiled region does belongs to the module around it, with the compile ids it ran.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.modules.compiled_lines import CompiledLines, compiled_lines
from tb_torchcompile_plugin.analysis.python.python import levels
from tb_torchcompile_plugin.profile.columns import distinct, sums
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.host.call_sites import forwards
from tb_torchcompile_plugin.profile.host.host_tree import host_tree
from tb_torchcompile_plugin.profile.host.operator_calls import operator_calls
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.slices import mask_of
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.grouped import grouped
from tb_torchcompile_plugin.torch_names.python_frames import is_module_call, module_of
from tb_torchcompile_plugin.torch_names.slices import PYTHON_FUNCTION


class Module(msgspec.Struct, frozen=True):
    """`parent`: place of the row of the module that called it, -1 for none. Device fields are None without GPU events.

    `self_…` is without the modules it called; `backward_device_us` is no part of `device_us`. `compile_ids`: of what
    it ran itself, empty where all of it was eager.
    """

    name: str
    parent: int
    depth: int
    calls: int
    host_us: float
    self_host_us: float
    device_us: float | None
    self_device_us: float | None
    backward_device_us: float | None
    compile_ids: list[str]


class Modules(msgspec.Struct, frozen=True):
    """Callers come before what they called. `recorded` is false where no stacks were recorded, and so no modules.

    compiled_lines: the kernels of each compilation that one module alone ran, by the user's lines.
    """

    recorded: bool
    modules: list[Module]
    compiled_lines: list[CompiledLines]


def modules(profile: Profile) -> Modules:
    trace, tree, calls = profile.trace, profile.of(host_tree), profile.of(operator_calls)
    is_module = mask_of(trace.names, is_module_call)[trace.name[tree.index]]
    is_module &= tree.python
    position = np.flatnonzero(is_module)
    number = np.full(len(tree.index) + 1, -1, np.int64)  # the last answers for "none"
    number[position] = np.arange(len(position))
    caller = number[tree.nearest(tree.parent[position], is_module)]
    rows, row = _merged(trace.name[tree.index[position]], caller)
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


def _merged(name: Int64s, caller: Int64s) -> tuple[Int64s, Int64s]:
    """(parent row and name of each row), and the row of each call; callers first."""
    row = np.full(len(name) + 1, -1, np.int64)
    parts = [np.zeros((2, 0), np.int64)]
    count = 0
    for calls in levels(caller):
        rows, which = distinct(row[caller[calls]], name[calls])
        row[calls] = count + which
        count += rows.shape[1]
        parts.append(rows)
    return np.hstack(parts), row[:-1]


def _backward(profile: Profile, around: Int64s, row_of: Callable[[Int64s], Int64s]) -> Int64s:
    """The row of the forward of each call that is in no module itself, -1 elsewhere."""
    tree, calls = profile.of(host_tree), profile.of(operator_calls)
    forward = np.append(forwards(profile.trace, tree), -1)
    linked = tree.nearest(calls.position, forward[:-1] >= 0)
    return np.where(around < 0, row_of(forward[linked]), -1)


def _modules(profile: Profile, rows: Int64s, figures: tuple[Int64s, ...], around: Int64s) -> Modules:
    trace, calls = profile.trace, profile.of(operator_calls)
    parents, names = (column.tolist() for column in rows)
    count, host, self_host, own, later = (column.tolist() for column in figures)
    total = list(own)
    depth = [0] * len(parents)
    for row, parent in enumerate(parents):
        depth[row] = depth[parent] + 1 if parent >= 0 else 0
    for row in range(len(parents) - 1, -1, -1):
        if parents[row] >= 0:
            total[parents[row]] += total[row]
            later[parents[row]] += later[row]
    owners = profile.of(Ownership).compile_ids(calls.index)
    compiled: list[set[str]] = [set() for _ in parents]
    known = (around >= 0) & (owners >= 0)
    pairs, _ = distinct(around[known], owners[known])
    for row, owner in pairs.T.tolist():
        compiled[row].add(profile.of(Ownership).names[owner])
    gpu = len(profile.of(gpu_work).index) > 0
    order = _tree_order(parents, host)
    place = {row: at for at, row in enumerate(order)} | {-1: -1}
    modules = [
        Module(
            name=module_of(trace.names[names[row]]) or "",
            parent=place[parents[row]],
            depth=depth[row],
            calls=count[row],
            host_us=us(host[row]),
            self_host_us=us(self_host[row]),
            device_us=us(total[row]) if gpu else None,
            self_device_us=us(own[row]) if gpu else None,
            backward_device_us=us(later[row]) if gpu else None,
            compile_ids=sorted(compiled[row]),
        )
        for row in order
    ]
    lines = compiled_lines(profile, _alone(modules))
    return Modules(PYTHON_FUNCTION in trace.cats, modules, lines)


def _alone(modules: list[Module]) -> dict[str, int]:
    """Compile id → the row of the module that ran it, where it is the only one."""
    ran: dict[str, list[int]] = {}
    for row, module in enumerate(modules):
        for compile_id in module.compile_ids:
            ran.setdefault(compile_id, []).append(row)
    return {compile_id: rows[0] for compile_id, rows in ran.items() if len(rows) == 1}


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
