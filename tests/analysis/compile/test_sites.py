"""sites.py: what torch reported, joined to what it costs, and the sentence about it."""

from pathlib import Path

from profiles import answered, data_of, profile_with
from tb_torchcompile_plugin.analysis.causes.break_costs import break_sites, direct_us, headline, saved_us
from tb_torchcompile_plugin.analysis.compile.graph_breaks import (
    GraphBreakSite,
    count_sites,
    graph_break_costs,
    graph_break_sites,
    reported_headline,
    reported_sites,
)
from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.python_frames import RESUME
from traces import AUTOGRAD, Event, compiled_call, frame, launch, region, slice_, step


def reported(compile_id: str, line: int) -> pb.GraphBreak:
    here = pb.Frame(file="/u/train.py", line=line, source="if x.max() > 1:")
    return pb.GraphBreak(
        key=pb.CompileKey(compile_id=compile_id), reason="why", file="/u/train.py", line=line, stack=[here]
    )


def log(*breaks: pb.GraphBreak) -> CompileData:
    resumed = [
        pb.Compilation(
            key=pb.CompileKey(compile_id=f"9{row.key.compile_id}"), function=f"{RESUME}f_at_{row.line}"
        )
        for row in breaks
    ]
    return data_of(pb.CompileSummary(graph_breaks=breaks, compilations=[*map(compiled, breaks), *resumed]))


def given_up(compile_id: str, function: str) -> pb.Compilation:
    failure = pb.Failure(type="Unsupported", reason="graph break in loop")
    return pb.Compilation(key=pb.CompileKey(compile_id=compile_id), function=function, failure=failure)


def compiled(row: pb.GraphBreak) -> pb.Compilation:
    return pb.Compilation(key=row.key, function="f")


def broken(compile_id: str, at: float, gap: float) -> list[Event]:
    """A call whose graph breaks, and the call that resumes it, with `gap` between their graphs."""
    until = at + 15 + gap
    return [
        *compiled_call(compile_id, (at, gap + 40), (at + 5, 10)),
        *compiled_call(f"9{compile_id}", (until - 4, 20), (until, 10)),
    ]


def profile(folder: Path, data: CompileData | None, *gaps: dict[str, float], steps: int = 2) -> Profile:
    """Gaps by compile id, in steps of 250 µs that follow each other."""
    events = [step(n, 300 * n, 250) for n in range(steps if gaps else 0)]
    for n, of_step in enumerate(gaps):
        for row, (compile_id, gap) in enumerate(of_step.items()):
            events += broken(compile_id, 300 * n + 120 * row, gap)
    return profile_with(folder, events or [slice_("aten::add", 0, 5)], data)


def prices(sites: list[GraphBreakSite]) -> list[tuple[int | None, list[str], float | None, int]]:
    return [(site.line, site.compile_ids, site.host_us, len(site.breaks)) for site in sites]


def test_a_site_holds_every_compilation_that_broke_there(tmp_path: Path) -> None:
    data = log(reported("0/0", 7), reported("0/1", 7), reported("", 9))
    sites = graph_break_sites(profile(tmp_path, data, {"0/0": 40}, {"0/0": 20}))
    assert prices(sites) == [(7, ["0/0", "0/1"], 60, 2), (9, [], None, 1)]
    assert sites[0].source == "if x.max() > 1:" and sites[0].key == "/u/train.py:7:why"


def test_without_a_trace_none_has_a_price(tmp_path: Path) -> None:
    data = log(reported("0/0", 7), reported("0/1", 7), reported("1/0", 9))
    assert prices(reported_sites(data)) == [(7, ["0/0", "0/1"], None, 2), (9, ["1/0"], None, 1)]
    assert reported_headline(data) == "2 graph break sites."
    assert reported_headline(log()) == "No graph breaks."


def test_where_nothing_is_predicted_the_direct_cost_is_named_so(tmp_path: Path) -> None:
    data = log(reported("0/0", 7), reported("1/0", 9), reported("5/0", 11))
    about = profile(tmp_path, data, {"0/0": 40, "1/0": 20}, {"0/0": 20, "1/0": 20})
    assert headline(about).startswith("2 of 3 graph break sites ran. No cost is predicted.")
    assert saved_us(about) is None and direct_us(about) == 50
    assert [(site.step_mean_us, site.saves_us) for site in break_sites(about)[:2]] == [(30, None), (20, None)]
    assert (break_sites(about)[0].why_no_cost or "").endswith("no GPU work")


