"""sites.py: what torch reported, joined to what it costs, and the sentence about it."""

from pathlib import Path

from profiles import answered, data_of, profile_with
from tb_torchcompile_plugin.analysis.compile.graph_breaks import (
    BreakInStep,
    GraphBreakCost,
    GraphBreakSite,
    graph_break_costs,
    graph_break_sites,
    headline,
    reported_headline,
    reported_sites,
)
from tb_torchcompile_plugin.compile_log.summary_pb2 import (
    Compilation,
    CompileKey,
    CompileSummary,
    Failure,
    Frame,
    GraphBreak,
)
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.compile_data import CompileData
from traces import slice_


def reported(compile_id: str, line: int) -> GraphBreak:
    here = Frame(file="/u/train.py", line=line, source="if x.max() > 1:")
    return GraphBreak(
        key=CompileKey(compile_id=compile_id), reason="why", file="/u/train.py", line=line, stack=[here]
    )


def log(*breaks: GraphBreak) -> CompileData:
    return data_of(CompileSummary(graph_breaks=breaks))


def cost(compile_id: str, line: int, *steps: float) -> GraphBreakCost:
    rows = [BreakInStep(f"ProfilerStep#{n}", 1, host, None, None) for n, host in enumerate(steps)]
    host = sum(steps) or 60
    return GraphBreakCost(
        compile_id, "9/0", "/u/train.py", line, 2, host, 0, None, None, first_us=0, last_us=1, steps=rows
    )


def profile(
    folder: Path, costs: list[GraphBreakCost] | None, data: CompileData | None = None, steps: int = 2
) -> Profile:
    events = [slice_(f"ProfilerStep#{n}", 300 * n, 250, "user_annotation") for n in range(steps)]
    return answered(
        profile_with(folder, events or [slice_("aten::add", 0, 5)], data), graph_break_costs, costs
    )


def prices(sites: list[GraphBreakSite]) -> list[tuple[int | None, list[str], float | None, int]]:
    return [(site.line, site.compile_ids, site.host_us, len(site.breaks)) for site in sites]


def test_a_site_holds_every_compilation_that_broke_there(tmp_path: Path) -> None:
    data = log(reported("0/0", 7), reported("0/1", 7), reported("", 9))
    sites = graph_break_sites(profile(tmp_path, [cost("0/0", 7, 40, 20)], data))
    assert prices(sites) == [(7, ["0/0", "0/1"], 60, 2), (9, [], None, 1)]
    assert sites[0].source == "if x.max() > 1:" and sites[0].key == "/u/train.py:7:why"


def test_without_a_trace_none_has_a_price(tmp_path: Path) -> None:
    data = log(reported("0/0", 7), reported("0/1", 7), reported("1/0", 9))
    assert prices(reported_sites(data)) == [(7, ["0/0", "0/1"], None, 2), (9, ["1/0"], None, 1)]
    assert reported_headline(data) == "2 graph break sites. Without a trace there is no price."
    assert reported_headline(log()) == "No graph breaks."


def test_the_sentence_says_what_breaks_cost_a_step(tmp_path: Path) -> None:
    costs = [cost("0/0", 7, 40, 20), cost("1/0", 9, 20, 20)]
    assert headline(profile(tmp_path, costs)) == (
        "2 graph break sites cost 50.0 µs a step, 20.0 % of it (mean of 2)."
    )


def test_the_sentence_does_not_claim_what_is_unknown(tmp_path: Path) -> None:
    data = log(reported("0/0", 7))
    assert headline(profile(tmp_path, [], data)) == (
        "1 graph break site. It was not executed inside this span."
    )
    assert headline(profile(tmp_path, None, data)) == (
        "1 graph break site. Its price is not known: see below."
    )
    assert headline(profile(tmp_path, [cost("0/0", 7)], steps=0)) == (
        "1 graph break site costs 60.0 µs of host time in this span (no steps were marked)."
    )
    assert headline(profile(tmp_path, None)) == "Graph breaks are not known."
    assert headline(profile(tmp_path, [])) == headline(profile(tmp_path, [], log())) == "No graph breaks."


def test_a_break_whose_regions_ran_is_not_said_to_be_unexecuted(tmp_path: Path) -> None:
    events = [slice_("Torch-Compiled Region: 0/0", 100 * n, 50) for n in range(3)]
    data = log(reported("0/0", 7), reported("5/0", 9))
    ran, other = graph_break_sites(answered(profile_with(tmp_path, events, data), graph_break_costs, []))
    assert (
        ran.no_price == "Regions that it ended ran 3 times, but no compiled graph on both sides of the break"
    )
    assert other.no_price == "It was not executed inside this span"


def test_a_break_for_which_a_frame_was_given_up_says_so(tmp_path: Path) -> None:
    key = CompileKey(compile_id="0/0")
    failure = Failure(type="Unsupported", reason="graph break in loop")
    data = data_of(
        CompileSummary(
            compilations=[Compilation(key=key, function="forward", failure=failure)],
            graph_breaks=[reported("0/0", 7)],
        )
    )
    assert headline(profile(tmp_path, [], data)) == (
        "1 graph break site. forward runs eager because of it, so there is no graph to come back to."
    )


def test_several_breaks_without_a_price_are_counted_by_their_reason(tmp_path: Path) -> None:
    def given_up(compile_id: str, function: str) -> Compilation:
        return Compilation(
            key=CompileKey(compile_id=compile_id), function=function, failure=Failure(type="Unsupported")
        )

    breaks = [
        reported("0/0", 7),
        reported("1/0", 7),
        reported("2/0", 8),
        reported("3/0", 9),
        reported("4/0", 10),
    ]
    summary = CompileSummary(compilations=[given_up("0/0", "f"), given_up("1/0", "g")], graph_breaks=breaks)
    events = [slice_("Torch-Compiled Region: 2/0", 100 * n, 50) for n in range(3)]
    about = answered(profile_with(tmp_path, events, data_of(summary)), graph_break_costs, [])
    assert graph_break_sites(about)[0].no_price == (
        "f and g run eager because of it, so there is no graph to come back to"
    )
    assert headline(about) == (
        "4 graph break sites without a price: 1 leaves f and g eager; 1 has no compiled graph on both sides; "
        "2 were not executed inside this span."
    )


def test_sites_without_a_price_are_not_among_those_that_cost(tmp_path: Path) -> None:
    about = profile(tmp_path, [cost("0/0", 7, 40, 20)], log(reported("0/0", 7), reported("5/0", 9)))
    assert headline(about).startswith("1 of 2 graph break sites costs 30.0 µs a step")
