"""Is compiling worth it: how long did it take, what does a step gain, and when does it break even?

A step is compared with that of the baseline run, the same program eager (or, of an eager run, compiled); otherwise a
compiled one with the eager one that the model of the steps predicts; otherwise it is unknown.
"""

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from tb_torchcompile_plugin.analysis.causes import fix
from tb_torchcompile_plugin.analysis.causes.what_if import after_ns, why_nothing
from tb_torchcompile_plugin.analysis.compile.compile_time import CompileCost, compile_cost
from tb_torchcompile_plugin.analysis.finding import Predicted
from tb_torchcompile_plugin.analysis.formatting import column_head, duration, plural, seconds
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import KernelName, kernel_name
from tb_torchcompile_plugin.analysis.runtime.program import ProgramFacts, differences, program, ran_compiled
from tb_torchcompile_plugin.analysis.runtime.roofline import TRITON
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import compiling, span_compiles
from tb_torchcompile_plugin.analysis.runtime.step_picture import PER_STEP, TimeUnit, time_unit
from tb_torchcompile_plugin.analysis.statistics import PAYBACK, StepTimes, step_time_difference, step_times
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.generated_code.generated_code import GraphCode
from tb_torchcompile_plugin.profile import steps as profile_steps
from tb_torchcompile_plugin.profile.columns import Int64s, indices_in, mask_of
from tb_torchcompile_plugin.profile.compiled import regions
from tb_torchcompile_plugin.profile.coverage import coverage
from tb_torchcompile_plugin.profile.gpu.launches import groups, kernel_launches, ran_packages
from tb_torchcompile_plugin.profile.model.launch_sequence import gpu_queue, host_segments, launch_sequence
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_lengths, step_time, unprofiled_steps
from tb_torchcompile_plugin.torch_names.operators import ATEN, is_view
from tb_torchcompile_plugin.torch_names.slices import OPERATOR

_MIN_MINUTES_S = 120  # shorter times are written in seconds; chosen by eye
_FOLDERS = "into folders next to each other, such as `runs/eager` and `runs/compiled`"
_HOW_TO_KNOW = {
    "eager_predicted": "No eager run was recorded. The eager step is predicted from the operators that the generated "
    f"kernels replace. To measure it, record the program without `torch.compile`, {_FOLDERS}",
    "nothing_ran": "Call the function that `torch.compile` returns, and check the graph breaks: a break inside a loop "
    "makes its whole function run eagerly",
    "unknown": f"Record the program once with and once without `torch.compile`, {_FOLDERS}",
}
# From so many steps on, the means of 8 parts show how they vary: they follow one another.
_PARTS, _MIN_STEPS = 8, 32
_VAGUE = 0.1  # of a step: two runs that by chance differ by more show nothing; chosen by eye

PaybackVerdict = Literal["worth_it", "not_worth_it", "unknown"]
DeterminedBy = Literal["measured", "eager_predicted", "nothing_ran", "unknown"]
Caches = Literal["recorded", "cold", "warm"]


def steady_steps(profile: Profile) -> tuple[StepTimes | None, StepTimes | None]:
    """Return how long steady steps are unprofiled and profiled; where the GPU is the bottleneck, by its clock."""
    step, steady = profile.of(step_time), profile.of(profile_steps.steady_steps)
    profiled = step_times((steady.lengths / 1000).tolist()) if steady else None
    if not step.unprofiled_steps:
        # Steps take as long profiled as not if a GPU is the limit, or where those noted are no shorter.
        is_noted = bool(profile.data and profile.data.of(unprofiled_steps))
        return profiled if step.clock == "gpu" or is_noted else None, profiled
    kept = (profile.of(step_lengths) / 1000).tolist()
    # Of many steps the means of a few parts, so that slow changes do not count as chance.
    size = len(kept) // _PARTS if len(kept) >= _MIN_STEPS else 1
    parts = step_times(
        [statistics.fmean(kept[at : at + size]) for at in range(0, len(kept) - size + 1, size)]
    )
    return parts and replace(parts, mean_us=step.step_us), profiled


class RunFacts(NamedTuple):
    """What is known of one run for a comparison."""

    run: str  # its name
    compiled: bool  # whether compiled code ran
    tried: bool  # whether torch compiled any frame
    unprofiled: StepTimes | None  # the steps that do not compile; None where they are unknown
    profiled: StepTimes | None
    cost: CompileCost | None
    program: ProgramFacts


