"""Whether compiling pays, in sentences: the first is the answer, the others are what it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tb_torchcompile_plugin.analysis.pays.compile_cost import CompileCost
from tb_torchcompile_plugin.analysis.pays.result import Even, Gain
from tb_torchcompile_plugin.analysis.pays.why_not import WhyNot
from tb_torchcompile_plugin.analysis.words import duration, plural, seconds, signed

_REASONS = 3
_LONG_S = 120
_BESIDE = "into a run beside this one, named for it (runs/eager beside runs/compiled)"
_HOW_TO_KNOW = {
    "eager_predicted": "No eager run was measured: its step is predicted from the operators that generated kernels are "
    f"made of. Record the program once without torch.compile, {_BESIDE}, to know it",
    "compiled_predicted": "No compiled run was measured: what runs eager tells what inductor could fuse, and not what "
    f"calling compiled code and compiling cost. Record the program once with torch.compile, {_BESIDE}, to know it",
    "nothing_ran": "Call what torch.compile returns, and see the graph breaks: a break inside of a loop leaves all of "
    "its function eager",
    "nobody": f"Record the program once with and once without torch.compile, {_BESIDE}",
}


def answer(gain: Gain, even: Sequence[Even], cost: CompileCost | None) -> str:
    """ "Compiling pays from step 1,230 on, after 25.0 s: it cost 12.3 s, and a step takes 4.10 ms instead of …" """
    cost_s = "" if cost is None else f"{'' if cost.whole else 'at least '}{seconds(cost.blocked_s)}"
    if gain.told_by == "nobody":
        return "Whether compiling pays is not known" + (f": it cost {cost_s}." if cost_s else ".")
    if gain.told_by == "compiled_predicted":
        return f"Whether compiling would pay is not known: {_steps(gain)}."
    if gain.verdict == "unknown":
        range_ = f"{signed(gain.low_us or 0.0, duration)} to {signed(gain.high_us or 0.0, duration)}"
        how = (
            "is predicted to be"
            if gain.told_by == "eager_predicted"
            else "lies by what was recorded anywhere in"
        )
        return f"Whether compiling pays cannot be told: what it takes off a step {how} {range_}."
    if gain.verdict == "never":
        # An eager step that nobody measured may take longer than all that was assumed.
        says = "may not pay" if gain.told_by == "eager_predicted" else "does not pay"
        return f"Compiling {says}: {_steps(gain)}" + (f", and it cost {cost_s}." if cost_s else ".")
    if not even:
        return f"Compiling makes steps faster: {_steps(gain)}."
    first = even[0]
    if gain.told_by == "eager_predicted":
        most = f" at {first.high_steps:,}" if first.high_steps else " later"
        return f"Compiling should pay, from step {first.low_steps:,} on or{most}: it cost {cost_s}, and {_steps(gain)}."
    since = f"from step {first.steps:,} on, after {long(first.after_s)}"
    return f"Compiling pays {since}: it cost {cost_s}, and {_steps(gain)}."


def _steps(gain: Gain) -> str:
    if gain.told_by == "nothing_ran":
        return "nothing of what torch compiled runs in the profiled time"
    compiled, eager = (duration(us or 0.0) for us in (gain.compiled_us, gain.eager_us))
    if gain.told_by == "eager_predicted":
        return f"a step takes {compiled}, and is predicted to take {eager} eager"
    if gain.told_by == "compiled_predicted":
        return f"a step takes {eager}, and is predicted to take {compiled} at best compiled"
    high, middle = gain.high_us or 0.0, gain.gain_us or 0.0
    if gain.verdict == "never" and high > 0:
        return f"a step takes {compiled} compiled and {eager} eager, which may be chance (± {duration(high - middle)})"
    return f"a step takes {compiled} instead of {eager}"


def grounds(gain: Gain, even: Sequence[Even], reasons: Sequence[WhyNot], refused: str) -> Iterator[str]:
    """What the answer rests on, and why it is not better."""
    if refused:
        yield refused
    if gain.told_by == "measured":
        how = "eager" if gain.eager_run else "compiled"
        yield f"Held against run {gain.eager_run or gain.compiled_run}, the same program {how}."
    else:
        yield f"{_HOW_TO_KNOW[gain.told_by]}."
    for one in even[1:]:
        yield f"With {one.name} caches it would cost {seconds(one.cost_s)}, and pay from step {one.steps:,} on."
    for row in reasons[:_REASONS]:
        yield f"{row.says}."


def long(s: float) -> str:
    """ "2.1 minutes" from two minutes on, "12.3 s" below."""
    if s < _LONG_S:
        return seconds(s)
    minutes = s / 60
    return plural(round(minutes), "minute") if minutes >= 10 else f"{minutes:.1f} minutes"
