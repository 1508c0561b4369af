"""Whether compiling pays, by recordings of programs eager and compiled, against what was measured beside them."""

import json
from typing import Any, NamedTuple

import pytest

from recordings import Recording
from tb_torchcompile_plugin.analysis.causes.payback import Payback, payback
from tb_torchcompile_plugin.api.session import Session

pytestmark = pytest.mark.slow

NEAR = 0.2
# Its first call also tunes kernels after the compilation (2.7 s), and starts up: that is no compile time.
STARTED_MORE = "torchvision_mobilenet_inference"


class Twins(NamedTuple):
    """What is said of a compiled run of a program, and what was measured."""

    name: str
    how: str
    said: Payback
    measured: dict[str, Any]


@pytest.fixture(scope="module")
def twins(recording: Recording) -> list[Twins]:
    folder = recording("pays")
    truth = json.loads((folder / "measured.json").read_text())
    session = Session([("", str(folder))], ahead=False)
    rows = []
    for run in session.runs().runs:
        name, _, how = run.run.partition("/")
        if how != "eager":
            (worker,) = run.workers
            profile = session.profile(run.run, worker.worker, worker.spans[0].span)
            rows.append(Twins(name, how, profile.of(payback), truth[name]["verdict"]))
    return rows


def test_whether_it_pays_is_right_of_every_program(twins: list[Twins]) -> None:
    """Where the measured gain is not told from none either, "unknown" is right, too, and "pays" is not."""
    compiled = [one for one in twins if one.how == "compiled"]
    assert len(compiled) == 12
    for one in compiled:
        gain, error = one.measured["gain_us"], one.measured["gain_error_us"]
        right = {"worth_it"} if gain > error else {"not_worth_it"}
        right |= {"unknown"} if abs(gain) <= error else set()
        assert one.said.gain[0].verdict in right, one.name
    unknown = {one.name for one in compiled if one.said.gain[0].verdict == "unknown"}
    assert unknown == {"geometric_gcn_training", "torchvision_resnet18_training"}, "by chance 10 % and more"
    assert {one.name for one in compiled if one.said.gain[0].determined_by != "measured"} == {
        "counting_between_blocks"
    }


def test_the_gain_of_a_step_overlaps_the_measured_one(twins: list[Twins]) -> None:
    """Of the same steps, noted by the handler and timed by the program."""
    for one in twins:
        (gain,), error = one.said.gain, one.measured["gain_error_us"]
        if gain.low_us is not None and gain.high_us is not None and one.how == "compiled":
            assert gain.low_us - error <= one.measured["gain_us"] <= gain.high_us + error, one.name


def test_what_compiling_cost_is_what_the_first_steps_took_longer(twins: list[Twins]) -> None:
    for one in twins:
        excess = one.measured["excess_s"]
        if one.name == STARTED_MORE:
            continue
        assert one.said.cost[0].blocked_s == pytest.approx(excess[one.how] - excess["eager"], rel=NEAR), (
            one.name
        )


def test_when_it_is_even_is_near_what_was_measured(twins: list[Twins]) -> None:
    even = {one.name: one for one in twins if one.said.break_even and one.how == "compiled"}
    assert len(even) == 5
    del even[STARTED_MORE]
    for name, one in even.items():
        assert one.said.break_even[0].steps == pytest.approx(one.measured["break_even_steps"], rel=NEAR), name


def test_a_warm_start_costs_what_was_measured_and_tells_what_a_cold_one_would(twins: list[Twins]) -> None:
    warm = [one for one in twins if one.how == "warm"]
    assert len(warm) == 2
    for one in warm:
        (cost,), excess = one.said.cost, one.measured["excess_s"]
        assert cost.cache_hits == cost.cache_lookups > 0 and cost.warm_s == cost.blocked_s, one.name
        assert cost.cold_s == pytest.approx(excess["compiled"] - excess["eager"], rel=NEAR), one.name
    (row,) = (one for one in warm if one.said.break_even)
    assert row.said.break_even[0].steps == pytest.approx(row.measured["break_even_steps_warm"], rel=NEAR)
