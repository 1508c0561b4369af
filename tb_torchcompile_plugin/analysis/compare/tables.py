"""Two spans side by side, row by row: kernels, operators, modules, memory. What takes longer to say than `compare`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.analysis.compare.kernel_matching import (
    KernelDifference,
    match_kernels,
    step_launches,
)
from tb_torchcompile_plugin.analysis.compare.pairs import (
    Compared,
    InWords,
    Pair,
    Sides,
    as_a_whole,
    in_words,
    numbers,
    pair,
)
from tb_torchcompile_plugin.analysis.formatting import device_name
from tb_torchcompile_plugin.analysis.runtime.memory import MemoryUse, memory
from tb_torchcompile_plugin.analysis.runtime.modules import Module, modules
from tb_torchcompile_plugin.analysis.runtime.operators import OperatorKind, operators, step_operators
from tb_torchcompile_plugin.profile.gpu.launches import Device
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_slices
from tb_torchcompile_plugin.torch_names.python_frames import wraps_module
from tb_torchcompile_plugin.torch_names.slices import without_key

# Operators, modules and memory of two spans side by side, by their names.


_UNKNOWN = Pair(None, None, None)


class OperatorDifference(Compared, frozen=True):
    """Own time of an operator, label or CUDA call in an average step; 0 calls where it was not called.

    Device time is unknown where a side has no GPU events.
    """

    name: str
    kind: OperatorKind
    calls: Pair
    self_host_us: Pair
    self_device_us: Pair


class ModuleDifference(Compared, frozen=True):
    """A module by the modules around it, outermost first; unknown where a side did not call it. Of the whole span,
    divided by its steps where steps are compared."""

    path: str
    calls: Pair
    host_us: Pair
    device_us: Pair


class MemoryDifference(msgspec.Struct, frozen=True):
    """The peaks of a device in the whole span; unknown where a side did not record or use it. `words`: those that are
    known of a side."""

    device: Device
    peak_bytes: Pair
    reserved_bytes: Pair
    words: list[InWords]


def compare_operators(a: Profile, b: Profile, *, whole: bool) -> list[OperatorDifference]:
    """The largest change of own host time first. whole: of the spans instead of an average step of theirs."""
    ours, theirs = _by_name(a, whole), _by_name(b, whole)
    gpu = len(a.of(gpu_work).index) > 0 and len(b.of(gpu_work).index) > 0
    rows = []
    for kind, name in dict.fromkeys((*ours, *theirs)):
        sides = ours[kind, name] / _steps(a, whole), theirs[kind, name] / _steps(b, whole)
        calls, host, device = (pair(*both) for both in np.transpose(sides).tolist())
        known = numbers(self_host_us=host, self_device_us=device if gpu else _UNKNOWN, calls=calls)
        rows.append(OperatorDifference(name=name, kind=kind, **known))
    return sorted(rows, key=lambda row: (-abs(row.self_host_us.delta or 0.0), row.name))


def _by_name(profile: Profile, whole: bool) -> defaultdict[tuple[OperatorKind, str], npt.NDArray[np.float64]]:
    """Calls, own host time and own device time of all steps. The hash of a graph would make each a name of its own."""
    sums: defaultdict[tuple[OperatorKind, str], npt.NDArray[np.float64]] = defaultdict(lambda: np.zeros(3))
    for row in profile.of(operators).rows if whole else profile.of(step_operators):
        name = without_key(row.name)
        sums[row.kind, name] += (row.calls, row.self_host_us, row.self_device_us or 0.0)
    return sums


def _steps(profile: Profile, whole: bool) -> int:
    return 1 if whole else len(profile.of(step_slices))


def compare_modules(a: Profile, b: Profile, *, whole: bool) -> list[ModuleDifference]:
    """As a tree is read; [] where a side did not record modules."""
    ours, theirs = _by_path(modules(a).modules), _by_path(modules(b).modules)
    if not ours or not theirs:
        return []
    rows = []
    for path in dict.fromkeys((*ours, *theirs)):
        sides = _module(ours.get(path, []), _steps(a, whole)), _module(theirs.get(path, []), _steps(b, whole))
        calls, host, device = (pair(*both) for both in zip(*sides))
        rows.append(ModuleDifference(path=path, **numbers(host_us=host, device_us=device, calls=calls)))
    return rows


def _module(rows: list[Module], steps: int) -> tuple[float | None, float | None, float | None]:
    """Calls, host time and device time of a step."""
    if not rows:
        return None, None, None
    device = [row.device_us for row in rows if row.device_us is not None]
    return (
        sum(row.calls or 0 for row in rows) / steps,
        sum(row.host_us or 0.0 for row in rows) / steps,
        sum(device) / steps if device else None,
    )


def _by_path(rows: Sequence[Module]) -> dict[str, list[Module]]:
    """torch.compile's wrapper is no part of a path, or nothing would be called the same on both sides: what is called
    with and without it has two rows. Modules in graphs, which nobody called, are left out."""
    paths: list[str] = []
    rows_of: defaultdict[str, list[Module]] = defaultdict(list)
    for row in rows:
        above = paths[row.parent] if row.parent >= 0 else ""
        own = "" if wraps_module(row.name) else row.name
        paths.append("/".join(filter(None, (above, own))))
        if own and not row.in_graph:
            rows_of[paths[-1]].append(row)
    return rows_of


def compare_memory(a: Profile, b: Profile) -> list[MemoryDifference]:
    """One row a device that either side used; [] where neither recorded memory."""
    ours, theirs = ({row.device: row for row in side.of(memory).devices} for side in (a, b))
    rows = []
    for device in dict.fromkeys((*ours, *theirs)):
        peak, reserved = (pair(*both) for both in zip(*(_peaks(side.get(device)) for side in (ours, theirs))))
        known = [("Peak memory", peak), ("Peak reserved", reserved)]
        words = [
            InWords(f"{what}, {device_name(device)}", *in_words("peak_bytes", value))
            for what, value in known
            if (value.a, value.b) != (None, None)
        ]
        rows.append(MemoryDifference(device, peak, reserved, words))
    return rows


def _peaks(row: MemoryUse | None) -> tuple[int | None, int | None]:
    return (row.peak_bytes, row.peak_reserved_bytes) if row else (None, None)


JobTable = Literal["ranks", "late", "collectives"]


class TableLayout(msgspec.Struct, frozen=True):
    """How a table is shown: the field that holds its rows, and the head of each text and each number of a row. more:
    numbers that are shown when somebody chooses them."""

    rows: Literal["kernels", "kernel_categories", "operators", "modules", "compilations"] | JobTable
    label: str
    texts: dict[str, str]
    numbers: dict[str, str]
    more: dict[str, str] = {}


_WORK = {"time_us": "Time", "launches": "Launches"}
_OPERATOR = {"self_host_us": "Self host", "self_device_us": "Self GPU", "calls": "Calls"}
_MODULE = {"host_us": "Host", "device_us": "GPU", "calls": "Calls"}
_COMPILATION = {"function": "Function", "direction": "Direction", "compile_ids": "Compile ids"}
LAYOUT = [
    TableLayout("kernels", "Kernels", {"name": "Kernels of", "category": "Category"}, _WORK),
    TableLayout("kernel_categories", "Categories", {"category": "Category"}, _WORK),
    TableLayout("operators", "Operators", {"name": "Operator", "kind": "Kind"}, _OPERATOR),
    TableLayout("modules", "Modules", {"path": "Module"}, _MODULE),
    TableLayout(
        "compilations", "Compilations", _COMPILATION, {"duration_s": "Time", "graph_ops": "Graph ops"}
    ),
]


class ComparedTables(msgspec.Struct, frozen=True):
    """Of an average step, or of the whole spans where a side has no steps. Empty where a side recorded nothing.
    `layout` is of these tables, and of those in `Comparison`."""

    kernels: list[KernelDifference]
    operators: list[OperatorDifference]
    modules: list[ModuleDifference]
    memory: list[MemoryDifference]
    layout: list[TableLayout]


def compare_tables(sides: Sides) -> ComparedTables:
    """All rows that either side has."""
    a, b = sides.a, sides.b
    if a.profile is None or b.profile is None:
        return ComparedTables([], [], [], [], LAYOUT)
    ran, whole = (a.profile, b.profile), as_a_whole(a, b)
    on_gpu = all(len(side.of(gpu_work).index) for side in ran)
    return ComparedTables(
        kernels=match_kernels(*(step_launches(side, whole=whole) for side in ran)) if on_gpu else [],
        operators=compare_operators(*ran, whole=whole),
        modules=compare_modules(*ran, whole=whole),
        memory=compare_memory(*ran),
        layout=LAYOUT,
    )
