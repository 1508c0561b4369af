"""The line of counts of the overview; each count leads to its rows."""

from collections.abc import Iterator
from typing import Literal

import msgspec

from tb_torchcompile_plugin.analysis.causes.payback import payback, payback_sentence
from tb_torchcompile_plugin.analysis.compile.compilations import compilations
from tb_torchcompile_plugin.analysis.compile.compile_time import count_compilations, overlap_headline, total_s
from tb_torchcompile_plugin.analysis.compile.graph_breaks import count_sites
from tb_torchcompile_plugin.analysis.compile.recompiles import recompiles
from tb_torchcompile_plugin.analysis.finding import Panel
from tb_torchcompile_plugin.analysis.formatting import percent, plural, seconds
from tb_torchcompile_plugin.analysis.runtime.compiled_regions import coverage
from tb_torchcompile_plugin.profile.coverage import coverage as recording_coverage
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.compile_data import CompileData

_MIN_COVERED_PERCENT = 50.0  # below, the share that runs compiled is marked; chosen by eye


class Count(msgspec.Struct, frozen=True):
    """A number with its noun."""

    text: str
    panel: Panel
    section: str = ""
    help: str = ""
    tone: Literal["", "warn", "bad"] = ""


def counts(about: Profile | CompileData) -> Iterator[Count]:
    """Yield how much runs compiled, what was compiled, and when compiling breaks even."""
    data = about if isinstance(about, CompileData) else about.data
    if isinstance(about, Profile) and about.of(recording_coverage).level != "insufficient":
        yield from _covered(about)
    if data and data.of(count_compilations):
        inside = about.of(overlap_headline) if isinstance(about, Profile) else ""
        yield Count(
            f"{plural(data.of(count_compilations), 'compilation')}, {seconds(data.of(total_s))}",
            "compile_time",
            help=inside or "Frames that torch.compile turned into graphs",
        )
    yield from _problems(about, data)
    if isinstance(about, Profile) and not about.trace.is_cut_off:
        yield from _payback(about)


def _covered(profile: Profile) -> Iterator[Count]:
    share = profile.of(coverage)
    covered = share.host_percent if share.gpu_percent is None else share.gpu_percent
    if covered is None:
        return
    empty = plural(
        share.empty_compilations or 0, "compilation has no operator", "compilations have no operator"
    )
    yield Count(
        f"{percent(covered)} of {'host' if share.gpu_percent is None else 'GPU'} time compiled",
        "compilations",
        "regions",
        f"The share of the step that runs compiled; {empty}",
        "warn" if covered < _MIN_COVERED_PERCENT else "",
    )


def _problems(about: Profile | CompileData, data: CompileData | None) -> Iterator[Count]:
    breaks = about.of(count_sites)
    if breaks is not None:
        what = "Places where Dynamo leaves a graph and returns to Python"
        yield Count(plural(breaks, "graph break"), "graph_breaks", "", what, "warn" if breaks else "")
    if data is None:
        return
    again = data.of(recompiles)
    cost_s = sum(row.duration_s or 0.0 for row in again)
    yield Count(
        plural(len(again), "recompile") + (f", {seconds(cost_s)}" if cost_s else ""),
        "recompiles",
        help="Frames that were compiled again because a guard failed",
        tone="warn" if again else "",
    )
    results = [cache.result for row in data.of(compilations) for cache in row.cache]
    if results:
        what = "Lookups in inductor’s graph cache and AOTAutograd’s cache that found an entry"
        yield Count(f"cache hits {results.count('hit')}/{len(results)}", "compile_time", "startup", what)
    if failures := sum(row.failure is not None for row in data.of(compilations)):
        what = "Frames that failed to compile and run eagerly"
        yield Count(plural(failures, "failure"), "compile_time", "", what, "bad")


def _payback(profile: Profile) -> Iterator[Count]:
    """Yield after how many steps compiling has paid for itself."""
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
    yield Count(text, "compare", "payback", sentence)
