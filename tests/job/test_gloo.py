"""job: collectives of real processes, which Gloo runs on threads of its own and tells neither group nor number of."""

from pathlib import Path

import numpy as np
import pytest

from jobs import PG, host, members_of, run_ranks, written
from profiles import profile_of
from tb_torchcompile_plugin.job.instances import calls, waits
from tb_torchcompile_plugin.job.job import JobRank, TracedJob
from traces import Event

PROGRAM = """
import glob, os, sys, time
import torch, torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule
rank, world, groups = map(int, sys.argv[1:])
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=world)
if groups > 1:
    dist.new_group([0, 1])
data, small = torch.ones(200_000), torch.ones(10)
parts = [torch.empty(10) for _ in range(world)]
def done(p):
    p.export_chrome_trace(f"rank{rank}.1.pt.trace.json")
with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=1, warmup=1, active=3),
    on_trace_ready=done,
    record_shapes=True,
) as p:
    for step in range(5):
        dist.all_reduce(small)
        open(f"{step}.{rank}.here", "w").close()
        while rank == 1 and len(glob.glob(f"{step}.*.here")) < world:
            time.sleep(0.01)
        time.sleep(0.15 * (rank == 1))
        waiting = []
        for _ in range(4):
            waiting += [dist.all_reduce(data, async_op=True), dist.broadcast(small.clone(), 0, async_op=True)]
            waiting += [dist.all_gather(parts, small, async_op=True)]
        for one in waiting:
            one.wait()
        if rank < 2:
            dist.send(small, 1) if rank == 0 else dist.recv(small, 0)
        dist.barrier()
        p.step()
dist.destroy_process_group()
"""
OF_A_STEP = ["all_reduce", *["all_reduce", "broadcast", "all_gather"] * 4, "barrier"]


def recorded(folder: Path, world: int, groups: int = 1) -> TracedJob:
    run_ranks(PROGRAM, folder, [[str(rank), str(world), str(groups)] for rank in range(world)])
    paths = [folder / f"rank{rank}.1.pt.trace.json" for rank in range(world)]
    return TracedJob(tuple(JobRank(rank, f"rank{rank}", profile_of(path)) for rank, path in enumerate(paths)))


@pytest.mark.torch
@pytest.mark.parametrize("world", [2, 4, pytest.param(8, marks=pytest.mark.large)])
def test_each_collective_of_a_job_with_one_group_is_matched(tmp_path: Path, world: int) -> None:
    job = recorded(tmp_path, world)
    known, times = job.of(calls), job.of(waits)
    members = members_of(job)
    whole = [rows for rows in members if known.kind_of(rows[0]).operation not in ("send", "recv")]
    assert sorted(map(len, whole)) == [world] * 3 * len(OF_A_STEP)
    in_order = sorted(whole, key=lambda rows: int(known.launch[rows[0]]))
    words = [known.kind_of(rows[0]).operation for rows in in_order]
    assert words == OF_A_STEP * 3
    for place in range(world):
        launches = [int(known.launch[rows[known.rank_index[rows] == place][0]]) for rows in in_order]
        assert launches == sorted(launches), "all ranks call them in one order"
    # Rank 1 comes 150 ms after the others to what follows the first one of each step.
    for rows in in_order[1 :: len(OF_A_STEP)]:
        late = times.wait[rows[known.rank_index[rows] != 1]]
        assert (late > 30_000_000).all(), times.wait[rows]
    assert np.array_equal((times.wait + times.transfer)[times.wait >= 0], known.dur[times.wait >= 0])


@pytest.mark.torch
def test_where_a_job_has_several_groups_nothing_is_guessed(tmp_path: Path) -> None:
    job = recorded(tmp_path, 2, groups=2)
    assert len(job.of(calls).begin) and members_of(job) == []


def asynchronous(*begins: tuple[str, int, int]) -> list[Event]:
    """(operation, when it is called, when a thread of Gloo's takes it up), each on a thread of its own."""
    words = {"all_reduce": "c10d::allreduce_", "broadcast": "c10d::broadcast_"}
    return [
        event
        for thread, (operation, called, begin) in enumerate(begins)
        for event in (
            host(words[operation], called, 500),
            host(f"gloo:{operation}", begin, 90_000 - begin, "user_annotation") | {"tid": 200 + thread},
        )
    ]


def test_calls_that_wait_for_a_thread_are_in_the_order_in_which_they_were_called(tmp_path: Path) -> None:
    """Threads may begin in another order, and in another step."""
    steps = [host(f"ProfilerStep#{step}", 40_000 * step, 40_000, "user_annotation") for step in range(3)]
    ranks = {
        0: asynchronous(
            ("broadcast", 1_000, 41_000), ("all_reduce", 43_000, 44_000), ("broadcast", 46_000, 47_000)
        ),
        1: asynchronous(
            ("broadcast", 1_000, 2_000), ("all_reduce", 43_000, 49_000), ("broadcast", 46_000, 47_000)
        ),
    }
    events = {rank: [*steps[1:], *some] for rank, some in ranks.items()}
    job = written(tmp_path, events, [PG("0", (0, 1))])
    known = job.of(calls)
    pairs = [(known.kind_of(rows[0]).operation, known.launch[rows].tolist()) for rows in members_of(job)]
    base = int(job.ranks[0].profile.trace.base_ns)
    assert pairs == [("all_reduce", [base + 43_000] * 2), ("broadcast", [base + 46_000] * 2)]


def test_labels_that_no_call_is_recorded_of_count_from_their_own_begin(tmp_path: Path) -> None:
    alone = [one for one in asynchronous(("broadcast", 1_000, 2_000)) if "gloo" in one["name"]]
    job = written(tmp_path, {0: alone, 1: alone}, [PG("0", (0, 1))])
    known = job.of(calls)
    assert known.launch.tolist() == known.begin.tolist() and len(members_of(job)) == 1
