"""Is compiling worth it: what did it cost, what does a step gain, and when are the two even?

A step is compared with that of the baseline run, the same program eager (or, of an eager run, compiled); otherwise a
compiled one with the eager one that the model of the steps predicts; otherwise it is unknown.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis.causes import fix
from tb_torchcompile_plugin.analysis.causes.payback_result import (
    NOTHING_RAN,
    UNKNOWN,
    BreakEven,
    CompileSeconds,
    Gain,
    Payback,
    RunFacts,
    break_even,
    is_compiled,
    measured_gain,
    predicted_gain,
    run_facts,
    why_not_comparable,
)
from tb_torchcompile_plugin.analysis.causes.what_if import after_ns, why_nothing
from tb_torchcompile_plugin.analysis.compile.compile_time import CompileCost
from tb_torchcompile_plugin.analysis.formatting import duration, plural, seconds, signed
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import KernelName, kernel_name
from tb_torchcompile_plugin.analysis.runtime.step_breakdown import compiling, span_compiles
from tb_torchcompile_plugin.analysis.runtime.step_picture import PER_STEP, TimeUnit, time_unit
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.generated_code.generated_code import GraphCode
from tb_torchcompile_plugin.profile.columns import indices_in, mask_of
from tb_torchcompile_plugin.profile.compiled import regions
from tb_torchcompile_plugin.profile.coverage import coverage
from tb_torchcompile_plugin.profile.gpu.launches import groups, kernel_launches
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_segments, launch_sequence
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import step_time
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, has_triton_prefix
from tb_torchcompile_plugin.torch_names.operators import ATEN, is_view
from tb_torchcompile_plugin.torch_names.slices import OPERATOR

_MIN_MINUTES_S = 120  # shorter times are written in seconds; chosen by eye
_BESIDE = "into a run beside this one, named for it (runs/eager beside runs/compiled)"
_HOW_TO_KNOW = {
    "eager_predicted": "No eager run was measured: its step is predicted from the operators that generated kernels are "
    f"made of. Record the program once without torch.compile, {_BESIDE}, to know it",
    "nothing_ran": "Call what torch.compile returns, and see the graph breaks: a break inside of a loop leaves all of "
    "its function eager",
    "nobody": f"Record the program once with and once without torch.compile, {_BESIDE}",
}
_SHORTEST_NS = 1_500  # of a kernel, however little it does; chosen by eye on the recordings
_TRITON = [code for code, name in enumerate(CATEGORIES) if has_triton_prefix(name)]


class Assumed(NamedTuple):
    """What one eager operator is assumed to take; chosen by eye."""

    tensors: float  # that it reads and writes
    launch_ns: int  # of host time


USUAL, LEAST, MOST = Assumed(2.25, 10_000), Assumed(1.5, 5_000), Assumed(3.0, 18_000)


class _Comparison(NamedTuple):
    gain: Gain
    cost: CompileCost | None
    refused: str  # why the baseline run does not count, a sentence or ""


def payback(profile: Profile) -> Payback:
    """Return the answer for a span, compared with its baseline run where there is one."""
    gain, cost, refused = profile.of(_comparison)
    even = break_even(gain, cost)
    return Payback(
        sentences=(answer(gain, even, cost, profile.of(time_unit)), *_grounds(gain, even, refused)),
        gain=(gain,),
        cost=(CompileSeconds(*cost[:5]),) if cost else (),
        break_even=even,
    )


def payback_sentence(profile: Profile) -> str:
    """Return the answer alone; "" where nothing was compiled, here or in the baseline run."""
    gain, cost, _ = profile.of(_comparison)
    if gain.determined_by == "nobody" and not cost:
        return ""
    return answer(gain, break_even(gain, cost), cost, profile.of(time_unit))


def _comparison(profile: Profile) -> _Comparison:
    facts, baseline_run = profile.of(run_facts), profile.baseline_run
    if facts.tried and not facts.compiled:
        is_known = profile.of(coverage).level != "insufficient"
        return _Comparison(NOTHING_RAN if is_known else UNKNOWN, facts.cost, "")
    if baseline_run is None:
        return _Comparison(_predicted(profile, facts), facts.cost, profile.of(_unsteady))
    try:
        baseline = baseline_run.read().of(run_facts)._replace(run=baseline_run.run)
    except UserError as error:
        refused = f"Run {baseline_run.run} cannot be read: {error.notice.problem}."
        return _Comparison(_predicted(profile, facts), facts.cost, refused)
    if why := why_not_comparable(facts, baseline):
        refused = f"There is no comparison with run {baseline.run}. {why}"
        return _Comparison(_predicted(profile, facts), facts.cost, refused)
    eager, compiled = (baseline, facts) if is_compiled(facts, baseline) else (facts, baseline)
    gain = measured_gain(eager, compiled) if compiled.compiled else NOTHING_RAN
    return _Comparison(gain, compiled.cost, "")


def _unsteady(profile: Profile) -> str:
    """Return why no step is predicted: all of them compile."""
    if profile.of(span_compiles):
        return "Nothing tells steps, and this span compiles: mark them, prof.step(), and record steady ones."
    steps = 0 if profile.of(compiling).others_us.size else profile.of(compiling).steps
    compile_ = plural(steps, "profiled step compiles", "profiled steps compile")
    return f"{compile_}: record later ones to know what a steady one takes." if steps else ""


def _predicted(profile: Profile, facts: RunFacts) -> Gain:
    """Return the gain compared with what a compiled step would be eager; what an eager one lacks, findings predict."""
    if profile.of(why_nothing) or profile.of(_unsteady) or not facts.compiled:
        return UNKNOWN
    eager = profile.of(uncompiled)
    return predicted_gain(eager, profile.of(step_time).step_us) if eager else UNKNOWN


def answer(gain: Gain, even: Sequence[BreakEven], cost: CompileCost | None, unit: TimeUnit = PER_STEP) -> str:
    """Return "Compiling pays from step 1,230 on, after 25.0 s: it cost 12.3 s, and a step takes 4.10 ms …"."""
    cost_s = "" if cost is None else f"{'' if cost.whole else 'at least '}{seconds(cost.blocked_s)}"
    if gain.determined_by == "nobody":
        return "Whether compiling pays is not known" + (f": it cost {cost_s}." if cost_s else ".")
    is_predicted = gain.determined_by == "eager_predicted"
    if gain.verdict == "unknown":
        range_ = f"{signed(gain.low_us or 0.0, duration)} to {signed(gain.high_us or 0.0, duration)}"
        how = "is predicted to be" if is_predicted else "lies by what was recorded anywhere in"
        return f"Whether compiling pays cannot be told: what it takes off a step {how} {range_}."
    if gain.verdict == "never":
        # A predicted eager step may be longer than all that was assumed.
        not_ = "may not pay" if is_predicted else "does not pay"
        return f"Compiling {not_}: {_steps(gain, unit)}" + (f", and it cost {cost_s}." if cost_s else ".")
    if not even:
        return f"Compiling makes steps faster: {_steps(gain, unit)}."
    first = even[0]
    pays = f"Compiling pays from step {first.steps:,} on, after {_long(first.after_s)}"
    if is_predicted:
        most = f" at {first.high_steps:,}" if first.high_steps else " later"
        pays = f"Compiling should pay, from step {first.low_steps:,} on or{most}"
    return f"{pays}: it cost {cost_s}, and {_steps(gain, unit)}."


def _steps(gain: Gain, unit: TimeUnit) -> str:
    if gain.determined_by == "nothing_ran":
        return "nothing of what torch compiled runs in the profiled time"
    compiled, eager = (duration(us or 0.0) for us in (gain.compiled_us, gain.eager_us))
    if gain.determined_by == "eager_predicted":
        return f"{unit.one} takes {compiled}, and is predicted to take {eager} eager"
    high, middle = gain.high_us or 0.0, gain.gain_us or 0.0
    if gain.verdict == "never" and high > 0:
        return f"a step takes {compiled} compiled and {eager} eager, which may be chance (± {duration(high - middle)})"
    return f"a step takes {compiled} compiled and {eager} eager"


def _grounds(gain: Gain, even: Sequence[BreakEven], refused: str) -> Iterator[str]:
    """Yield what the answer is based on, and what it would be with other caches."""
    if refused:
        yield refused
    if gain.determined_by == "measured":
        how = "eager" if gain.eager_run else "compiled"
        yield f"Compared with run {gain.eager_run or gain.compiled_run}, the same program {how}."
    else:
        yield f"{_HOW_TO_KNOW[gain.determined_by]}."
    for row in even[1:]:
        yield f"With {row.name} caches it would cost {seconds(row.cost_s)}, and pay from step {row.steps:,} on."


def _long(s: float) -> str:
    """Return "2.1 minutes" from two minutes on, "12.3 s" below."""
    if s < _MIN_MINUTES_S:
        return seconds(s)
    minutes = s / 60
    return plural(round(minutes), "minute") if minutes >= 10 else f"{minutes:.1f} minutes"


def uncompiled(profile: Profile) -> tuple[float, float, float] | None:
    """Predict a step without torch.compile (µs), with the lowest and the highest value.

    None without a prediction, a generated kernel or its code.

    In the model each fused kernel becomes its operators. Each of those reads and writes its tensors by itself, at the
    bandwidth of the fused kernel; its launch takes the host as long as an operator's does. The guards and wrappers of
    compiled code are gone, kernels of libraries stay. What an operator moves and what its launch takes is not known
    exactly: so there is a range.
    """
    if profile.of(why_nothing):
        return None
    operators, _ = profile.of(_fused)
    if not operators.any():
        return None
    trace = profile.trace
    inside = fix.time_inside(profile, profile.of(fix.compiled_times))
    aten = mask_of(trace.names, lambda name: name.startswith(ATEN))[trace.name]
    is_operator = aten & mask_of(trace.cats, OPERATOR.__eq__)[trace.cat]
    # Row -1, where nothing was recorded, is the last.
    by_library = np.append(is_operator, False)[profile.of(host_segments).row]
    no_wrappers = fix.without_host_time(np.where(by_library, 0, inside))
    changes = (fix.in_sequence(no_wrappers, _unfused(profile, assumed)) for assumed in (USUAL, LEAST, MOST))
    times = [after_ns(profile, change) / 1000 for change in changes]
    return times[0], min(times), max(times)


def _unfused(profile: Profile, assumed: Assumed) -> fix.Change:
    queue, lane, (operators, tensors) = profile.of(gpu_queue), profile.of(launch_sequence), profile.of(_fused)
    generated = operators > 0
    alone = operators * assumed.tensors / np.maximum(tensors, 1)
    longer = np.where(operators > 1, np.maximum(alone, 1.0), 1.0)
    dur = np.maximum((queue.dur * longer).astype(np.int64), operators * _SHORTEST_NS)
    launches = np.zeros(len(lane), np.int64)
    np.add.at(launches, queue.point[generated], operators[generated])
    return fix.in_sequence(
        fix.with_call_time(launches > 0, launches * assumed.launch_ns),
        fix.with_durations(np.flatnonzero(generated), dur[generated]),
    )


def _fused(profile: Profile) -> tuple[Int64s, Int64s]:
    """Return of how many operators each work of the queue is made, 0 for unknown, and how many tensors it moves."""
    queue_rows = profile.of(gpu_queue).row
    operators, tensors = np.zeros((2, len(queue_rows)), np.int64)
    for rows in profile.of(kernel_launches):
        for launches in groups(rows) if rows.device != "cpu" else ():
            if rows.category[launches[0]] in _TRITON:
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
