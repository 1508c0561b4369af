"""Which kernels of one span do the work of which kernels of another?

Names do not match: inductor numbers its kernels differently in every run, eager code has none of them, and libraries
choose another kernel for another layout. The order of the work does. Convolutions, matrix products, attention and
collectives run in eager and in compiled code alike and in the same order: they are landmarks, and so is an optimizer's
step. Landmarks of one side are aligned with equal ones on the other, and what runs between two of them belongs
together: first what is the same but for a number, then the rest as a whole. Input shapes distinguish landmarks of one
name. Where both sides launch mostly the same kernels, each of those is a landmark. Every launch of a step is in exactly
one row: the rows add up to the GPU time.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache
from math import isqrt
from operator import attrgetter
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.compare.pairs import Compared, Pair, numbers, pair
from tb_torchcompile_plugin.analysis.formatting import column_head
from tb_torchcompile_plugin.profile.columns import Int64s, Intervals, codes_of, host_slices, us, within
from tb_torchcompile_plugin.profile.gpu.launches import Launches, kernel_launches
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, launching
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names import kernels as kernel_names
from tb_torchcompile_plugin.torch_names.operators import is_library_operator, landmark_of
from tb_torchcompile_plugin.torch_names.slices import is_optimizer_step

# Max-autotune replaces library calls by templates.
_FAMILY = {
    **{name: name for name in ("gemm", "convolution", "attention", "communication")},
    "triton_template": "gemm",
}
_MAX_PAIRS = 4_000_000  # cells of the alignment's table (16 MB of int32); more take seconds
_WEIGHT = 1 << 12  # of a landmark that occurs once: sums stay far below 2**31
_CACHED = 65536  # distinct names that are kept

Change = Literal["same", "changed", "appeared", "vanished"]


class SideWork(msgspec.Struct, frozen=True):
    """What one side launches for a row."""

    kernels: Annotated[list[str], column_head(hidden=True)]
    operators: Annotated[list[str], column_head(hidden=True)]


class KernelDifference(Compared, frozen=True):
    """One kind of work on both sides."""

    # Its operators, or its kernels where no operator is known.
    name: Annotated[str, column_head("Kernels of")]
    category: kernel_names.Category
    change: Annotated[Change, column_head(hidden=True)]
    places: Annotated[int, column_head(hidden=True)]  # at how many places of a step it is done
    baseline: SideWork
    candidate: SideWork
    time_us: Pair  # of an average step, as the launches
    launches: Annotated[Pair, column_head(hidden=True)]


class Launch(msgspec.Struct, frozen=True, gc=False):
    """One launch."""

    kind: str  # the kernel's name without inductor's running number
    name: str
    operator: str
    family: str  # the landmark that it is part of, "" for none
    unit: int  # one number for all that an operator or an optimizer's step launches, -1 if unknown
    category: kernel_names.Category
    ns: int
    shapes: str = ""  # of the operator's inputs, "" if unknown


class Landmark(NamedTuple):
    """What identifies a landmark."""

    name: str
    shapes: str


_landmark = lru_cache(maxsize=_CACHED)(Landmark)
Step = list[Launch]
_Pair = tuple[Step, Step]


class _Units(NamedTuple):
    """A step as a row of units, in columns: millions of objects would keep the garbage collector busy."""

    marks: list[Landmark | None]  # the landmark that each is, None for what runs until the next one
    bounds: list[int]  # where each begins, and the end

    @property
    def landmarks(self) -> list[Landmark]:
        return [mark for mark in self.marks if mark]


def step_launches(profile: Profile, *, whole: bool = False) -> list[Step]:
    """Return the GPU launches of each profiled step in order; one list of all if `whole` or without steps."""
    windows = () if whole else profile.of(StepWindows)
    steps: list[list[tuple[int, int, Launch]]] = [[] for _ in range(max(len(windows), 1))]
    for rows in profile.of(kernel_launches):
        if rows.device == "cpu":
            continue
        step = np.zeros(len(rows.index), np.int64)
        if windows:
            step = launching(windows.windows, profile.trace, rows.launch)
        for number, launch in zip(step.tolist(), _gpu_launches(profile.trace, rows)):
            if number >= 0:
                steps[number].append(launch)
    return [[launch for *_, launch in sorted(step, key=lambda row: row[:2])] for step in steps]


def _gpu_launches(trace: Trace, rows: Launches) -> Iterator[tuple[int, int, Launch]]:
    """Yield (time of the launch, time of the kernel, launch)."""
    calls = trace.launch_of()[rows.index]
    start = trace.ts[rows.index]
    launched = np.where(calls >= 0, trace.ts[calls], start)
    operators = np.where(calls >= 0, trace.op_of()[rows.index], -1)
    steps = host_slices(trace, is_optimizer_step)
    steps = steps[np.argsort(trace.ts[steps], kind="stable")]
    number = within(Intervals(trace.ts[steps], trace.ts[steps] + trace.dur[steps]), launched)
    optimizers = np.append(steps, -1)[number]  # number -1 reads the last: no `Optimizer.step` is around it
    dims_codes = codes_of(trace, "input_dims", operators)
    columns = (start, launched, operators, optimizers, rows.name, rows.category, rows.dur, dims_codes)
    shapes = ["", *trace.texts["input_dims"]]
    values = zip(*(column.tolist() for column in columns))
    for kernel_ts, ts, operator, optimizer, name, category, ns, dims in values:
        called_by = trace.names[trace.name[operator]] if operator >= 0 else ""
        plain = _launch(trace.names[name], called_by, kernel_names.CATEGORIES[category])
        unit = optimizer if optimizer >= 0 else operator if plain.unit >= 0 else -1
        family = "optimizer" if optimizer >= 0 else plain.family
        launch = Launch(
            plain.kind, plain.name, plain.operator, family, unit, plain.category, ns, shapes[dims + 1]
        )
        yield ts, kernel_ts, launch


@lru_cache(maxsize=_CACHED)
def _launch(kernel: str, operator: str, category: kernel_names.Category) -> Launch:
    """Return what names show of a launch; `unit` is 0 where the operator groups its launches, otherwise -1."""
    of_library = is_library_operator(operator)
    short = operator.partition("::")[2] if of_library else kernel_names.fused_operators(kernel)
    kind = kernel_names.without_number(kernel) if kernel_names.has_triton_prefix(kernel) else kernel
    family = (landmark_of(operator) if of_library else None) or _FAMILY.get(category, "")
    return Launch(kind, kernel, short, family, 0 if of_library else -1, category, 0)


def match_kernels(a: list[Step], b: list[Step]) -> list[KernelDifference]:
    """Return one row for each kind of work in the launches of each step, the largest change first."""
    typical = _typical(a), _typical(b)
    common_kinds = _kinds(typical[0]) & _kinds(typical[1])
    alike = sum(launch.kind in common_kinds for step in typical for launch in step)
    # Where both sides launch mostly the same kernels, each of those is a landmark.
    kinds = common_kinds if 2 * alike > sum(map(len, typical)) else None
    marks_a, marks_b = (_units(step, kinds).landmarks for step in typical)
    common = [mark for mark, other in zip(marks_a, _aligned(marks_a, marks_b)) if other >= 0]
    by_position: dict[int, _Pair] = defaultdict(lambda: ([], []))
    for side, steps in enumerate((a, b)):
        for step in steps:
            for position, launches in _placed(step, _units(step, kinds), common):
                by_position[position][side].extend(launches)
    pairs_of_kinds: dict[tuple[frozenset[str], frozenset[str]], list[_Pair]] = defaultdict(list)
    for position, both in sorted(by_position.items()):
        for part in _parts(both, is_landmark=position % 2 == 1):
            pairs_of_kinds[_kinds(part[0]), _kinds(part[1])].append(part)
    rows = [_difference(pairs, len(a), len(b)) for pairs in pairs_of_kinds.values()]
    return sorted(rows, key=lambda row: (-abs(row.time_us.delta or 0.0), row.category, row.baseline.kernels))


def _typical(steps: list[Step]) -> Step:
    """Return a step with the most common number of launches."""
    usual = Counter(map(len, steps)).most_common(1)
    return next((step for step in steps if len(step) == usual[0][0]), [])


def _units(step: Step, kinds: frozenset[str] | None) -> _Units:
    """Divide a step into landmarks of these kinds, and what runs between them.

    Without kinds, a landmark is all that an operator of a landmark's family launches.
    """
    units = _Units([], [])
    last: tuple[str, int] | None = None
    for number, launch in enumerate(step):
        if kinds is None:
            name, unit = launch.family, launch.unit
        else:
            name, unit = launch.kind if launch.kind in kinds else "", -1
        current = (name, unit if unit >= 0 else number) if name else ("", -1)
        if current != last:
            units.marks.append(_landmark(name, launch.shapes) if name else None)
            units.bounds.append(number)
        last = current
    units.bounds.append(len(step))
    return units


def _placed(step: Step, units: _Units, landmarks: list[Landmark]) -> Iterator[tuple[int, Step]]:
    """Yield (position, launches): landmark n is at position 2n + 1, what runs before it is at 2n."""
    aligned = iter(_aligned(units.landmarks, landmarks))
    position = 0
    for mark, start, end in zip(units.marks, units.bounds, units.bounds[1:]):
        landmark = next(aligned) if mark else -1
        yield (2 * landmark + 1 if landmark >= 0 else position), step[start:end]
        position = max(position, 2 * landmark + 2)


def _aligned(a: list[Landmark], b: list[Landmark]) -> list[int]:
    """Return for each landmark of a the index of its match in b, in the same order; -1 where there is none.

    Equal begins and ends match, shapes included; where what is between them is too much to align, equal names do.
    """
    matches = [-1] * len(a)
    head, tail = _equal_ends(a, b)
    if (len(a) - head - tail) * (len(b) - head - tail) > _MAX_PAIRS:
        head, tail = _equal_ends([mark.name for mark in a], [mark.name for mark in b])
    matches[:head] = range(head)
    matches[len(a) - tail :] = range(len(b) - tail, len(b))
    middle_a, middle_b = a[head : len(a) - tail], b[head : len(b) - tail]
    if len(middle_a) * len(middle_b) <= _MAX_PAIRS:
        for index_a, index_b in _common_subsequence(middle_a, middle_b):
            matches[head + index_a] = head + index_b
    return matches


def _equal_ends(a: Sequence[object], b: Sequence[object]) -> tuple[int, int]:
    """Return how many are equal at the beginning, and how many at the end."""
    shorter = min(len(a), len(b))
    head = next((n for n in range(shorter) if a[n] != b[n]), shorter)
    tail = next((n for n in range(shorter - head) if a[-1 - n] != b[-1 - n]), shorter - head)
    return head, tail


def _common_subsequence(a: list[Landmark], b: list[Landmark]) -> list[tuple[int, int]]:
    """Return the index pairs of a heaviest common subsequence of names.

    The rarer a landmark, the heavier: an attention identifies a place better than one of a hundred matrix products. One
    of the same shapes is twice as heavy.
    """
    occurs = Counter(mark.name for mark in a)
    names_a, names_b = _codes([mark.name for mark in a], [mark.name for mark in b])
    marks_a, marks_b = _codes(a, b)
    best = np.zeros((len(a) + 1, len(b) + 1), np.int32)
    for row, mark in enumerate(a):
        same = (names_b == names_a[row]).astype(np.int32) + (marks_b == marks_a[row])
        gain = best[row, :-1] + same * (_WEIGHT // isqrt(occurs[mark.name]))
        np.maximum.accumulate(np.maximum(best[row, 1:], gain), out=best[row + 1, 1:])
    pairs, row, column = [], len(a), len(b)
    while row and column:
        if best[row, column] == best[row - 1, column]:
            row -= 1
        elif best[row, column] == best[row, column - 1]:
            column -= 1
        else:
            row, column = row - 1, column - 1
            pairs.append((row, column))
    return pairs


def _codes(a: Sequence[Hashable], b: Sequence[Hashable]) -> tuple[Int64s, Int64s]:
    """Number both sides: equal items have equal codes."""
    codes = {item: code for code, item in enumerate(dict.fromkeys([*a, *b]))}
    codes_a, codes_b = (np.array([codes[item] for item in side], np.int64) for side in (a, b))
    return codes_a, codes_b


def _parts(both: _Pair, *, is_landmark: bool) -> Iterator[_Pair]:
    """Yield a landmark as a whole; elsewhere each kind that is on both sides, and then all the rest."""
    if is_landmark:
        yield both
        return
    a, b = (grouped(side, attrgetter("kind")) for side in both)
    common = a.keys() & b.keys()
    yield from ((a[kind], b[kind]) for kind in sorted(common))
    if a.keys() != b.keys():
        rest_a, rest_b = ([launch for launch in side if launch.kind not in common] for side in both)
        yield rest_a, rest_b


def _kinds(launches: Step) -> frozenset[str]:
    return frozenset([launch.kind for launch in launches])


def _difference(pairs: list[_Pair], steps_a: int, steps_b: int) -> KernelDifference:
    a, b = ([launch for part in pairs for launch in part[side]] for side in (0, 1))
    work_a, work_b = _side(a), _side(b)
    change: Change = "same" if _kinds(a) == _kinds(b) else "changed"
    if not a or not b:
        change = "vanished" if a else "appeared"
    names = [*work_a.operators, *work_b.operators] or [*work_a.kernels, *work_b.kernels]
    times = Counter[kernel_names.Category]()
    for launch in b or a:
        times[launch.category] += launch.ns
    time_us = pair(_time_us(a, steps_a), _time_us(b, steps_b))
    count = pair(len(a) / max(steps_a, 1), len(b) / max(steps_b, 1))
    return KernelDifference(
        name=", ".join(dict.fromkeys(names)),
        category=times.most_common(1)[0][0],
        change=change,
        places=len(pairs),
        baseline=work_a,
        candidate=work_b,
        **numbers(time_us=time_us, launches=count),
    )


def _side(launches: Step) -> SideWork:
    kernels = [name for name, _ in Counter(launch.name for launch in launches).most_common()]
    return SideWork(kernels, list(dict.fromkeys(launch.operator for launch in launches if launch.operator)))


def _time_us(launches: Step, steps: int) -> float:
    return us(sum(launch.ns for launch in launches)) / steps if launches else 0.0