def test_a_break_inside_of_a_break_is_measured_once(tmp_path: Path) -> None:
    """Between the graphs of 0/0 another frame is called, and breaks: its 20 µs are part of those 100."""
    events = [step(0, 0, 250), *broken("0/0", 0, 100), *broken("1/0", 20, 20)]
    about = profile_with(tmp_path, events, log(reported("0/0", 7), reported("1/0", 7)))
    assert [cost.host_us for cost in graph_break_costs(about) or ()] == [100, 20]
    (site,) = graph_break_sites(about)
    assert site.host_us == site.step_mean_us == direct_us(about) == 100


def test_the_sentence_does_not_claim_what_is_unknown(tmp_path: Path) -> None:
    data = log(reported("0/0", 7))
    not_run = profile(tmp_path, data)
    assert headline(not_run) == "1 graph break site with unknown cost. Not executed in this span."
    unknown = headline(answered(profile(tmp_path, data), graph_break_costs, None))
    assert unknown.startswith("1 graph break site. The cost is unknown: the trace has no compile log")
    without_steps = headline(profile(tmp_path, data, {"0/0": 60}, steps=0))
    assert "The direct cost is 60.0 µs in this span" in without_steps
    without_log = answered(profile(tmp_path, None), graph_break_costs, None)
    assert headline(without_log).startswith("Graph breaks are unknown") and count_sites(without_log) is None
    none = profile(tmp_path, log())
    assert headline(none) == "No graph breaks." and saved_us(none) == 0


def test_breaks_of_a_thread_without_operators_are_unknown(tmp_path: Path) -> None:
    """The thread that runs the model launches kernels, but only the other one has operators and stacks."""
    seen = [frame("train.py(1): wait", 0, 500), slice_("aten::add", 1, 3)]
    other = [event for at in range(5) for event in launch("k", 10 + 20 * at, 12 + 20 * at, 9, tid=AUTOGRAD)]
    assert headline(profile_with(tmp_path, seen)) == "No graph breaks."
    lost = profile_with(tmp_path, [*seen, *other])
    assert headline(lost) == "Graph breaks are unknown: this trace does not show them."
    assert count_sites(lost) is saved_us(lost) is direct_us(lost) is None
    logged = profile_with(tmp_path, [*seen, *other], log(reported("0/0", 7)))
    (site,) = break_sites(logged)
    assert (site.why_no_cost or "").startswith(f"Thread {AUTOGRAD} launched 5 of 5 kernels")
    assert f"The cost is unknown: Thread {AUTOGRAD} launched 5 of 5 kernels" in headline(logged)
    assert count_sites(logged) == 1 and saved_us(logged) is None
    assert saved_us(profile_with(tmp_path, [*seen, *other], log())) == 0


def test_a_break_that_was_recorded_is_known_next_to_such_a_thread(tmp_path: Path) -> None:
    other = [event for at in range(5) for event in launch("k", 10 + 20 * at, 12 + 20 * at, 9, tid=AUTOGRAD)]
    events = [slice_("aten::add", 0, 1), *broken("0/0", 20, 40), *other]
    assert direct_us(profile_with(tmp_path, events, log(reported("0/0", 7)))) == 40


def test_a_break_whose_regions_ran_is_not_said_to_be_unexecuted(tmp_path: Path) -> None:
    events = [region("0/0", 100 * n, 50) for n in range(3)]
    data = log(reported("0/0", 7), reported("5/0", 9))
    ran, other = graph_break_sites(answered(profile_with(tmp_path, events, data), graph_break_costs, []))
    assert (ran.why_no_cost or "").startswith("Regions that end at this break ran 3 times")
    assert other.why_no_cost == "Not executed in this span"


def test_a_break_for_which_a_frame_was_given_up_says_so(tmp_path: Path) -> None:
    summary = pb.CompileSummary(graph_breaks=[reported("0/0", 7)], compilations=[given_up("0/0", "forward")])
    said = headline(profile(tmp_path, data_of(summary)))
    assert said.endswith("forward runs eagerly, so no compiled graph follows the break.")


def test_several_breaks_without_a_price_are_counted_by_their_reason(tmp_path: Path) -> None:
    breaks = [reported(f"{frame}/0", line) for frame, line in enumerate((7, 7, 8, 9, 10))]
    summary = pb.CompileSummary(
        compilations=[given_up("0/0", "f"), given_up("1/0", "g")], graph_breaks=breaks
    )
    events = [region("2/0", 100 * n, 50) for n in range(3)]
    about = answered(profile_with(tmp_path, events, data_of(summary)), graph_break_costs, [])
    assert graph_break_sites(about)[0].why_no_cost == (
        "f and g run eagerly, so no compiled graph follows the break"
    )
    said = headline(about)
    assert said.startswith("4 graph break sites with unknown cost. f and g run eagerly")
    assert said.endswith("Not executed in this span.") and "ran 3 times" in said
