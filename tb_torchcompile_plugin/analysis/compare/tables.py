"""How do two spans differ row by row: kernels, operators, modules, memory?"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec

from tb_torchcompile_plugin.analysis.compare import pairs
from tb_torchcompile_plugin.analysis.compare.kernel_matching import (
    KernelDifference,
    match_kernels,
    step_launches,
)
from tb_torchcompile_plugin.analysis.compare.pairs import Compared, Figure, Pair
from tb_torchcompile_plugin.analysis.compare.sides import Sides, compares_whole_spans
from tb_torchcompile_plugin.analysis.formatting import device_name
from tb_torchcompile_plugin.analysis.runtime.memory import memory
from tb_torchcompile_plugin.analysis.runtime.modules import Module, modules
from tb_torchcompile_plugin.analysis.runtime.operators import OperatorKind, operators, step_operators
from tb_torchcompile_plugin.analysis.sheet import column_head
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.torch_names.python_frames import wraps_module
from tb_torchcompile_plugin.torch_names.slices import without_key

_UNKNOWN = Pair(None, None, None)


class OperatorDifference(Compared, frozen=True):
    """Own time of an operator, label or CUDA call in an average step; 0 calls where it was not called."""

    name: Annotated[str, column_head("Operator")]
    kind: OperatorKind
    self_host_us: Pair
    self_device_us: Pair  # unknown where a side has no GPU events
    calls: Annotated[Pair, column_head(hidden=True)]


class ModuleDifference(Compared, frozen=True):
    """A module in an average step, or in the span; unknown where a side did not call it."""

    path: Annotated[str, column_head("Module")]  # the modules around it, outermost first
    host_us: Pair
    device_us: Annotated[Pair, column_head("GPU")]
    calls: Pair


class ComparedTables(msgspec.Struct, frozen=True):
    """Rows of an average step, or of the whole spans where a side has no steps; empty where nothing was recorded."""

    kernels: list[KernelDifference]
    operators: list[OperatorDifference]
    modules: list[ModuleDifference]
    memory: list[Figure]  # the peaks of each device that a side used


def compare_tables(sides: Sides) -> ComparedTables:
    """Return kernels, operators, modules and memory of two spans, row by row."""
    a, b = sides.baseline.profile, sides.candidate.profile
    if a is None or b is None:
        return ComparedTables([], [], [], [])
    whole = compares_whole_spans(sides.baseline, sides.candidate)
    on_gpu = all(len(side.of(gpu_work).index) for side in (a, b))
    kernels = match_kernels(*(step_launches(side, whole=whole) for side in (a, b))) if on_gpu else []
    operators_, modules_ = _operators(a, b, whole, on_gpu), _modules(a, b, whole)
    return ComparedTables(kernels, operators_, modules_, [*_memory(a, b)])


def _operators(a: Profile, b: Profile, whole: bool, on_gpu: bool) -> list[OperatorDifference]:
    """Compare operators by name, largest change of own host time first."""
    numbers = [_operator_numbers(side, whole) for side in (a, b)]
    rows = pairs.match(OperatorDifference, ["kind", "name"], numbers)
    if not on_gpu:
        rows = [msgspec.structs.replace(row, self_device_us=_UNKNOWN) for row in rows]
    return sorted(rows, key=lambda row: (-abs(row.self_host_us.delta or 0.0), row.name))


def _operator_numbers(profile: Profile, whole: bool) -> pairs.Numbers:
    """Return calls and own times of an average step, by names without the hash of a graph."""
    sums: defaultdict[tuple[OperatorKind, str], Counter[str]] = defaultdict(Counter)
    for row in profile.of(operators).rows if whole else profile.of(step_operators):
        times = {"self_host_us": row.self_host_us, "self_device_us": row.self_device_us or 0.0}
        sums[row.kind, without_key(row.name)].update(times, calls=row.calls)
    steps = _steps(profile, whole)
    return {key: {name: total / steps for name, total in row.items()} for key, row in sums.items()}


def _steps(profile: Profile, whole: bool) -> int:
    return 1 if whole else len(profile.of(StepWindows))


def _modules(a: Profile, b: Profile, whole: bool) -> list[ModuleDifference]:
    """Compare modules by path, in the order of the tree; [] where a side did not record modules."""
    numbers = [
        {
            (path,): _module_numbers(rows, _steps(side, whole))
            for path, rows in _by_path(modules(side).modules).items()
        }
        for side in (a, b)
    ]
    return pairs.match(ModuleDifference, ["path"], numbers, missing=None) if all(numbers) else []


def _by_path(rows: Iterable[Module]) -> defaultdict[str, list[Module]]:
    """Group called modules by path, without torch.compile's wrapper: it would make all paths differ."""
    paths: list[str] = []
    rows_of: defaultdict[str, list[Module]] = defaultdict(list)
    for row in rows:
        above = paths[row.parent] if row.parent >= 0 else ""
        own = "" if wraps_module(row.name) else row.name
        paths.append("/".join(filter(None, (above, own))))
        if own and not row.in_graph:
            rows_of[paths[-1]].append(row)
    return rows_of


def _module_numbers(rows: list[Module], steps: int) -> dict[str, float | None]:
    """Return calls, host time and device time per step."""
    device = [row.device_us for row in rows if row.device_us is not None]
    return {
        "host_us": sum(row.host_us or 0.0 for row in rows) / steps,
        "device_us": sum(device) / steps if device else None,
        "calls": sum(row.calls or 0 for row in rows) / steps,
    }


def _memory(a: Profile, b: Profile) -> Iterator[Figure]:
    """Yield the peaks, in the whole span, of the devices that either side used."""
    uses_a, uses_b = ({row.device: row for row in side.of(memory).devices} for side in (a, b))
    for device in dict.fromkeys((*uses_a, *uses_b)):
        for name, label in (("peak_bytes", "Peak memory"), ("peak_reserved_bytes", "Peak reserved")):
            value = pairs.pair(*(getattr(side.get(device), name, None) for side in (uses_a, uses_b)))
            if value != _UNKNOWN:
                words = pairs.in_words(name, value)
                yield Figure(f"{device}_{name}", f"{label}, {device_name(device)}", *words, value)