def run_facts(profile: Profile) -> RunFacts:
    """Return what is known of the run of a span."""
    unprofiled, profiled = profile.of(steady_steps)
    return RunFacts(
        run="",
        compiled=profile.of(ran_compiled),
        tried=bool(profile.summary and profile.summary.compilations),
        unprofiled=unprofiled,
        profiled=profiled,
        cost=profile.data.of(compile_cost) if profile.data else None,
        program=profile.of(program),
    )


def is_compiled(run: RunFacts, other: RunFacts) -> bool | None:
    """Whether the first of two runs is the compiled one, by what ran or what torch tried; None where both are alike."""
    if run.compiled != other.compiled:
        return run.compiled
    return run.tried if not run.compiled and run.tried != other.tried else None


def why_not_comparable(run: RunFacts, other: RunFacts) -> str:
    """Return why a run cannot be compared with its baseline run, a sentence; "" where it can."""
    name = f"run {other.run}"
    if is_compiled(run, other) is None:
        return f"Both this run and {name} {'ran compiled code' if other.compiled else 'are eager'}."
    found = differences(run.program, other.program, ("this run", name))
    return next((text for kind, text in found if kind != "torch"), "")


class BreakEven(msgspec.Struct, frozen=True):
    """After how many steps the time spent compiling is gained back."""

    name: Annotated[Caches, column_head("Caches")]
    cost_s: Annotated[float, column_head("Compile time")]
    steps: Annotated[int, column_head("Break-even step")]
    low_steps: Annotated[int, column_head("Earliest")]
    high_steps: Annotated[int | None, column_head("Latest")]  # None where a step may gain nothing
    after_s: Annotated[float, column_head("Run time until then")]


class Gain(msgspec.Struct, frozen=True):
    """What compiling saves in a steady step (µs)."""

    verdict: PaybackVerdict
    determined_by: DeterminedBy
    eager_us: Annotated[float | None, column_head("Eager step")]
    compiled_us: Annotated[float | None, column_head("Compiled step")]
    gain_us: float | None
    low_us: Annotated[float | None, column_head("Gain at least")]
    high_us: Annotated[float | None, column_head("Gain at most")]
    eager_run: str  # the name of the baseline run; "" for this one and for none, as `compiled_run`
    compiled_run: str


class CompileSeconds(msgspec.Struct, frozen=True):
    """Compile time, and what it is with other caches; None where this run does not show it."""

    blocked_s: Annotated[float, column_head("Compile time")]
    cold_s: Annotated[float | None, column_head("With cold caches")]
    warm_s: Annotated[float | None, column_head("With warm caches")]
    cache_hits: int
    cache_lookups: int


class Payback(msgspec.Struct, frozen=True):
    """Whether compiling is worth it."""

    sentences: tuple[str, ...]  # the answer first, then what it is based on
    gain: Annotated[tuple[Gain, ...], column_head("Steady step, eager and compiled")]  # one row
    cost: Annotated[tuple[CompileSeconds, ...], column_head("Compile time by caches")]
    # () where compiling is not worth it, or that is unknown.
    break_even: Annotated[tuple[BreakEven, ...], column_head("Break-even")]


UNKNOWN = Gain("unknown", "unknown", None, None, None, None, None, "", "")
NOTHING_RAN = Gain("not_worth_it", "nothing_ran", None, None, None, None, None, "", "")


def measured_gain(eager: RunFacts, compiled: RunFacts) -> Gain:
    """Return the gain of two runs: none if it is within chance, unknown if chance is large."""
    times = eager.unprofiled, compiled.unprofiled
    if None in times:  # profiling makes one slower than the other, so both are taken profiled
        times = eager.profiled, compiled.profiled
    compared = step_time_difference(*times, PAYBACK)
    if compared is None:
        return UNKNOWN
    before, after, chance = compared.baseline.mean_us, compared.candidate.mean_us, compared.noise_us or 0.0
    gain = before - after
    verdict: PaybackVerdict = "worth_it" if gain > chance else "not_worth_it"
    if abs(gain) <= chance and chance > _VAGUE * before:
        verdict = "unknown"
    return Gain(
        verdict=verdict,
        determined_by="measured",
        eager_us=before,
        compiled_us=after,
        gain_us=gain,
        low_us=gain - chance,
        high_us=gain + chance,
        eager_run=eager.run,
        compiled_run=compiled.run,
    )


