"""Which kernels of one span do the work of which kernels of another?

Names do not tell: inductor numbers its kernels anew in every run, eager code has none of them, and libraries choose
another kernel for another layout. The order of the work does. Convolutions, matrix products, attention and collectives
are made in eager and in compiled code alike and in the same order: they are landmarks, and so is an optimizer's step.
Landmarks of one side are put beside their likes on the other, and what runs between two of them belongs together:
first what is the same but for a number, then the rest as a whole. Input shapes tell landmarks of one name apart. Where
both sides launch mostly the same kernels, each of those is a landmark. Every launch of a step is in exactly one row:
the rows add up to the GPU time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence, Set
from functools import lru_cache
from math import isqrt
from operator import attrgetter
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.compare.pairs import Compared, Pair, numbers, pair
from tb_torchcompile_plugin.profile.columns import codes_of, host_slices
from tb_torchcompile_plugin.profile.gpu.launches import Launches, kernel_launches
from tb_torchcompile_plugin.profile.intervals import Int64s, Intervals, within
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.profile.units import us
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
Change = Literal["same", "changed", "appeared", "vanished"]


class SideWork(msgspec.Struct, frozen=True):
    """What one side launches for a row; launches and time are of an average step."""

    kernels: list[str]
    operators: list[str]
    launches: float
    time_us: float


class KernelDifference(Compared, frozen=True):
    """One kind of work on both sides, named by its operators, else by its kernels. `places`: at how many places of a
    step it is done. `delta_us`: b less a."""

    name: str
    category: kernel_names.Category
    change: Change
    places: int
    a: SideWork
    b: SideWork
    delta_us: float
    time_us: Pair
    launches: Pair


class Launch(msgspec.Struct, frozen=True, gc=False):
    """One launch. `kind`: the kernel's name without inductor's running number. `family`: the landmark that it is part
    of, "" for none. `unit`: one number for all that an operator or an optimizer's step launches, -1 if unknown.
    `shapes`: those of the operator's inputs, "" if unknown."""

    kind: str
    name: str
    operator: str
    family: str
    unit: int
    category: kernel_names.Category
    ns: int
    shapes: str = ""


class Landmark(NamedTuple):
    """What a landmark is recognised by."""

    name: str
    shapes: str


_MOST_PAIRS = 4_000_000  # landmarks of both sides multiplied: more would take long to align
_WEIGHT = 1 << 12  # of a landmark that occurs once: their sum stays far below 2**31

Step = list[Launch]
_Pair = tuple[Step, Step]


class _Units(NamedTuple):
    """A step as a row of units, in columns: objects by the million would keep the garbage collector busy.

    marks: the landmark that each is, None for what runs until the next one. bounds: where each begins, and the end.
    """

    marks: list[Landmark | None]
    bounds: list[int]

    @property
    def landmarks(self) -> list[Landmark]:
        return [mark for mark in self.marks if mark]


def step_launches(profile: Profile, *, whole: bool = False) -> list[Step]:
    """The GPU launches of each profiled step in the order in which they were made. whole: one list of all of the span,
    which it is in any case where there are no steps."""
    windows = () if whole else profile.of(StepWindows)
    steps: list[list[tuple[int, int, Launch]]] = [[] for _ in range(max(len(windows), 1))]
    for rows in profile.of(kernel_launches):
        if rows.device == "cpu":
            continue
        called = launched_at(profile.trace, rows)
        step = windows.launching(profile.trace, rows.launch) if windows else np.zeros(len(called), np.int64)
        for number, launch in zip(step.tolist(), _gpu_launches(profile, rows, called)):
            if number >= 0:
                steps[number].append(launch)
    return [[launch for *_, launch in sorted(step, key=lambda row: row[:2])] for step in steps]


def launched_at(trace: Trace, rows: Launches) -> Int64s:
    """When each kernel was launched; its own time stands in where no launch is known."""
    calls = trace.launch_of()[rows.index]
    return np.where(calls >= 0, trace.ts[calls], trace.ts[rows.index])


def match_kernels(a: list[Step], b: list[Step]) -> list[KernelDifference]:
    """One row for each kind of work, the largest change first. a, b: the launches of each step (`step_launches`)."""
    typical = _typical(a), _typical(b)
    landmark = _landmarks_of(*typical)
    ours, theirs = (_units(step, landmark).landmarks for step in typical)
    common = [mark for mark, other in zip(ours, _aligned(ours, theirs)) if other >= 0]
    places: dict[int, _Pair] = defaultdict(lambda: ([], []))
    for side, steps in enumerate((a, b)):
        for step in steps:
            for place, launches in _placed(step, _units(step, landmark), common):
                places[place][side].extend(launches)
    kinds: dict[tuple[frozenset[str], frozenset[str]], list[_Pair]] = defaultdict(list)
    for place, both in sorted(places.items()):
        for part in _parts(both, is_landmark=place % 2 == 1):
            kinds[_kinds(part[0]), _kinds(part[1])].append(part)
    rows = [_difference(pairs, len(a), len(b)) for pairs in kinds.values()]
    matched = sum(len(side) for pairs in kinds.values() for pair in pairs for side in pair)
    assert matched == sum(map(len, a + b))
    return sorted(rows, key=lambda row: (-abs(row.delta_us), row.category, row.a.kernels))


