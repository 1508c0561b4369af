"""job: where nothing tells whether communication waits or transfers, neither is guessed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs import ALL_REDUCE, PG, Does, kinds_of, launched, metadata_of, training, written
from profiles import SPAN
from tb_torchcompile_plugin.analysis.ranks.job_report import job_report
from tb_torchcompile_plugin.analysis.ranks.job_rows import collective_rows, rank_rows
from tb_torchcompile_plugin.job.instances import waits
from tb_torchcompile_plugin.job.job import JobRank, TracedJob
from tb_torchcompile_plugin.job.steps import RankSteps, job_steps
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import read_trace

MS = 1_000_000


def late_on(rank: int, ns: int = 3 * MS) -> Any:
    return lambda one, step: Does(ns if one == rank else 0)


def steps_of(job: TracedJob) -> list[RankSteps]:
    known = [one for one in job.of(job_steps) if one is not None]
    for steps in known:
        assert np.array_equal(steps.span, sum(steps[2:]))
    return known


def untold(folder: Path, known: int = 0, world: int = 2) -> TracedJob:
    """The job in a folder, as if torch had told nothing of its collectives but for the first ones. world: its size."""
    ranks = []
    for rank, path in enumerate(sorted(folder.glob("*.json"))):
        document = json.loads(path.read_text())
        document["distributedInfo"] |= {"pg_config": [], "world_size": world}
        for event in document["traceEvents"]:
            if event["args"].get("Seq", -1) >= known:
                event["args"] = {key: event["args"][key] for key in ("device", "stream", "correlation")}
        path.write_text(json.dumps(document))
        ranks.append(JobRank(rank, f"rank{rank}", Profile(read_trace(str(path), workers=1), None, SPAN)))
    return TracedJob(tuple(ranks))


def test_what_waits_for_a_missing_rank_is_no_transfer(tmp_path: Path) -> None:
    """Rank 3 is 3 ms late at each step, and its trace is not here: transfers take 40 µs."""
    made = TracedJob(training(tmp_path, 4, 4, late_on(3)).ranks[:2])
    for steps in steps_of(made):
        assert not steps.exposed_transfer.any() and (steps.exposed_unknown > 3 * MS - 100_000).all()
    report = made.of(job_report)
    assert report.missing_ranks == [2, 3] and report.findings == []
    assert "3.04 ms per step, and whether they wait or transfer is unknown" in report.headline
    assert "whether they wait or transfer is unknown" in report.basis
    assert "lower bound" in report.basis
    assert sum(row.exposed_unknown_us for row in report.steps) == pytest.approx(
        sum(int(steps.exposed_unknown.sum()) for steps in steps_of(made)) / 1000
    )


def test_a_whole_job_knows_all(tmp_path: Path) -> None:
    made = training(tmp_path, 4, 4, late_on(3))
    for steps in steps_of(made):
        assert (steps.exposed_transfer == 40_000).all() and not steps.exposed_unknown.any()
    assert "unknown" not in made.of(job_report).basis


def test_what_is_not_matched_is_neither(tmp_path: Path) -> None:
    training(tmp_path, 2, 4, late_on(1))
    made = untold(tmp_path)
    for steps in steps_of(made):
        assert not steps.exposed_transfer.any() and steps.exposed_unknown.any()
    report = made.of(job_report)
    assert "0 calls of collectives were matched" in report.basis and report.findings == []


@pytest.mark.parametrize(("known", "world", "rules"), [(4, 2, ["communication"]), (1, 2, []), (4, 3, [])])
def test_transfers_are_a_finding_where_they_are_known(
    tmp_path: Path, known: int, world: int, rules: list[str]
) -> None:
    """They take most of a step: not with most of them untold, and not with a rank missing."""
    training(tmp_path, 2, 4, lambda rank, step: Does(kernels=1, kernel_ns=1_000))
    made = untold(tmp_path, known, world)
    moved = sum(int(steps.exposed_transfer.sum()) for steps in steps_of(made))
    assert moved > 0.1 * sum(int(steps.span.sum()) for steps in steps_of(made))
    assert [row.rule for row in made.of(job_report).findings] == rules


def test_a_member_whose_call_was_not_recorded_makes_it_unknown(tmp_path: Path) -> None:
    """All three ranks are here, and the third one recorded only the first of two."""
    world = PG("0", (0, 1, 2))

    def ran(many: int) -> list[Any]:
        return [
            event
            for seq in range(many)
            for event in launched(
                ALL_REDUCE,
                100_000 * seq,
                100_000 * seq + 9_000,
                5_000,
                **metadata_of("allreduce", world, Seq=seq),
            )
        ]

    made = written(tmp_path, {0: ran(2), 1: ran(2), 2: ran(1)})
    assert made.of(waits).unknown.tolist() == [0, 5_000, 0, 5_000, 0]
    assert made.of(waits).wait.tolist() == [0] * 5


def two_calls(folder: Path, word: str, other: str = "", world: int = 2) -> TracedJob:
    """Rank 0 runs from 9 to 14 µs, rank 1 comes 3 µs later; both are done at one time."""
    group, events = PG("0", tuple(range(world))), {}
    for rank, said in enumerate((word, other or word)):
        args = metadata_of(said, group, Seq=1, Src_Rank=0, Dst_Rank=1)
        begin = 9_000 + 3_000 * rank
        events[rank] = launched(ALL_REDUCE, 5_000, begin, 14_000 - begin, **args)
    return written(folder, events, world=world)


@pytest.mark.parametrize(
    ("word", "wait", "unknown"),
    [("allreduce", 3_000, 0), ("broadcast", 0, 3_000), ("reduce", 0, 3_000), ("gather", 0, 3_000)],
)
def test_where_a_root_is_waited_for_that_torch_does_not_name(
    tmp_path: Path, word: str, wait: int, unknown: int
) -> None:
    """Once all are here nobody waits."""
    made = two_calls(tmp_path, word)
    known = made.of(waits)
    assert (known.wait.tolist(), known.unknown.tolist()) == ([wait, 0], [unknown, 0])
    assert known.transferred.tolist() == [2_000, 2_000]
    first, second = made.of(rank_rows)
    assert (first.transfer_us, first.wait_us) == (2.0, wait / 1000)
    assert (first.unknown_us, first.unmatched_us) == (unknown / 1000, 0.0)
    assert second.transfer_us == second.communication_us == 2.0


def test_a_sender_may_wait_for_its_receiver(tmp_path: Path) -> None:
    known = two_calls(tmp_path, "send", "recv").of(waits)
    assert (known.wait.tolist(), known.unknown.tolist()) == ([0, 0], [3_000, 0])


def test_what_may_wait_for_a_missing_rank_is_no_transfer_and_in_no_bandwidth(tmp_path: Path) -> None:
    made = two_calls(tmp_path, "allreduce", world=3)
    for row in made.of(rank_rows):
        assert (row.transfer_us, row.unknown_us) == (0.0, 2.0)
        assert row.communication_us == row.transfer_us + row.wait_us + row.unknown_us + row.unmatched_us
    (moved,) = made.of(collective_rows)
    assert (moved.transfer_us, moved.wait_us, moved.unknown_us) == (0.0, 3.0, 4.0)
    assert moved.algbw_gb_s is None and moved.busbw_gb_s is None
    assert moved.wait_percent == pytest.approx(100 * 3 / 7)


@pytest.mark.parametrize(
    ("ranks", "known"),
    [([0, 1], (0, 1)), ([[0, 1]], ()), ([{"a": 1}], ()), ([0, "x"], ()), ("[0, 1]", ()), (None, ()), (7, ())],
)
def test_an_odd_list_of_ranks_costs_nothing_but_itself(tmp_path: Path, ranks: object, known: object) -> None:
    """The calls name no group: they are of the only one, whatever its ranks are said to be."""
    args = metadata_of("allreduce", PG("0", (0, 1)))
    args = {name: value for name, value in args.items() if not name.startswith("Process Group")}
    events = launched(ALL_REDUCE, 5_000, 9_000, 5_000, **args)
    made = written(tmp_path, {0: events, 1: events}, [PG("0", (0, 1))])
    for one in made.ranks:
        one.profile.trace.metadata["distributedInfo"]["pg_config"] = [{"pg_name": "0", "ranks": ranks}]
    made = TracedJob([one._replace(profile=Profile(one.profile.trace, None, SPAN)) for one in made.ranks])
    report = made.of(job_report)
    assert {kind.group and kind.group.ranks for kind in kinds_of(made)} == {known}
    assert "2 calls of collectives were matched across ranks." in report.basis