def predicted_gain(eager: tuple[float, float, float], compiled_us: float) -> Gain:
    """Return the gain from an eager step (µs) with its lowest and highest value; unknown if it may have either sign."""
    middle, low, high = (us - compiled_us for us in eager)
    verdict: PaybackVerdict = "unknown" if low <= 0 < high else "worth_it" if low > 0 else "not_worth_it"
    return Gain(verdict, "eager_predicted", eager[0], compiled_us, middle, low, high, "", "")


def measured_step(gain: Gain, *, is_eager: bool) -> Predicted:
    """Return the eager step and after it the compiled one, or the other way round, of two measured runs."""
    eager, compiled, low, high = _numbers(gain.eager_us, gain.compiled_us, gain.low_us, gain.high_us)
    if is_eager:
        return Predicted(eager, compiled, eager - high, eager - low, 100 * (1 - compiled / eager))
    return Predicted(compiled, eager, compiled + low, compiled + high, 100 * (1 - eager / compiled))


def break_even(gain: Gain, cost: CompileCost | None) -> tuple[BreakEven, ...]:
    """Return break-even with this run's caches, and with others as far as that is known; () where it is not."""
    if cost is None or gain.verdict != "worth_it":
        return ()
    gain_us, low, high, eager = _numbers(gain.gain_us, gain.low_us, gain.high_us, gain.eager_us)
    others: tuple[tuple[Caches, float | None], ...] = (("cold", cost.cold_s), ("warm", cost.warm_s))
    known = [(name, s) for name, s in others if s is not None and s != cost.blocked_s]
    rows = []
    for name, cost_s in [("recorded", cost.blocked_s), *known]:
        steps, least = (round(cost_s * 1e6 / each) for each in (gain_us, high))
        most = round(cost_s * 1e6 / low) if low > 0 else None
        rows.append(BreakEven(name, cost_s, steps, least, most, steps * eager / 1e6))
    return tuple(rows)


def _numbers(*values: float | None) -> list[float]:
    """Return values that are known once there is a gain."""
    return [value for value in values if value is not None]


def payback(profile: Profile) -> Payback:
    """Return whether compiling is worth it, compared with the baseline run of a span if there is one."""
    gain, cost, refused = _comparison(profile)
    even = break_even(gain, cost)
    return Payback(
        sentences=(answer(gain, even, cost, profile.of(time_unit)), *_grounds(gain, even, refused)),
        gain=(gain,),
        cost=(CompileSeconds(*cost[:5]),) if cost else (),
        break_even=even,
    )


def payback_sentence(profile: Profile) -> str:
    """Return the answer alone; "" where nothing was compiled, here or in the baseline run."""
    found = profile.of(payback)
    return "" if found.gain[0].determined_by == "unknown" and not found.cost else found.sentences[0]


def payback_of(profile: Profile, other: Profile) -> str:
    """Return the answer by two runs, of which one is compiled and the other is not; "" otherwise."""
    runs = [about.of(run_facts) for about in (profile, other)]
    if why_not_comparable(*runs):
        return ""
    gain, cost = _measured(*runs)
    return answer(gain, break_even(gain, cost), cost)


def _comparison(profile: Profile) -> tuple[Gain, CompileCost | None, str]:
    """Return the gain, compile time, and why the baseline run does not count, a sentence or ""."""
    facts, baseline_run = profile.of(run_facts), profile.baseline_run
    if facts.tried and not facts.compiled:
        is_known = profile.of(coverage).level != "insufficient" and not profile.of(ran_packages)
        return NOTHING_RAN if is_known else UNKNOWN, facts.cost, ""
    refused = profile.of(_unsteady)
    if baseline_run is not None:
        try:
            baseline = baseline_run.read().of(run_facts)._replace(run=baseline_run.run)
            if not (why := why_not_comparable(facts, baseline)):
                return *_measured(facts, baseline), ""
            refused = f"Run {baseline.run} does not show the gain. {why}"
        except UserError as error:
            refused = f"Run {baseline_run.run} cannot be read: {error.notice.problem}."
    return _predicted(profile, facts), facts.cost, refused


