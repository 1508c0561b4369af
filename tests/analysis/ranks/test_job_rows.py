"""job_rows.py and what a report tells of a job: bandwidths without waiting, and one cause told once."""

from pathlib import Path

import pytest

from jobs import ALL_REDUCE, PG, Does, doing, host, launched, metadata_of, training, written
from tb_torchcompile_plugin.analysis.causes.findings import findings
from tb_torchcompile_plugin.analysis.ranks.job_report import rank_findings
from tb_torchcompile_plugin.analysis.ranks.job_rows import collective_rows, rank_rows, step_rows
from tb_torchcompile_plugin.api.report import read_report
from tb_torchcompile_plugin.errors import NotFound
from tb_torchcompile_plugin.job.job import one_rank

MS = 1_000_000


@pytest.mark.parametrize(
    ("word", "factor"),
    [("allreduce", 1.5), ("_allgather_base", 0.75), ("_reduce_scatter_base", 0.75), ("broadcast", 1.0)],
)
def test_bandwidths_are_those_of_nccl_tests(tmp_path: Path, word: str, factor: float) -> None:
    """4,000 bytes in the 2 µs of the shortest transfer; what ranks wait for the last one is in none."""
    group = PG("0", (0, 1, 2, 3))
    late = 0 if word == "broadcast" else 30_000
    args = metadata_of(word, group, 1000, Seq=0)
    begins = {rank: 10_000 + late * (rank == 3) for rank in group.ranks}
    end = 12_000 + late
    made = written(
        tmp_path, {rank: launched(ALL_REDUCE, 5_000, at, end - at, **args) for rank, at in begins.items()}
    )
    (row,) = made.of(collective_rows)
    assert (row.message_bytes, row.group_size, row.instances) == (4000, 4, 1)
    assert row.algbw_gb_s == pytest.approx(2.0) and row.busbw_gb_s == pytest.approx(2.0 * factor)
    assert (row.wait_us, row.transfer_us, row.end_skew_us_p95) == (3 * late / 1000, 8, 0)
    for one in made.of(rank_rows):
        assert one.communication_us == pytest.approx(one.transfer_us + one.wait_us + one.unmatched_us)


def test_waits_and_transfers_of_a_collective_are_summed(tmp_path: Path) -> None:
    """Four ranks come 0, 10, 30 and 60 µs late, and end together 2 µs after the last."""
    group = PG("0", (0, 1, 2, 3))
    late = {0: 10_000, 1: 60_000, 2: 0, 3: 30_000}
    args = metadata_of("allreduce", group, 1000, Seq=0)
    made = written(
        tmp_path,
        {rank: launched(ALL_REDUCE, 5_000, 10_000 + at, 62_000 - at, **args) for rank, at in late.items()},
    )
    (row,) = made.of(collective_rows)
    assert (row.wait_us, row.transfer_us, row.unknown_us) == (140, 8, 0)


def test_the_calls_of_one_instance_lead_to_the_timelines_of_their_ranks(tmp_path: Path) -> None:
    """Of two times the one with more waiting, by its times on one clock, though rank 1's clock is 5 ms ahead."""
    group, ahead = PG("0", (0, 1)), 5_000_000
    begins = {0: (10_000, 50_000), 1: (11_000, 80_000)}
    events = {
        rank: [
            event
            for seq, (at, end) in enumerate(zip(times, (20_000, 90_000)))
            for event in launched(
                ALL_REDUCE,
                at - 2_000 + ahead * rank,
                at + ahead * rank,
                end - at,
                **metadata_of("allreduce", group, 1000, Seq=seq),
            )
        ]
        for rank, times in begins.items()
    }
    made = written(tmp_path, events)
    (row,) = made.of(collective_rows)
    values = [(one.rank, one.start_us, one.wait_us, one.transfer_us) for one in row.most_waiting]
    assert values == [(0, 0, 30, 10), (1, 30, 0, 10)]
    for one, traced in zip(row.most_waiting, made.ranks):
        trace = traced.profile.trace
        ns = trace.window()[0] + one.timeline_ns + round(1000 * one.start_us)
        (found,) = (trace.ts == ns).nonzero()[0]
        assert trace.names[trace.name[found]] == ALL_REDUCE


def test_compile_time_is_part_of_the_step_that_compiled(tmp_path: Path) -> None:
    def compiles(begin: int) -> list[dict[str, object]]:
        names = ("_compile.compile_inner (dynamo_timed)", "bytecode_tracing (dynamo_timed)")
        return [host(name, begin, 2 * MS, "user_annotation") for name in names]

    def does(rank: int, step: int) -> Does:
        return Does(2 * MS, compiles) if (rank, step) == (1, 1) else Does()

    rows = training(tmp_path, 2, 3, does).of(step_rows)
    assert {(row.rank, row.step): row.compile_us for row in rows if row.compile_us} == {
        (1, "ProfilerStep#1"): 2000.0
    }


def test_the_job_comes_first_and_no_rank_is_told_its_symptoms(tmp_path: Path) -> None:
    training(tmp_path, 3, 5, lambda rank, step: doing("Python GC", 3 * MS) if rank == 2 else Does())
    report = read_report(str(tmp_path))
    assert report.runs[0].job is not None
    first, *others = report.findings
    assert (first.rule, first.worker, first.span) == ("late_rank", "", None)
    assert {row.rule for row in others}.isdisjoint({"communication", "garbage", "garbage_collection"})


def test_the_findings_of_one_rank_are_those_of_the_report(tmp_path: Path) -> None:
    """Its own ones alone would tell it to overlap communication that only waits for another rank."""
    made = training(tmp_path, 3, 5, lambda rank, step: Does(3 * MS if rank == 2 else 0))
    report = read_report(str(tmp_path))
    for one in made.ranks:
        reported = {row.rule for row in report.findings if row.worker == "" or one.rank in row.ranks}
        assert {row.rule for row in rank_findings(one_rank(made, one.rank)).findings} == reported
    alone = {row.rule for row in made.ranks[0].profile.of(findings).findings}
    assert "communication" in alone - {row.rule for row in rank_findings(one_rank(made, 0)).findings}
    assert "Communication that does not overlap" not in rank_findings(one_rank(made, 0)).headline
    with pytest.raises(NotFound, match="rank 7"):
        rank_findings(one_rank(made, 7))


def test_a_trace_that_was_cut_is_no_whole_rank(tmp_path: Path) -> None:
    training(tmp_path, 2, 6, lambda rank, step: Does(kernels=40))
    path = tmp_path / "rank1.1.pt.trace.json"
    path.write_bytes(path.read_bytes()[:-4000])
    (run,) = read_report(str(tmp_path)).runs
    assert run.job and "Part of the trace of rank 1 is missing" in run.job.basis
    assert any("rank1" in notice.file for notice in run.job.warnings)
