"""Whether compiling pays, by recordings of programs eager and compiled, against what was measured beside them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tb_torchcompile_plugin.analysis.pays.pays import Pays, pays
from tb_torchcompile_plugin.api.session import Session

# The host of these ran faster or slower while its steps were noted than while they were timed, by more than the gain.
MOVED = {"torchvision_mobilenet_inference", "torchvision_resnet18_training", "transformers_gpt2_inference"}
NOT_TIMED = {"lightning_training": "the clock of its first step began before the trainer was set up"}
NEAR = 0.2


class Twins(NamedTuple):
    """What is said of the compiled run of a program, and what was measured."""

    name: str
    said: Pays
    measured: dict[str, Any]


@pytest.fixture(scope="module")
def twins(recording: Callable[[str], Path]) -> list[Twins]:
    folder = recording("pays")
    truth = json.loads((folder / "measured.json").read_text())
    session = Session([("", str(folder))], ahead=False)
    rows = []
    for run in session.runs().runs:
        name, _, how = run.run.partition("/")
        if how == "compiled":
            (worker,) = run.workers
            profile = session.profile(run.run, worker.worker, worker.spans[0].span)
            rows.append(Twins(name, profile.of(pays), truth[name]["verdict"]))
    return rows


def test_whether_it_pays_is_right_of_every_program(twins: list[Twins]) -> None:
    assert len(twins) == 13
    assert {one.name: one.said.gain[0].verdict for one in twins} == {
        one.name: "pays" if one.measured["pays"] else "never" for one in twins
    }
    assert {one.name for one in twins if one.said.gain[0].told_by != "measured"} == {
        "counting_between_blocks"
    }


def test_what_compiling_cost_is_what_the_first_steps_took_longer(twins: list[Twins]) -> None:
    for one in twins:
        if one.name not in NOT_TIMED:
            assert one.said.cost[0].blocked_s == pytest.approx(one.measured["net_s"], rel=NEAR), one.name


def test_when_it_is_even_is_near_what_was_measured(twins: list[Twins]) -> None:
    near = {
        one.name: abs(one.said.even[0].steps / one.measured["break_even_steps"] - 1) <= NEAR
        for one in twins
        if one.said.even
    }
    assert len(near) == 7
    assert {name for name, is_near in near.items() if not is_near} == MOVED