def _gpu_launches(profile: Profile, rows: Launches, called: Int64s) -> Iterator[tuple[int, int, Launch]]:
    """(time of the launch, time of the kernel, launch)."""
    trace = profile.trace
    calls = trace.launch_of()[rows.index]
    operators = np.where(calls >= 0, trace.op_of()[rows.index], -1)
    columns = (
        trace.ts[rows.index],
        called,
        operators,
        _optimizer_steps(trace, called),
        rows.name,
        rows.category,
        rows.dur,
        codes_of(trace, "input_dims", operators),
    )
    shapes = ["", *trace.texts["input_dims"]]
    for start, time, operator, optimizer, name, category, ns, dims in zip(
        *(column.tolist() for column in columns)
    ):
        called_by = trace.names[trace.name[operator]] if operator >= 0 else ""
        plain = _launch(trace.names[name], called_by, kernel_names.CATEGORIES[category])
        unit = optimizer if optimizer >= 0 else operator if plain.unit >= 0 else -1
        family = "optimizer" if optimizer >= 0 else plain.family
        launch = Launch(
            plain.kind, plain.name, plain.operator, family, unit, plain.category, ns, shapes[dims + 1]
        )
        yield time, start, launch


@lru_cache(maxsize=65536)
def _launch(kernel: str, operator: str, category: kernel_names.Category) -> Launch:
    """What names tell of a launch; `unit` is 0 where the operator groups its launches, else -1."""
    of_library = is_library_operator(operator)
    short = operator.partition("::")[2] if of_library else kernel_names.fused_operators(kernel)
    kind = kernel_names.without_number(kernel) if kernel_names.is_generated_name(kernel) else kernel
    family = (landmark_of(operator) if of_library else None) or _FAMILY.get(category, "")
    return Launch(kind, kernel, short, family, 0 if of_library else -1, category, 0)


def _optimizer_steps(trace: Trace, times: Int64s) -> Int64s:
    """The row of the `Optimizer.step` around each moment, -1 where there is none."""
    rows = host_slices(trace, is_optimizer_step)
    rows = rows[np.argsort(trace.ts[rows], kind="stable")]
    number = within(Intervals(trace.ts[rows], trace.ts[rows] + trace.dur[rows]), times)
    return np.append(rows, -1)[number]  # number -1 reads the last


def _typical(steps: list[Step]) -> Step:
    """A step with the most usual number of launches."""
    usual = Counter(map(len, steps)).most_common(1)
    return next((step for step in steps if len(step) == usual[0][0]), [])


def _landmarks_of(a: Step, b: Step) -> Callable[[Launch], str]:
    """What makes a launch a landmark, "" where nothing does: its kind where both sides launch mostly the same kernels,
    else the family of its operator, or of the kernel where no operator is known."""
    common = _kinds(a) & _kinds(b)
    alike = sum(launch.kind in common for launch in a + b)
    if 2 * alike > len(a) + len(b):
        return lambda launch: launch.kind if launch.kind in common else ""
    return _family


def _family(launch: Launch) -> str:
    return launch.family


def _units(step: Step, landmark: Callable[[Launch], str]) -> _Units:
    """A landmark is all that its operator launches."""
    units = _Units([], [])
    last: tuple[str, int] | None = None
    for number, launch in enumerate(step):
        name = landmark(launch)
        unit = launch.unit if name and landmark is _family else -1
        this = name, unit if unit >= 0 else number if name else -1
        if this != last:
            units.marks.append(_mark(name, launch.shapes) if name else None)
            units.bounds.append(number)
        last = this
    units.bounds.append(len(step))
    return units


_mark = lru_cache(maxsize=65536)(Landmark)


def _placed(step: Step, units: _Units, landmarks: list[Landmark]) -> Iterator[tuple[int, Step]]:
    """(place, launches): landmark n is place 2n + 1, what runs before it is in place 2n."""
    aligned = iter(_aligned(units.landmarks, landmarks))
    place = 0
    for mark, start, end in zip(units.marks, units.bounds, units.bounds[1:]):
        landmark = next(aligned) if mark else -1
        yield (2 * landmark + 1 if landmark >= 0 else place), step[start:end]
        place = max(place, 2 * landmark + 2)


def _aligned(ours: list[Landmark], theirs: list[Landmark]) -> list[int]:
    """For each of ours the index of its like among theirs, in the same order; -1 where there is none.

    Begins and ends that are equal, shapes included, are taken as they are; where what is between them is too much to
    align, also those that are equal but for the shapes.
    """
    answer = [-1] * len(ours)
    first, last = _middle(ours, theirs)
    names = [mark.name for mark in ours], [mark.name for mark in theirs]
    if (len(ours) - first - last) * (len(theirs) - first - last) > _MOST_PAIRS:
        first, last = _middle(*names)
    answer[:first] = range(first)
    answer[len(ours) - last :] = range(len(theirs) - last, len(theirs))
    middle = ours[first : len(ours) - last], theirs[first : len(theirs) - last]
    if len(middle[0]) * len(middle[1]) <= _MOST_PAIRS:
        for ours_at, theirs_at in _common_subsequence(*middle):
            answer[first + ours_at] = first + theirs_at
    return answer


