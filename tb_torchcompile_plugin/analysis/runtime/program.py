"""Which program did a run execute, is it that of another run, and which run is its baseline?

Compiled or not, a program calls the same matrix products, convolutions and attentions: as many in each step, and of the
same sizes. In recordings of 14 programs, eager and compiled, both are equal. Of 2,679 pairs of different programs with
recorded shapes 86 % have fewer than a quarter of their sizes in common, 99.5 % differ by sizes, calls or operations.
What ran decides; where that is unknown, the script; the names of runs come last.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import combinations
from typing import Annotated, Literal

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.formatting import joined_names, significant
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import launched_in_steps
from tb_torchcompile_plugin.analysis.runtime.roofline import launched_work
from tb_torchcompile_plugin.profile.columns import Int64s, codes_of, mask_of
from tb_torchcompile_plugin.profile.compiled.regions import compiled_calls
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import device_names, gpu_work
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, launching
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.trace.nest import first_ancestor
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, GENERATED
from tb_torchcompile_plugin.torch_names.operators import ATEN, landmark_of
from tb_torchcompile_plugin.torch_names.slices import OPERATOR, is_graph

_MAX_SIZES = 200  # that are kept of a run, those of most calls: 3 kB
_MIN_COMMON = 0.25  # of the pairs of sizes of two runs: see above
_SURELY_COMMON = 0.9  # from which on nothing else needs to show that two programs are the same
_MAX_TIMES = 2.0  # as many operations in a step: inductor writes small products itself
_MIN_CALLS = 0.5  # of the calls in a step, that are of a kind which the other run calls as often
_TEMPLATE = CATEGORIES.index("triton_template")  # what max-autotune puts in place of an operator
_ANY = "template"

_EAGER = {"eager", "uncompiled", "nocompile", "baseline"}
_COMPILED = {"compiled", "compile", "inductor", "cold", "warm"}
# Modes of torch.compile: a run of one is compared with the plain compiled one where there is no eager one.
_MODES = {"cudagraphs", "reduce", "overhead", "max", "autotune"}

_Positive = Annotated[float, msgspec.Meta(gt=0)]
Difference = Literal["program", "work", "gpu", "torch"]
# No verdict.
OTHER: dict[Difference, str] = {"program": "execute different programs", "work": "do different work"}


class ProgramFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a run executed; "", [] and None where that is unknown."""

    script: str = ""
    compiled: bool | None = None  # whether compiled code ran, or torch compiled anything
    devices: list[str] = []  # names of its GPUs, ["CPU"] of a trace without GPU work
    torch: str = ""
    # Of the tensors of each matrix product, convolution and attention, each number once.
    sizes: list[list[int]] = []
    calls: dict[str, _Positive] = {}  # of these operators in a step, by kind; without marked steps unknown
    tflop: _Positive | None = None  # of a step; None where no shapes were recorded


def program(profile: Profile) -> ProgramFacts:
    """Return what is known of the program of a span."""
    rows = profile.of(_landmarks)
    known = program_of_data(profile.data) if profile.data else ProgramFacts()
    names = sorted({name for name in device_names(profile.trace).values() if name})
    flop = sum(
        float(np.nansum(work.flop[launched_in_steps(profile, launches)]))
        for launches, work in zip(profile.of(kernel_launches), profile.of(launched_work), strict=True)
    )
    return msgspec.structs.replace(
        known,
        compiled=profile.of(ran_compiled) or bool(known.compiled),
        devices=names or known.devices or ([] if len(profile.of(gpu_work).index) else ["CPU"]),
        sizes=_sizes(profile, rows),
        calls=_calls(profile, rows),
        tflop=flop / 1e12 / max(len(profile.of(StepWindows)), 1) or None,
    )


def program_of_data(data: CompileData) -> ProgramFacts:
    """Return what the compile data of a worker shows."""
    environment = data.summary.environment
    return ProgramFacts(
        script=environment.program,
        compiled=bool(data.summary.compilations),
        devices=sorted(set(environment.device_names)),
        torch=environment.torch_version,
    )


