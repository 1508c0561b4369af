"""job/: kernels of which torch says only that calls were coalesced into them, and exchanges of uneven shares."""

from pathlib import Path
from typing import Any

import pytest

from jobs import PG, host, kinds_of, launched, metadata_of, written
from tb_torchcompile_plugin.job.instances import instances, waits
from traces import Event

PAIR = PG("0", (0, 1))
ROW_US = 1024


def coalesced(words: list[str], begin: int, ns: int, **peer: Any) -> list[Event]:
    """These calls of c10d, each 2 µs, then the launch of one kernel for all of them; then the host waits."""
    events: list[Event] = []
    at = begin - 10_000
    for word in words:
        args = {**metadata_of(word, PAIR, **peer), "External id": at}
        events += [host(f"c10d::{word}", at, 2_000), host("record_param_comms", at + 500, 1_000, **args)]
        at += 2_000
    events.append(host("nccl:coalesced", at, 4_000, "user_annotation"))
    events += launched("ncclDevKernel_SendRecv(ncclDevKernelArgs)", at + 1_000, begin, ns)
    wait = {**metadata_of("wait", PAIR, 0), "External id": at + 1}
    return [*events, host("record_param_comms", at + 5_000, 500, **wait)]


def test_a_pipeline_s_sends_and_recvs_are_matched(tmp_path: Path) -> None:
    """torch hands each to NCCL as a group of one. The receiver waits for the sender, 30 µs."""
    sends = coalesced(["send"], 60_000, 20_000, Dst_Rank=1) + coalesced(["recv"], 110_000, 20_000, Src_Rank=1)
    recvs = coalesced(["recv"], 30_000, 50_000, Src_Rank=0) + coalesced(["send"], 110_000, 20_000, Dst_Rank=0)
    made = written(tmp_path, {0: sends, 1: recvs}, [PAIR])
    assert [kind.operation for kind in kinds_of(made)] == ["send", "recv", "recv", "send"]
    assert [kind.message_bytes for kind in kinds_of(made)] == [4 * ROW_US] * 4
    assert made.of(instances).of_call.tolist() == [0, 1, 0, 1]
    assert made.of(waits).wait.tolist() == [0, 0, 30_000, 0]


@pytest.mark.parametrize("words", [["send", "recv"], ["allreduce", "allreduce"], []])
def test_what_several_calls_became_is_not_guessed(tmp_path: Path, words: list[str]) -> None:
    made = written(tmp_path, {rank: coalesced(words, 60_000, 20_000) for rank in (0, 1)}, [PAIR])
    assert [kind.operation for kind in kinds_of(made)] == ["other", "other"]
    assert made.of(instances).of_call.tolist() == [-1, -1]


def test_a_call_that_was_handed_on_by_itself_is_of_its_own_kernel(tmp_path: Path) -> None:
    """It comes before the one that is coalesced, and has a label of its own inside."""
    alone = metadata_of("allreduce", PAIR, Seq=7)
    events = [
        host("record_param_comms", 2_000, 4_000, **alone),
        host("nccl:all_reduce", 2_500, 3_000, "user_annotation"),
        *launched("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 3_000, 9_000, 5_000, **alone),
        *coalesced(["_allgather_base_"], 60_000, 20_000),
    ]
    made = written(tmp_path, {0: events, 1: events}, [PAIR])
    assert [kind.operation for kind in kinds_of(made)] == ["all_reduce", "all_gather"] * 2
    assert made.of(instances).of_call.tolist() == [0, 1, 0, 1]


def test_ranks_may_exchange_more_or_less(tmp_path: Path) -> None:
    """All-to-all of experts: each rank gives what its router says."""

    def exchange(elements: int) -> list[Event]:
        args = metadata_of("all_to_all", PAIR, elements, Seq=1)
        return launched("ncclDevKernel_SendRecv", 5_000, 8_000, 4_000, **args)

    made = written(tmp_path, {0: exchange(1024), 1: exchange(4096)}, [PAIR])
    assert made.of(instances).of_call.tolist() == [0, 0]