def _middle(ours: Sequence[object], theirs: Sequence[object]) -> tuple[int, int]:
    """How many are equal at the beginning, and how many at the end."""
    shorter = min(len(ours), len(theirs))
    head = next((n for n in range(shorter) if ours[n] != theirs[n]), shorter)
    tail = next((n for n in range(shorter - head) if ours[-1 - n] != theirs[-1 - n]), shorter - head)
    return head, tail


def _common_subsequence(ours: list[Landmark], theirs: list[Landmark]) -> list[tuple[int, int]]:
    """The pairs of a heaviest common subsequence of names. The rarer a landmark, the heavier: an attention tells more
    of where we are than one of a hundred matrix products. One of the same shapes is twice as heavy."""
    occurs = Counter(mark.name for mark in ours)
    names, other_names = _codes([mark.name for mark in ours], [mark.name for mark in theirs])
    marks, other_marks = _codes(ours, theirs)
    best = np.zeros((len(ours) + 1, len(theirs) + 1), np.int32)
    for row, mark in enumerate(ours):
        same = (other_names == names[row]).astype(np.int32) + (other_marks == marks[row])
        gain = best[row, :-1] + same * (_WEIGHT // isqrt(occurs[mark.name]))
        np.maximum.accumulate(np.maximum(best[row, 1:], gain), out=best[row + 1, 1:])
    pairs, row, column = [], len(ours), len(theirs)
    while row and column:
        if best[row, column] == best[row - 1, column]:
            row -= 1
        elif best[row, column] == best[row, column - 1]:
            column -= 1
        else:
            row, column = row - 1, column - 1
            pairs.append((row, column))
    return pairs


def _codes(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> tuple[Int64s, Int64s]:
    """Equal ones have equal codes."""
    codes = {one: code for code, one in enumerate(dict.fromkeys([*ours, *theirs]))}
    ours_coded, theirs_coded = (np.array([codes[one] for one in side], np.int64) for side in (ours, theirs))
    return ours_coded, theirs_coded


def _parts(pair: _Pair, *, is_landmark: bool) -> Iterator[_Pair]:
    """A landmark is compared as a whole. Elsewhere what is of one kind on both sides is, and then all the rest."""
    if is_landmark:
        yield pair
        return
    ours, theirs = (grouped(side, attrgetter("kind")) for side in pair)
    common = ours.keys() & theirs.keys()
    for kind in sorted(common):
        yield ours[kind], theirs[kind]
    if ours.keys() != theirs.keys():
        yield _without(pair[0], common), _without(pair[1], common)


def _without(launches: Step, kinds: Set[str]) -> Step:
    return [launch for launch in launches if launch.kind not in kinds]


def _kinds(launches: Step) -> frozenset[str]:
    if len(launches) == 1:  # most often
        return _kind(launches[0].kind)
    return frozenset([launch.kind for launch in launches])


@lru_cache(maxsize=65536)
def _kind(name: str) -> frozenset[str]:
    return frozenset([name])


def _difference(pairs: list[_Pair], steps_a: int, steps_b: int) -> KernelDifference:
    a, b = ([launch for pair in pairs for launch in pair[side]] for side in (0, 1))
    work = _side(a, steps_a), _side(b, steps_b)
    change: Change = (
        "appeared" if not a else "vanished" if not b else "same" if _kinds(a) == _kinds(b) else "changed"
    )
    operators, kernels = [*work[0].operators, *work[1].operators], [*work[0].kernels, *work[1].kernels]
    time, launches = (pair(*both) for both in zip(*((side.time_us, side.launches) for side in work)))
    return KernelDifference(
        name=", ".join(dict.fromkeys(operators or kernels)),
        category=_category(b or a),
        change=change,
        places=len(pairs),
        a=work[0],
        b=work[1],
        delta_us=work[1].time_us - work[0].time_us,
        **numbers(time_us=time, launches=launches),
    )


def _side(launches: Step, steps: int) -> SideWork:
    names = Counter(launch.name for launch in launches)
    operators = dict.fromkeys(launch.operator for launch in launches if launch.operator)
    time = us(sum(launch.ns for launch in launches)) / steps if launches else 0.0
    return SideWork(
        [name for name, _ in names.most_common()], list(operators), len(launches) / max(steps, 1), time
    )


def _category(launches: Step) -> kernel_names.Category:
    """The one that takes most of the time."""
    times: Counter[kernel_names.Category] = Counter()
    for launch in launches:
        times[launch.category] += launch.ns
    return times.most_common(1)[0][0]
