"""job: ranks that only send and recv tie together, and those that nothing does."""

from pathlib import Path

import numpy as np
import pytest

from jobs import ALL_REDUCE, PG, SEND, blamed, launched, metadata_of, shifted, written
from tb_torchcompile_plugin.analysis.ranks.job_report import job_report
from tb_torchcompile_plugin.job.instances import clocks
from tb_torchcompile_plugin.job.job import TracedJob
from traces import Event

PAIR = PG("0", (0, 1))
ENDS = [1_000_000 * (at + 1) for at in range(5)]
SENDS = [(end - 30_000, end) for end in ENDS]
WAITS_NS = [400_000, 0, 0, 380_000, 0]


def handed_on(word: str, world: PG, peer: int, times: list[tuple[int, int]]) -> list[Event]:
    """Kernels of these begins and ends."""
    side = {"Dst_Rank" if word == "send" else "Src_Rank": peer}
    events: list[Event] = []
    for begin, end in times:
        metadata = metadata_of(word, world, 8, Seq=begin, **side)
        events += launched(SEND, begin - 9_000, begin, end - begin, **metadata)
    return events


def reduced(group: PG) -> list[Event]:
    events: list[Event] = []
    for number, end in enumerate(ENDS):
        metadata = metadata_of("allreduce", group, Seq=number)
        events += launched(ALL_REDUCE, end + 20_000, end + 50_000, 9_000, **metadata)
    return events


def two_stages(folder: Path, width: int, ahead: int, answers: bool = False) -> TracedJob:
    """`width` ranks hand on to as many, which are by a clock that is ahead. Some receivers come before the data, the
    others 100 µs too late for it. answers: whether the second stage sends something back."""
    world = PG("0", tuple(range(2 * width)))
    recvs = [
        (end - 30_000 - wait, end) if wait else (end + 100_000, end + 104_000)
        for end, wait in zip(ENDS, WAITS_NS)
    ]
    events: dict[int, list[Event]] = {}
    for rank in range(width):
        events[rank] = handed_on("send", world, rank + width, SENDS)
        events[rank + width] = handed_on("recv", world, rank, recvs)
        if answers:
            back = [(begin + 500_000, end + 500_000) for begin, end in SENDS]
            events[rank + width] += handed_on("send", world, rank, back)
            events[rank] += handed_on("recv", world, rank + width, back)
    if width > 1:
        for first in (0, width):
            group = PG(str(1 + first), tuple(range(first, first + width)))
            for rank in group.ranks:
                events[rank] += reduced(group)
    late = {rank: shifted(its, ahead) if rank >= width else its for rank, its in events.items()}
    return written(folder, late, [world])


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("ahead", [0, 5_000_000, -5_000_000])
@pytest.mark.parametrize("answers", [False, True])
def test_stages_of_which_the_clocks_differ(tmp_path: Path, width: int, ahead: int, answers: bool) -> None:
    """Receivers that came long before their data are done with it when the senders are."""
    made = two_stages(tmp_path, width, ahead, answers)
    known = made.of(clocks)
    assert (known.offset_ns - known.offset_ns[0]).tolist() == [0] * width + [ahead] * width
    assert known.residual_ns_p95 == 0 and len(set(known.shared.tolist())) == 1
    wanted = np.zeros((2 * width, 2 * width), np.int64)
    for rank in range(width):
        wanted[rank + width, rank] = sum(WAITS_NS)
    assert np.array_equal(blamed(made), wanted)
    assert "The clocks of the ranks agree to 0 µs" in made.of(job_report).basis


def test_the_one_that_sends_may_be_the_one_behind(tmp_path: Path) -> None:
    recvs = [(begin - 400_000, end) for begin, end in SENDS]
    events = {0: handed_on("recv", PAIR, 1, recvs), 1: shifted(handed_on("send", PAIR, 0, SENDS), 7_000)}
    assert written(tmp_path, events, [PAIR]).of(clocks).offset_ns.tolist() == [0, 7_000]


def test_receivers_that_end_apart_tell_how_good_the_clock_is(tmp_path: Path) -> None:
    recvs = [(begin - 400_000, end + 1_000 * place) for place, (begin, end) in enumerate(SENDS)]
    events = {0: handed_on("send", PAIR, 1, SENDS), 1: handed_on("recv", PAIR, 0, recvs)}
    known = written(tmp_path, events, [PAIR]).of(clocks)
    assert known.offset_ns.tolist() == [0, 2_000] and known.residual_ns_p95 == 2_000


def test_ranks_that_nothing_ties_share_no_clock_and_the_page_says_so(tmp_path: Path) -> None:
    events = {rank: reduced(PG(str(rank // 2), (rank // 2 * 2, rank // 2 * 2 + 1))) for rank in range(4)}
    made = written(tmp_path, events)
    assert made.of(clocks).shared.tolist() == [0, 0, 2, 2]
    basis = made.of(job_report).basis
    assert "offset between the clocks of ranks 0, 1 and 2, 3 is unknown" in basis
    assert "agree to 0 µs (95th percentile) among ranks that share collectives" in basis


def test_without_any_collective_no_clock_is_shared(tmp_path: Path) -> None:
    made = written(tmp_path, {rank: launched("k", 0, 10, 10) for rank in range(2)})
    assert made.of(clocks).shared.tolist() == [0, 1]
    assert "offset between the clocks of the ranks is unknown" in made.of(job_report).basis
