"""job: where torch writes no numbers of calls, as of Gloo's, the k-th one of a group is the one that the program made.

That it is the one that torch's own numbers tell, where there are some, is in tests/diagnosis/test_recorded_jobs.py."""

from pathlib import Path

import numpy as np
import pytest

from jobs import job_in, members_of, run_ranks
from tb_torchcompile_plugin.job.digest.rank_calls import Calls
from tb_torchcompile_plugin.job.instances import calls, instances
from tb_torchcompile_plugin.job.job import TracedJob
from tb_torchcompile_plugin.profile.columns import host_slices

# Any collectives in one order on all ranks, some of them left to run while others begin; each call under a label that
# tells its number.
PROGRAM = """
import os, random, sys, time
import torch, torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from tb_torchcompile_plugin import tensorboard_trace_handler
rank, world = map(int, sys.argv[1:])
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=world)
plan, own = random.Random(7), random.Random(rank)
data = [torch.ones(size) for size in (10, 2_000, 100_000)]
parts = {one.numel(): [torch.empty(one.numel()) for _ in range(world)] for one in data}
number = 0
def call(what, one, later):
    if what == "all_reduce":
        return dist.all_reduce(one.clone(), async_op=later)
    if what == "broadcast":
        return dist.broadcast(one.clone(), 0, async_op=later)
    if what == "all_gather":
        return dist.all_gather([part.clone() for part in parts[one.numel()]], one, async_op=later)
    return dist.barrier(async_op=later)
with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=1, warmup=1, active=3),
    on_trace_ready=tensorboard_trace_handler("runs", f"rank{rank}"),
    record_shapes=True,
) as p:
    for step in range(5):
        waiting = []
        for _ in range(12):
            what = plan.choice(["all_reduce", "all_reduce", "broadcast", "all_gather", "barrier"])
            one, later = plan.choice(data), plan.random() < 0.6
            time.sleep(own.random() / 500)
            with record_function(f"call {number}"):
                waiting.append(call(what, one, later))
            number += 1
        for one in waiting:
            if one is not None:
                one.wait()
        dist.barrier()
        p.step()
dist.destroy_process_group()
"""
OF_A_STEP = 13


def recorded(folder: Path, world: int) -> TracedJob:
    run_ranks(PROGRAM, folder, [[str(rank), str(world)] for rank in range(world)])
    job = job_in(folder / "runs")
    assert job.numbers == list(range(world))
    return job


def numbers_of(job: TracedJob, made: Calls) -> list[str]:
    """By call the label around what handed it to Gloo; "" outside of all."""
    names = [""] * len(made.begin)
    for place, one in enumerate(job.ranks):
        trace = one.profile.trace
        labels = host_slices(trace, lambda name: name.startswith("call "))
        for call in np.flatnonzero(made.rank_index == place).tolist():
            at = int(made.launch[call]) - trace.base_ns
            around = labels[(trace.ts[labels] <= at) & (at < trace.ts[labels] + trace.dur[labels])]
            names[call] = trace.names[trace.name[around[0]]] if len(around) else ""
    return names


@pytest.mark.torch
@pytest.mark.parametrize("world", [2, 4, pytest.param(8, marks=pytest.mark.large)])
def test_of_gloo_every_collective_is_the_one_that_the_program_made(tmp_path: Path, world: int) -> None:
    job = recorded(tmp_path, world)
    made = job.of(calls)
    assert (made.seq == -1).all() and (made.comms == -1).all(), "torch numbers them now"
    names, members = numbers_of(job, made), members_of(job)
    assert (job.of(instances).of_call >= 0).all() and len(members) == 3 * OF_A_STEP
    for rows in members:
        assert len(rows) == world and len({names[row] for row in rows.tolist()}) == 1
    assert len({names[int(rows[0])] for rows in members} - {""}) == 36
