"""The first sentences of the tab: how long a step is, what bounds it, what to change first; and the line of counts."""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes import registry, scenario, what_if
from tb_torchcompile_plugin.analysis.causes.findings import findings
from tb_torchcompile_plugin.analysis.causes.payback import payback, payback_sentence
from tb_torchcompile_plugin.analysis.compile import compile_time, graph_breaks
from tb_torchcompile_plugin.analysis.compile.compilations import compilations
from tb_torchcompile_plugin.analysis.compile.recompiles import recompiles
from tb_torchcompile_plugin.analysis.finding import Finding, Panel
from tb_torchcompile_plugin.analysis.formatting import duration, percent, plural, seconds, significant
from tb_torchcompile_plugin.analysis.runtime import compiled_regions, step_breakdown, step_picture
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import Bound, utilization
from tb_torchcompile_plugin.analysis.runtime.span_report import compiled_sentence
from tb_torchcompile_plugin.profile.coverage import coverage as recording_coverage
from tb_torchcompile_plugin.profile.gpu_work import device_properties, gpu_work
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, step_time
from tb_torchcompile_plugin.reader.compile_data import CompileData

_MAX_CONSIDERED = 3
_BOUND: dict[Bound, str] = {
    "compute": "GPU-bound",
    "copy": "GPU-bound",
    "communication": "Communication-bound",
    "input": "Input-bound",
    "compile": "Compile-bound",
    "launch": "Host-bound",
}
NOTHING_FASTER = "No known fix would make a step much faster"
_MIN_BUSY_PERCENT = 80.0  # below, "GPU-bound" would contradict how busy the GPU is; chosen by eye
_MIN_COVERED_PERCENT = 50.0  # below, the share that runs compiled is marked; chosen by eye


class OverviewCount(msgspec.Struct, frozen=True):
    """A number with its noun."""

    text: str
    panel: Panel
    section: str = ""
    help: str = ""
    tone: Literal["", "warn", "bad"] = ""


class Overview(msgspec.Struct, frozen=True):
    """The sentences of the overview."""

    headline: str  # `step`, and what was compiled
    step: str  # also in a report
    counts: list[OverviewCount]
    considered: list[str]  # what is not advised, each with its reason
    payback: str = ""  # whether compiling is worth it, "" where nothing was compiled


def overview(about: Profile | CompileData) -> Overview:
    """Return the sentences about a span, or about what a worker compiled."""
    if isinstance(about, CompileData):
        sentence = f"{'' if about.has_trace else 'No trace was read. '}{about.of(compiled_sentence)}"
        return Overview(sentence, sentence, list(counts(about)), [])
    step, of = about.of(headline), about.of(step_picture.time_unit)
    # What would not help yet; then, largest gain first, what would help little.
    reasons = [row.title for row in about.of(findings).findings if not row.advised]
    gains = [
        f"{registry.PRICED[row.kind].filled(row, of).title} (worth {percent(gain, 2)} of {of.one})"
        for row in about.of(scenario.predicted_fixes)
        if thresholds.considered_percent <= (gain := row.predicted.gain_percent) < thresholds.gain_percent
    ]
    basis = OverviewCount(
        _capitalized(about.of(_basis)), "step", "steps", "The steps that the sentence above is about"
    )
    return Overview(
        headline=headline_with_compile(about, step),
        step=step,
        counts=[row for row in (basis, *counts(about)) if row.text],
        considered=[*reasons, *gains][:_MAX_CONSIDERED],
        payback="" if about.trace.is_cut_off else about.of(payback_sentence),
    )


def headline(profile: Profile) -> str:
    """Return "GPU-bound: 99.0 ms per step, GPU busy 98.7 %. …"; in front what is missing, if it is much."""
    if not len(profile.trace):
        return "No events were read."
    covered = profile.of(recording_coverage)
    if (lost := covered.worst()) and covered.level == "insufficient":
        return f"{lost.sentence} {step_sentence(profile)}"
    if profile.trace.is_cut_off:  # what is missing may have been there
        return step_sentence(profile)
    if first := first_change(profile.of(findings).findings):
        return step_sentence(profile, first.title)
    return step_sentence(profile, "" if profile.of(what_if.why_nothing) else NOTHING_FASTER)


def step_sentence(profile: Profile, *verdicts: str) -> str:
    """Return the sentence about a step, and these verdicts where they are not ""."""
    bound, step = profile.of(_bound), profile.of(step_time)
    time = f"{duration(step.step_us)} {'per step' if step.steps else 'in this span'}"
    first = f"{f'{bound}: ' if bound else ''}{time}, {profile.of(_busy)}"
    return " ".join(f"{text}." for text in (first, *verdicts) if text)


def first_change(rows: Sequence[Finding]) -> Finding | None:
    """Return the first finding, None where that asks for no change."""
    return rows[0] if rows and rows[0].asks_for_change else None


def headline_with_compile(profile: Profile, step: str) -> str:
    """Return the sentence about a step, what it is the mean of, and what was compiled."""
    basis = profile.of(_basis)
    step = f"{step} {_capitalized(basis)}." if basis else step
    overlap = profile.of(compile_time.compile_overlap)
    if overlap is None:
        return f"{step} {compiled_sentence(profile.data, '')}"
    spent = f"including {duration(overlap.inside_us)}" if overlap.inside_us else "none"
    return f"{step} {compiled_sentence(profile.data, f', {spent} inside {overlap.window}')}"


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _bound(profile: Profile) -> str:
    """Return what bounds a step; "" where no GPU worked, or where that may be what is missing."""
    use, device = profile.of(utilization), profile.of(step_time).device
    is_partial = profile.trace.is_cut_off or profile.of(recording_coverage).level == "insufficient"
    if use is None or is_partial or not len(profile.of(gpu_work).index):
        return ""
    bound = _BOUND[use.verdict.bound]
    if bound == "GPU-bound" and (use.mean.busy_percent or 0.0) < _MIN_BUSY_PERCENT:
        return ""
    return f"Bound by GPU {device}" if device and bound == "GPU-bound" else bound


