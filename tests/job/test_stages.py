"""job: a stage that sets the pace by its place in the model, told from a late rank and from ranks that take turns."""

from collections.abc import Callable
from pathlib import Path

import pytest

from jobs import PG, SEND, Does, host, launched, metadata_of, training, without_traces, written
from tb_torchcompile_plugin.analysis.ranks.job_findings import job_findings
from tb_torchcompile_plugin.api.bodies import json_body
from tb_torchcompile_plugin.job.as_early import job_clocks, stages, step_of_job_ns
from tb_torchcompile_plugin.job.job import TracedJob
from tb_torchcompile_plugin.job.steps import job_step_us
from tb_torchcompile_plugin.profile.model.model import recorded_clock
from traces import Event

CALL, LATENCY, GAP, TRANSFER, BATCHES = 5_000, 5_000, 1_000, 20_000, 4


class _Rank:
    """Where a rank is: its host, its stream, and what it wrote."""

    def __init__(self, number: int) -> None:
        self.number, self.host, self.free = number, 100_000, 0
        self.events: list[Event] = []

    def launch(self) -> int:
        """When the next kernel can begin."""
        self.host += CALL
        return max(self.host - CALL + LATENCY, self.free + GAP)

    def ran(self, name: str, begin: int, ns: int, **args: object) -> None:
        self.events += launched(name, self.host - CALL, begin, ns, **args)
        self.free = begin + ns


def pipeline(folder: Path, ranks: int, steps: int, takes: Callable[[int, int], int]) -> TracedJob:
    """GPipe: all batches forward from stage to stage, then all backward. takes: rank, step → ns of each batch."""
    world = PG("0", tuple(range(ranks)))
    every = [_Rank(number) for number in world.ranks]
    seq = dict.fromkeys(world.ranks, 0)
    for step in range(steps):
        begun = [one.host for one in every]
        for chain in (every, every[::-1]):
            for _ in range(BATCHES):
                for place, one in enumerate(chain):
                    if place:
                        hand_on(chain[place - 1], one, world, seq)
                    one.ran("gemm", one.launch(), takes(one.number, step), grid=[8, 1, 1])
        for one, at in zip(every, begun):
            end = max(one.host + CALL, one.free + 2_000)
            one.events.append(host("cudaDeviceSynchronize", one.host, end - one.host, "cuda_runtime"))
            one.host = end + 10_000
            one.events.append(host(f"ProfilerStep#{step}", at, one.host - at, "user_annotation"))
    return written(folder, {one.number: one.events for one in every}, [world])


def hand_on(one: _Rank, other: _Rank, world: PG, seq: dict[int, int]) -> None:
    sent, taken = one.launch(), other.launch()
    numbers = dict.fromkeys((one.number, other.number), 0)
    for number in numbers:
        numbers[number], seq[number] = seq[number], seq[number] + 1
    args = metadata_of("send", world, 8, Seq=numbers[one.number], Dst_Rank=other.number)
    one.ran(SEND, sent, TRANSFER, **args)
    args = metadata_of("recv", world, 8, Seq=numbers[other.number], Src_Rank=one.number)
    other.ran(SEND, taken, max(taken, sent) + TRANSFER - taken, **args)


def test_the_recorded_steps_of_a_pipeline_come_back(tmp_path: Path) -> None:
    made = pipeline(tmp_path, 3, 4, lambda rank, step: 100_000 * (1 + rank))
    assert made.of(job_clocks) == [recorded_clock(one.profile) for one in made.ranks]


def test_the_longest_stage_is_named_and_no_rank_is_blamed(tmp_path: Path) -> None:
    for folder in ("uneven", "even"):
        (tmp_path / folder).mkdir()
    made = pipeline(tmp_path / "uneven", 3, 5, lambda rank, step: 2_000_000 if rank == 1 else 500_000)
    even = pipeline(tmp_path / "even", 3, 5, lambda rank, step: 1_000_000)
    assert json_body(made.of(job_findings)) and json_body(without_traces(made).of(job_findings))
    (first,) = [
        row for row in made.of(job_findings) if row.rule in ("uneven_stages", "late_rank", "ranks_take_turns")
    ]
    assert first.rule == "uneven_stages" and first.where == ["rank 1"] and first.row == "ranks:1"
    assert "computes for 16.0 ms per step, compared with 8.00 ms on average" in first.title
    assert first.predicted
    assert first.predicted.step_us == made.of(job_step_us)
    wanted, now = (step_of_job_ns(job.of(job_clocks)) for job in (even, made))
    assert first.predicted.after_us / first.predicted.step_us == pytest.approx(wanted / now, rel=0.05)


def test_even_stages_are_no_finding(tmp_path: Path) -> None:
    made = pipeline(tmp_path, 3, 5, lambda rank, step: 1_000_000)
    assert made.of(stages) is None
    assert "uneven_stages" not in {row.rule for row in made.of(job_findings)}


def test_a_stage_that_is_longest_now_and_then_is_none(tmp_path: Path) -> None:
    made = pipeline(tmp_path, 3, 6, lambda rank, step: 2_000_000 if step % 3 == rank else 500_000)
    assert made.of(stages) is None


def test_uneven_work_without_a_pipeline_is_a_late_rank(tmp_path: Path) -> None:
    made = training(tmp_path, 3, 5, lambda rank, step: Does(kernels=50 if rank == 2 else 20))
    assert made.of(stages) is None and made.of(job_findings)[0].rule == "late_rank"