def _measured(run: RunFacts, other: RunFacts) -> tuple[Gain, CompileCost | None]:
    eager, compiled = (other, run) if is_compiled(run, other) else (run, other)
    return measured_gain(eager, compiled) if compiled.compiled else NOTHING_RAN, compiled.cost


def _unsteady(profile: Profile) -> str:
    """Return why no step is predicted: all of them compile."""
    if profile.of(span_compiles):
        return "No steps are marked, and torch compiles in this span: call `prof.step()` and profile later steps."
    steps = 0 if profile.of(compiling).others_us.size else profile.of(compiling).steps
    compile_ = plural(steps, "profiled step compiles", "profiled steps compile")
    return f"{compile_}: profile later steps to measure a steady one." if steps else ""


def _predicted(profile: Profile, facts: RunFacts) -> Gain:
    """Return the gain compared with what a compiled step would be eager; what an eager one lacks, findings predict."""
    eager = profile.of(uncompiled) if facts.compiled and not profile.of(_unsteady) else None
    return predicted_gain(eager, profile.of(step_time).step_us) if eager else UNKNOWN


def answer(gain: Gain, even: Sequence[BreakEven], cost: CompileCost | None, unit: TimeUnit = PER_STEP) -> str:
    """Return "Compiling breaks even at step 1,230, after 25.0 s. Compilation took 12.3 s, and a step takes …"."""
    took = "" if cost is None else f"took {'' if cost.whole else 'at least '}{seconds(cost.blocked_s)}"
    end = f". Compilation {took}." if took else "."
    if gain.determined_by == "unknown":
        return f"Whether compiling is worth it is unknown{end}"
    is_predicted = gain.determined_by == "eager_predicted"
    if gain.verdict == "unknown":
        digits = 2 if is_predicted else 3
        slower, faster = (duration(abs(us or 0.0), digits) for us in (gain.low_us, gain.high_us))
        is_ = "is predicted to be" if is_predicted else "is"
        return f"Inconclusive: compiled code {is_} between {slower} slower and {faster} faster per step."
    if gain.verdict == "not_worth_it":
        # A predicted eager step may be longer than all that was assumed.
        not_ = "may not be" if is_predicted else "is not"
        return f"Compiling {not_} worth it: {_steps(gain, unit)}{end}"
    if not even:
        return f"Compiling makes steps faster: {_steps(gain, unit)}."
    first = even[0]
    breaks_even = f"Compiling breaks even at step {first.steps:,}, after {_long(first.after_s)}"
    if is_predicted:
        earliest, latest = first.low_steps, first.high_steps
        when = f"between steps {earliest:,} and {latest:,}" if latest else f"at step {earliest:,} or later"
        breaks_even = f"Compiling is predicted to break even {when}"
    return f"{breaks_even}. Compilation {took}, and {_steps(gain, unit)}."


def _steps(gain: Gain, unit: TimeUnit) -> str:
    if gain.determined_by == "nothing_ran":
        return "none of the compiled code runs in the profiled time"
    compiled, eager = (duration(us or 0.0) for us in (gain.compiled_us, gain.eager_us))
    if gain.determined_by == "eager_predicted":
        eager = duration(gain.eager_us or 0.0, 2)
        return f"{unit.one} takes {compiled} compiled and about {eager} eager (predicted)"
    high, middle = gain.high_us or 0.0, gain.gain_us or 0.0
    both = f"a step takes {compiled} compiled and {eager} eager"
    is_noise = gain.verdict == "not_worth_it" and high > 0
    return f"{both}, a difference within the noise (± {duration(high - middle)})" if is_noise else both


def _grounds(gain: Gain, even: Sequence[BreakEven], refused: str) -> Iterator[str]:
    """Yield what the answer is based on, and the break-even with other caches."""
    if refused:
        yield refused
    if gain.determined_by == "measured":
        how = "eager" if gain.eager_run else "compiled"
        yield f"Compared with run {gain.eager_run or gain.compiled_run}, the same program {how}."
    else:
        yield f"{_HOW_TO_KNOW[gain.determined_by]}."
    for row in even[1:]:
        yield f"With {row.name} caches, compiling takes {seconds(row.cost_s)} and breaks even at step {row.steps:,}."


def _long(s: float) -> str:
    """Return "2.1 minutes" from two minutes on, "12.3 s" below."""
    if s < _MIN_MINUTES_S:
        return seconds(s)
    minutes = s / 60
    return plural(round(minutes), "minute") if minutes >= 10 else f"{minutes:.1f} minutes"


