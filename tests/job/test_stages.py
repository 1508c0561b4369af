"""job: ranks that hand on their work as a pipeline."""

from collections.abc import Callable
from pathlib import Path

from jobs import PG, SEND, host, launched, metadata_of, written
from tb_torchcompile_plugin.job.as_early import job_clocks
from tb_torchcompile_plugin.job.job import TracedJob
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
