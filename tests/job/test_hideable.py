"""job: how much of a transfer compute could hide, planted: what its own thread computes, and nothing hides already."""

from pathlib import Path

import pytest

from jobs import ALL_REDUCE, PG, host, launched, metadata_of, written
from tb_torchcompile_plugin.job.as_early import hideable_share
from tb_torchcompile_plugin.job.job import TracedJob
from traces import Event

STEP, TRANSFER, AUTOGRAD = 10_000_000, 1_000_000, 2
WORLD = PG("0", (0, 1))


def loop(folder: Path, backward: tuple[int, int], beside: int = 0) -> TracedJob:
    """Forwards of 5 ms, backwards of so long on each rank on a thread of their own, and an all-reduce; `beside` of it
    has a kernel on another stream."""
    events: dict[int, list[Event]] = {rank: [] for rank in WORLD.ranks}
    for rank, mine in events.items():
        for number in range(3):
            at = 1_000_000 + number * STEP
            mine.append(host(f"ProfilerStep#{number}", at - 50_000, STEP - 100_000, "user_annotation"))
            mine += launched("forward", at, at + 5_000, 5_000_000)
            mine += _on_autograd("backward", at + 2_000, at + 5_010_000, backward[rank])
            done, args = at + 8_000_000, metadata_of("allreduce", WORLD, Seq=number)
            mine += _on_autograd(ALL_REDUCE, at + 4_000, done - TRANSFER, TRANSFER, **args)
            if beside:
                mine += launched("other", at + 6_000, done - beside, beside)
    return written(folder, events, [WORLD])


def _on_autograd(name: str, launch: int, begin: int, ns: int, **args: object) -> list[Event]:
    call, work = launched(name, launch, begin, ns, **args)
    return [{**call, "tid": AUTOGRAD}, work]


@pytest.mark.parametrize(
    ("backward", "beside", "share"),
    [
        ((1_900_000, 1_900_000), 0, 1.0),
        ((250_000, 250_000), 0, 0.25),
        ((250_000, 500_000), 0, 0.25),  # it is over on all ranks at once
        ((1_900_000, 1_900_000), 400_000, 0.6),
    ],
)
def test_what_the_same_thread_computes_hides_it(
    tmp_path: Path, backward: tuple[int, int], beside: int, share: float
) -> None:
    shares = loop(tmp_path, backward, beside).of(hideable_share)
    assert len(shares) == 6
    assert shares == pytest.approx([share] * 6, abs=1e-4)