# The eager step that a compiled one is compared with. Fused kernels become operators in the model of the steps.
_SHORTEST_NS = 1_500  # of a kernel, however little it does; chosen by eye on the recordings


# What one eager operator is assumed to take: tensors that it reads and writes, and host time of its launch (ns).
# Likely, least and most; chosen by eye.
_ASSUMED = (2.25, 10_000), (1.5, 5_000), (3.0, 18_000)


def uncompiled(profile: Profile) -> tuple[float, float, float] | None:
    """Predict a step without torch.compile (µs), with the lowest and the highest value.

    None without a prediction, a generated kernel or its code.

    In the model each fused kernel becomes its operators. Each of those reads and writes its tensors by itself, at the
    bandwidth of the fused kernel; its launch takes the host as long as an operator's does. The guards and wrappers of
    compiled code are gone, kernels of libraries stay. What an operator moves and what its launch takes is not known
    exactly: so there is a range.
    """
    if profile.of(why_nothing) or not profile.of(_fused)[0].any():
        return None
    trace = profile.trace
    inside = fix.time_inside(profile, profile.of(fix.compiled_times))
    aten = mask_of(trace.names, lambda name: name.startswith(ATEN))[trace.name]
    is_operator = aten & mask_of(trace.cats, OPERATOR.__eq__)[trace.cat]
    # Row -1, where nothing was recorded, is the last.
    by_library = np.append(is_operator, False)[profile.of(host_segments).row]
    no_wrappers = fix.without_host_time(np.where(by_library, 0, inside))
    changes = (fix.in_sequence(no_wrappers, _unfused(profile, *assumed)) for assumed in _ASSUMED)
    times = [after_ns(profile, change) / 1000 for change in changes]
    return times[0], min(times), max(times)


def _unfused(profile: Profile, moved: float, launch_ns: int) -> fix.Change:
    queue, lane, (operators, tensors) = profile.of(gpu_queue), profile.of(launch_sequence), profile.of(_fused)
    generated = operators > 0
    alone = operators * moved / np.maximum(tensors, 1)
    longer = np.where(operators > 1, np.maximum(alone, 1.0), 1.0)
    dur = np.maximum((queue.dur * longer).astype(np.int64), operators * _SHORTEST_NS)
    launches = np.zeros(len(lane), np.int64)
    np.add.at(launches, queue.point[generated], operators[generated])
    return fix.in_sequence(
        fix.with_call_time(launches > 0, launches * launch_ns),
        fix.with_durations(np.flatnonzero(generated), dur[generated]),
    )


def _fused(profile: Profile) -> tuple[Int64s, Int64s]:
    """Return of how many operators each work of the queue is made, 0 for unknown, and how many tensors it moves."""
    queue_rows = profile.of(gpu_queue).row
    operators, tensors = np.zeros((2, len(queue_rows)), np.int64)
    for rows in profile.of(kernel_launches):
        for launches in groups(rows) if rows.device != "cpu" else ():
            if rows.category[launches[0]] in TRITON:
                work = indices_in(queue_rows, rows.index[launches])
                work = work[work >= 0]
                operators[work], tensors[work] = _made_of(profile, kernel_name(profile, rows, launches))
    return operators, tensors


def _made_of(profile: Profile, kernel: KernelName) -> tuple[int, int]:
    """Return the (operators, tensors) of one launch; zeros where the code of the kernel is unknown."""
    generated = profile.of(regions.generated_code).find(kernel.name, kernel.compile_id, kernel.graph_key)
    if generated is None:
        return 0, 0
    definition = generated.definition
    times = profile.of(_kernels_by_node, generated.code)
    nodes = sum(1 / times[node] for node in definition.source_nodes if not is_view(node))
    # Kernels without nodes are counted by operators instead.
    named = 0 if definition.source_nodes else sum(not is_view(name) for name in definition.aten_ops)
    return max(round(nodes), named, 1), (definition.signature or "").count("_ptr")


def _kernels_by_node(profile: Profile, code: GraphCode) -> Counter[str]:
    """Return how many kernels of a graph each node is part of: a reduction in two parts is one operator."""
    return Counter(node for row in code.definitions.values() for node in set(row.source_nodes))
