"""A made-up job: in each step every rank computes and sums gradients up with all others, and one rank comes late."""

from pathlib import Path
from typing import Any

from traces import Event, launch, slice_, step, write_trace

SPAN = 1_795_000_000_000_000_000
STEP_US, LATE_US, COMPUTE_US, TRANSFER_US, LAUNCH_US = 7_800.0, 5_000.0, 2_000.0, 500.0, 100.0
_ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def write_job(folder: Path, ranks: int, steps: int, late: int) -> None:
    """A trace a rank. The late one does nothing for LATE_US in each step, and the others wait for it."""
    group = list(range(ranks))
    info = {"world_size": ranks, "pg_config": [{"pg_name": "0", "ranks": group}]}
    for rank in group:
        events = [event for number in range(steps) for event in _step(rank, number, group, rank == late)]
        name = f"rank{rank}.{SPAN + rank}.pt.trace.json"
        write_trace(folder, events, name, distributedInfo={"rank": rank, **info})


def _step(rank: int, number: int, group: list[int], late: bool) -> list[Event]:
    begin, slow = number * STEP_US, rank % 7 * 20.0
    start = begin + LAUNCH_US + (LATE_US if late else 0)
    ready, all_ready = start + COMPUTE_US + slow, begin + LAUNCH_US + LATE_US + COMPUTE_US
    said: dict[str, Any] = {
        "Collective name": "allreduce",
        "Process Group Name": "0",
        "Process Group Ranks": str(group),
        "dtype": "Float",
        "In msg nelems": 1 << 20,
        "Out msg nelems": 1 << 20,
    }
    end = max(all_ready + 120, ready) + TRANSFER_US
    return [
        step(number, begin, STEP_US),
        slice_("aten::mm", start - 10, 20),
        *launch("gemm", start, start + 5, COMPUTE_US + slow - 5),
        *launch(_ALL_REDUCE, start + 20, ready, end - ready, **said),
        slice_("cudaStreamSynchronize", start + 25, end + 5 - start - 25, "cuda_runtime"),
    ]