def _basis(profile: Profile) -> str:
    """Return "mean of 3 steps, 71.0 ms while profiling"; "" without steps."""
    step = profile.of(step_time)
    if not step.steps:
        return ""
    number, kind = (
        (step.unprofiled_steps, "unprofiled step") if step.unprofiled_steps else (step.steps, "step")
    )
    mean = f"{'mean of ' if number > 1 else ''}{plural(number, kind)}"
    if step.unprofiled_steps:
        mean += f", {duration(step.profiled_us)} while profiling"
    compiles = profile.of(step_breakdown.compiling).steps
    without = f"excluding {plural(compiles, 'step that compiles', 'steps that compile')}" if compiles else ""
    if compiles == len(profile.of(StepWindows)):  # none is left out
        without = "which compiles" if compiles == 1 else "all of which compile"
    return ", ".join(filter(None, (mean, without, profile.of(step_picture.how_steps_were_found))))


def _busy(profile: Profile) -> str:
    use = profile.of(utilization)
    if use is None:  # a file that was cut off may lack GPU events that happened
        if profile.of(recording_coverage).level != "complete":
            return "GPU time unknown"
        return "no GPU events" if device_properties(profile.trace) else "all on the CPU"
    busy = [row.busy_percent for row in use.means if row.busy_percent is not None]
    if not busy:
        return f"no measurable work on {plural(len(use.means), 'GPU')}"
    least = "at least " if profile.trace.is_cut_off else ""
    if len(busy) == 1:
        return f"GPU busy {least}{percent(busy[0])}"
    return f"{len(busy)} GPUs busy {least}{significant(min(busy))}–{significant(max(busy))} %"


def counts(about: Profile | CompileData) -> Iterator[OverviewCount]:
    """Yield how much runs compiled, what was compiled, and when compiling breaks even."""
    data = about if isinstance(about, CompileData) else about.data
    if isinstance(about, Profile) and about.of(recording_coverage).level != "insufficient":
        yield from _covered(about)
    if data and (number := data.of(compile_time.count_compilations)):
        inside = about.of(compile_time.overlap_headline) if isinstance(about, Profile) else ""
        yield OverviewCount(
            f"{plural(number, 'compilation')}, {seconds(data.of(compile_time.total_s))}",
            "compile_time",
            help=inside or "Frames that torch.compile turned into graphs",
        )
    yield from _problems(about, data)
    if isinstance(about, Profile) and not about.trace.is_cut_off:
        yield from _payback(about)


def _covered(profile: Profile) -> Iterator[OverviewCount]:
    share = profile.of(compiled_regions.coverage)
    covered = share.host_percent if share.gpu_percent is None else share.gpu_percent
    if covered is None:
        return
    number = share.empty_compilations or 0
    empty = plural(number, "compilation contains no operator", "compilations contain no operator")
    yield OverviewCount(
        f"{percent(covered)} of {'host' if share.gpu_percent is None else 'GPU'} time compiled",
        "compilations",
        "regions",
        f"The share of the step that runs compiled{f'. {empty}' if number else ''}",
        "warn" if covered < _MIN_COVERED_PERCENT else "",
    )


def _problems(about: Profile | CompileData, data: CompileData | None) -> Iterator[OverviewCount]:
    breaks = about.of(graph_breaks.count_sites)
    if breaks is not None:
        what = "Places where Dynamo leaves a graph and returns to Python"
        yield OverviewCount(plural(breaks, "graph break"), "graph_breaks", "", what, "warn" if breaks else "")
    if data is None:
        return
    again = data.of(recompiles)
    cost_s = sum(row.duration_s or 0.0 for row in again)
    if not data.is_unknown("recompiles"):
        yield OverviewCount(
            plural(len(again), "recompile") + (f", {seconds(cost_s)}" if cost_s else ""),
            "recompiles",
            help="Frames that were compiled again because a guard failed",
            tone="warn" if again else "",
        )
    results = [cache.result for row in data.of(compilations) for cache in row.cache]
    if results:
        what = "Lookups in inductor’s graph cache and AOTAutograd’s cache that found an entry"
        yield OverviewCount(
            f"cache hits {results.count('hit')}/{len(results)}", "compile_time", "startup", what
        )
    if failures := sum(row.failure is not None for row in data.of(compilations)):
        what = "Frames that failed to compile and run eagerly"
        yield OverviewCount(plural(failures, "failure"), "compile_time", "", what, "bad")


def _payback(profile: Profile) -> Iterator[OverviewCount]:
    if not (sentence := profile.of(payback_sentence)):
        return
    found = profile.of(payback)
    text = "no break-even" if found.gain[0].verdict == "not_worth_it" else "break-even unknown"
    if found.break_even:
        row = found.break_even[0]
        low, high = row.low_steps, row.high_steps
        text = (
            f"break-even after {low:,}–{high:,} steps" if high else f"break-even after {low:,} steps or more"
        )
        if found.gain[0].determined_by == "measured":
            text = f"break-even after {row.steps:,} steps"
    yield OverviewCount(text, "compare", "payback", sentence)