def ran_compiled(profile: Profile) -> bool:
    """Return whether compiled code ran."""
    return (
        bool(profile.of(compiled_calls))
        or any(map(is_graph, profile.trace.names))
        or not GENERATED.isdisjoint(profile.of(gpu_work).categories)
    )


def _landmarks(profile: Profile) -> Int64s:
    """Return the innermost matrix products, convolutions and attentions in the steps; without steps, all."""
    trace, steps = profile.trace, profile.of(StepWindows)
    named = mask_of(trace.names, lambda name: name.startswith(ATEN) and bool(landmark_of(name)))
    is_landmark = named[trace.name]
    rows = trace.select(cat=(OPERATOR,))
    rows = rows[is_landmark[rows]]
    rows = np.setdiff1d(rows, first_ancestor(trace.parent, trace.parent[rows], is_landmark))
    return rows[launching(steps.windows, trace, rows) >= 0] if len(steps) else rows


def _calls(profile: Profile, rows: Int64s) -> dict[str, float]:
    trace, steps = profile.trace, len(profile.of(StepWindows))
    counts = Counter(landmark_of(trace.names[name]) or "" for name in trace.name[rows].tolist())
    for launches in profile.of(kernel_launches):
        templates = launched_in_steps(profile, launches) & (launches.category == _TEMPLATE)
        counts[_ANY] += int(templates.sum())
    return {kind: count / steps for kind, count in counts.items() if count} if steps else {}


def _sizes(profile: Profile, rows: Int64s) -> list[list[int]]:
    texts = profile.trace.texts["input_dims"]
    sizes = Counter[tuple[int, ...]]()
    for code, count in Counter(codes_of(profile.trace, "input_dims", rows).tolist()).items():
        numbers = {int(number) for number in re.findall(r"\d+", texts[code])} if code >= 0 else set()
        sizes[tuple(sorted(numbers - {0, 1}))] += count
    del sizes[()]
    return [list(numbers) for numbers, _ in sizes.most_common(_MAX_SIZES)]


def differences(
    a: ProgramFacts, b: ProgramFacts, names: tuple[str, str] = ("the baseline", "the candidate")
) -> Iterator[tuple[Difference, str]]:
    """Yield in what two runs differ, and a sentence; what is unknown of one is no difference.

    program: they do not execute the same one. work: the same script does different work per step.
    """
    first = names[0][:1].upper() + names[0][1:]
    scripts = [file_name(run.script) for run in (a, b)]
    is_same_script = bool(scripts[0]) and scripts[0] == scripts[1]
    if work := _other_work(a, b, names):
        yield ("work" if is_same_script else "program"), work
    elif work is None and all(scripts) and not is_same_script:
        yield "program", f"{first} ran `{scripts[0]}`, {names[1]} `{scripts[1]}`."
    if a.torch and b.torch and a.torch != b.torch:
        yield "torch", f"{first} ran on torch {a.torch}, {names[1]} on torch {b.torch}."
    devices = [", ".join(run.devices) for run in (a, b)]
    if all(devices) and devices[0] != devices[1]:
        yield ("gpu", f"{first} ran on {devices[0]}, {names[1]} on {devices[1]}: different devices.")


def _other_work(a: ProgramFacts, b: ProgramFacts, names: tuple[str, str]) -> str | None:
    """Return a sentence where the work of two runs differs, "" where it is alike, None where it is unknown."""
    what = "matrix products, convolutions and attentions"
    common = _common(a, b)
    if common is not None and common < _MIN_COMMON:
        return f"The {what} of {names[0]} and of {names[1]} have different sizes."
    if a.calls and b.calls and _common_calls(a, b) < _MIN_CALLS:
        return f"A step of {names[0]} calls {_calls_words(a)}, a step of {names[1]} {_calls_words(b)}."
    if a.tflop and b.tflop and not 1 / _MAX_TIMES <= b.tflop / a.tflop <= _MAX_TIMES:
        tflop = [significant(run.tflop or 0.0) for run in (a, b)]
        return (
            f"The {what} of {names[0]} take {tflop[0]} TFLOP per step, those of {names[1]} {tflop[1]} TFLOP."
        )
    return None if common is None and not (a.calls and b.calls) else ""


