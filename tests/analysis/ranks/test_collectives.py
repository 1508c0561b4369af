"""collectives.py: collectives by name and size."""

import json
from collections import defaultdict
from pathlib import Path

import pytest

from jobs import PG, Does, launched, metadata_of, training, written
from profiles import profile_of
from recordings import Recording
from tb_torchcompile_plugin.analysis.ranks.collectives import Collective, collectives, rank_collectives
from tb_torchcompile_plugin.api.report import SpanReport, read_report
from tb_torchcompile_plugin.errors import NotFound
from tb_torchcompile_plugin.job.job import TracedJob, one_rank
from traces import Event, launch, slice_, write_trace

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def rows_of(path: Path) -> list[Collective]:
    return collectives(profile_of(path)).rows


def test_by_label_and_size(tmp_path: Path) -> None:
    def label(at: float, elements: int, kind: str = "c10::BFloat16") -> Event:
        args: Event = {"Input Dims": [[elements]], "Input type": [kind]}
        return slice_("nccl:all_reduce", at, 10, "user_annotation", **args)

    events = [
        *(label(0, 1000), *launch(ALL_REDUCE, 2, 100, 8)),
        *(label(20, 1000), *launch(ALL_REDUCE, 22, 200, 4)),
        *(label(40, 1000, "float"), *launch(ALL_REDUCE, 42, 300, 50)),
        *launch("ncclDevKernel_SendRecv", 60, 400, 2),  # nothing tells what it is of
        *launch("ampere_sgemm_32x32_tn", 70, 500, 2),
    ]
    large, small, unknown = rows_of(write_trace(tmp_path, events))
    assert (large.name, large.size_bytes) == ("all_reduce", 4000)
    assert (large.kernels, large.time_us, large.gb_s) == (1, 50, 0.08)
    assert (small.size_bytes, small.kernels, small.mean_us, small.min_us, small.max_us) == (2000, 2, 6, 4, 8)
    assert small.gb_s == 0.5
    assert (unknown.name, unknown.size_bytes, unknown.gb_s) == ("ncclDevKernel_SendRecv", None, None)


def test_of_a_rank_alone_a_bandwidth_is_the_least_that_it_may_be(tmp_path: Path) -> None:
    job = training(tmp_path, 3, 5, lambda rank, step: Does(3_000_000 if rank == 2 else 0), elements=1 << 20)
    for one in job.ranks:
        for row in one.profile.of(collectives).rows:
            assert (row.wait_us, row.transfer_us) == (None, None)
            assert row.gb_s_kind in (None, "at_least")


def test_in_a_job_no_waiting_is_in_a_bandwidth(tmp_path: Path) -> None:
    """Ranks 0 and 1 wait for rank 2; the transfer takes as long on all of them."""
    job = job_with_sizes(tmp_path)
    (row,) = collectives(job.ranks[0].profile).rows
    assert row.gb_s == pytest.approx(4_000 / 42_000) and row.gb_s_kind == "at_least"
    for rank in range(3):
        (row,) = rank_collectives(one_rank(job, rank)).rows
        assert (row.transfer_us, row.wait_us) == (2 * 2, 0 if rank == 2 else 2 * 40)
        assert row.gb_s == pytest.approx(4_000 / 2_000) and row.gb_s_kind == "exact"
        assert row.time_us == (row.transfer_us or 0) + (row.wait_us or 0)
    with pytest.raises(NotFound, match="no trace of rank 3"):
        rank_collectives(one_rank(job, 3))


def job_with_sizes(folder: Path) -> TracedJob:
    world = PG("0", (0, 1, 2))
    events: dict[int, list[Event]] = {}
    for rank in world.ranks:
        late = 40_000 * (rank == 2)
        events[rank] = []
        for number, at in enumerate((100_000, 300_000)):
            args: Event = {"Input Dims": [[1000]], "Input type": ["float"]}
            events[rank] += [
                slice_("nccl:all_reduce", at / 1000 - 10, 9, "user_annotation", **args),
                *launched(
                    ALL_REDUCE,
                    at - 5_000,
                    at + late,
                    42_000 - late,
                    **metadata_of("allreduce", world, 1000, Seq=number),
                ),
            ]
    return written(folder, events, [world])


def test_a_report_tells_transfers_of_ranks_of_a_job(tmp_path: Path) -> None:
    job_with_sizes(tmp_path)
    report = read_report(str(tmp_path))
    spans = [span for worker in report.runs[0].workers for span in worker.spans]
    for span in spans:
        assert isinstance(span, SpanReport)
        assert [row.gb_s_kind for row in span.collectives] == ["exact"]
    (tmp_path / "rank1.1.pt.trace.json").unlink()
    (tmp_path / "rank2.1.pt.trace.json").unlink()
    (span,) = read_report(str(tmp_path)).runs[0].workers[0].spans
    assert isinstance(span, SpanReport) and [row.gb_s_kind for row in span.collectives] == ["at_least"]


def test_without_communication_there_is_none(tmp_path: Path) -> None:
    assert rows_of(write_trace(tmp_path, [slice_("aten::mm", 0, 1)])) == []


def test_two_ranks_from_their_raw_events(recording: Recording) -> None:
    """The n-th label launched the n-th kernel, and both ranks put in the same bytes."""
    sizes = []
    for trace in sorted(recording("ddp").glob("*.trace.json")):
        events = [event for event in json.loads(trace.read_text())["traceEvents"] if event.get("ph") == "X"]
        events.sort(key=lambda event: event["ts"])
        labels = [e for e in events if e["name"] == "nccl:all_reduce" and e["cat"] == "user_annotation"]
        kernels = [e for e in events if e["cat"] == "kernel" and e["name"].startswith("nccl")]
        wanted = defaultdict(list)
        for label, kernel in zip(labels, kernels, strict=True):
            wanted[2 * label["args"]["Input Dims"][0][0]].append(kernel["dur"])  # bfloat16
        by_size = {row.size_bytes: row for row in rows_of(trace)}
        assert by_size.keys() == wanted.keys()
        for size, times in wanted.items():
            assert by_size[size].kernels == len(times)
            assert by_size[size].time_us == pytest.approx(sum(times))
            assert (by_size[size].min_us, by_size[size].max_us) == (min(times), max(times))
        sizes.append(set(by_size))
    assert sizes[0] == sizes[1] and len(sizes) == 2