def _common_calls(a: ProgramFacts, b: ProgramFacts) -> float:
    """Return the share of the calls of the run with more of them that both have; a template stands for any kind."""
    alike = sum(min(count, b.calls.get(kind, 0.0)) for kind, count in a.calls.items() if kind != _ANY)
    templates = sum(run.calls.get(_ANY, 0.0) for run in (a, b))
    return (alike + templates) / max(sum(run.calls.values()) for run in (a, b))


def _calls_words(run: ProgramFacts) -> str:
    """Return "40 convolution and 3 gemm operators"."""
    counts = sorted(run.calls.items(), key=lambda item: -item[1])
    return f"{joined_names([f'{count:,.3g} {kind}' for kind, count in counts])} operators"


def _common(a: ProgramFacts, b: ProgramFacts) -> float | None:
    """Return the share of pairs of sizes that two runs have in common; None where those of a run are unknown.

    Of pairs, as a length or a batch that varies is one size of several: those of a weight stay.
    """
    pairs = [{pair for sizes in run.sizes for pair in combinations(sizes, 2)} for run in (a, b)]
    return len(pairs[0] & pairs[1]) / min(map(len, pairs)) if all(pairs) else None


def is_other_program(a: ProgramFacts | None, b: ProgramFacts | None) -> bool:
    """Return whether two runs are known not to compare."""
    return a is not None and b is not None and any(kind in OTHER for kind, _ in differences(a, b))


def file_name(path: str) -> str:
    """Return the name of a file without its folders, of whatever system."""
    return re.split(r"[/\\]", path)[-1]


def baseline_of(run: str, runs: Mapping[str, ProgramFacts | None]) -> str | None:
    """Return the run to compare a run with; None without one, or of several.

    That is the eager run of a compiled one, the compiled run of an eager one and, without an eager run, the plain
    compiled run of one in a mode of torch.compile. runs: all runs and what each executed, None where unknown. Those
    that executed the same program come first, then those whose names differ only by words that say how they ran, as
    `bert/eager` and `bert/compiled`.
    """
    own = runs[run]
    alike = [name for name, other in runs.items() if name != run and own and other and _is_same(own, other)]
    named_alike = _named_alike(run, runs)
    is_eager = _is_eager(run, runs)
    for candidates in (alike, named_alike):
        others = [name for name in candidates if _is_eager(name, runs) is not is_eager]
        if is_eager:  # cold caches show what compiling costs, and modes of torch.compile come later
            plain = [name for name in others if not _MODES & set(_words(name))]
            others = [name for name in plain if "warm" not in _words(name)] or plain or others
        both = [name for name in others if name in named_alike] or others
        if len(both) == 1:
            return both[0]
    is_mode = bool(_MODES & set(_words(run)))
    plain = [name for name in named_alike if is_mode and _COMPILED & set(_words(name))]
    return plain[0] if len(plain) == 1 else None


def _is_same(a: ProgramFacts, b: ProgramFacts) -> bool:
    if is_other_program(a, b):
        return False
    if (common := _common(a, b)) is not None:
        return common >= _SURELY_COMMON
    return bool(a.script) and file_name(a.script) == file_name(b.script)


def _named_alike(run: str, runs: Mapping[str, ProgramFacts | None]) -> list[str]:
    """Return the other runs of the same name but for how they ran, that are not known to be of another program."""
    return [
        name
        for name, other in runs.items()
        if name != run and _stem(name) == _stem(run) and not is_other_program(runs[run], other)
    ]


def _is_eager(run: str, runs: Mapping[str, ProgramFacts | None]) -> bool:
    known = runs[run]
    return bool(_EAGER & set(_words(run))) if known is None or known.compiled is None else not known.compiled


def _stem(run: str) -> list[str]:
    return [word for word in _words(run) if word not in _EAGER | _COMPILED | _MODES]


@lru_cache(maxsize=1 << 14)
def _words(run: str) -> tuple[str, ...]:
    return tuple(word for word in re.split(r"[-_. /]+", run.lower()) if word)
