"""A job of several ranks as text: who waits for whom, why, and what collectives took. Its ranks fold to a line each."""

from __future__ import annotations

from rich.console import Console

from tb_torchcompile_plugin.analysis.formatting import duration
from tb_torchcompile_plugin.analysis.ranks.job_rows import JobReport, RankRow
from tb_torchcompile_plugin.api.report import Report, Run, Worker
from tb_torchcompile_plugin.cli.text_table import Plain, table

_RANKS_SHOWN = 32
_MANY_SHOWN = 10  # of each table of a job of many ranks
_WAITS_SHOWN = 16
_OVERLAP_SHOWN = 12
_CAUSES_SHOWN = 5  # of each rank


def print_job(console: Console, run: str, job: JobReport) -> None:
    """All tables of one job, under its sentence."""
    console.rule(Plain(f"run {run}  job of {job.ranks} ranks"), align="left")
    for line in (job.headline, job.basis):
        console.print(Plain(f"  {line}"), soft_wrap=True)
    _print_outliers(console, job)
    host = " host" if any(row.host for row in job.by_rank) else ""
    table(
        console,
        "ranks: communication = transfer + wait + unknown + unmatched; the others waited late for it",
        job.by_rank,
        f"rank{host} step_us communication_us transfer_us wait_us unknown_us unmatched_us last late_us",
        _MANY_SHOWN if job.left_out.by_rank else _RANKS_SHOWN,
    )
    few = _MANY_SHOWN if job.left_out.by_rank else _WAITS_SHOWN
    table(console, "who waits for whom", job.waits, "rank for_rank wait_us", few)
    if job.waits_left_out_us:
        console.print(Plain(f"  all other pairs of ranks: {duration(job.waits_left_out_us)}"))
    _print_late(console, job)
    _print_overlap(console, job)
    unknown = " unknown_us" if any(row.unknown_us for row in job.collectives) else ""
    table(
        console,
        "collectives of all ranks",
        job.collectives,
        f"group op dtype message_bytes group_size instances transfer_us wait_us{unknown} wait_percent algbw_gb_s "
        "busbw_gb_s end_skew_p95_us",
        _MANY_SHOWN if job.left_out.by_rank else None,
        end_skew_p95_us=lambda row: row.end_skew_us_p95,
    )
    table(
        console,
        "the same over the ranks: who waits most, who transfers longest",
        job.collectives,
        "op message_bytes wait_min_us wait_median_us wait_max_us wait_max_rank transfer_min_us transfer_max_us "
        "transfer_max_rank",
        _MANY_SHOWN if job.left_out.by_rank else None,
    )


def _print_outliers(console: Console, job: JobReport) -> None:
    table(
        console,
        "outliers of all ranks",
        job.outliers,
        "name count longer_us gain_us words",
        count=lambda row: row.count,
    )
    if job.left_out.by_rank:
        console.print(
            Plain(
                f"  {job.left_out.by_rank:,} more ranks: --json holds the map of all, --json --all all rows"
            )
        )


def _print_late(console: Console, job: JobReport) -> None:
    table(
        console,
        f"why ranks come last: what takes longer than on their peers, {_CAUSES_SHOWN} causes of each",
        [(row, cause) for row in job.late for cause in row.causes[:_CAUSES_SHOWN]],
        "rank cause name where excess_us usual_us",
        rank=lambda row: row[0].rank,
        cause=lambda row: row[1].cause.replace("_", " "),
        name=lambda row: row[1].name or None,
        where=lambda row: row[1].where,
        excess_us=lambda row: row[1].excess_us,
        usual_us=lambda row: row[1].usual_us,
    )


def _print_overlap(console: Console, job: JobReport) -> None:
    if job.overlap_headline:
        console.print(Plain(f"  {job.overlap_headline}"), soft_wrap=True)
    table(
        console,
        "kernels beside a collective and alone: medians, and what they take longer a step",
        job.overlap,
        "name compile_id beside known alone_us beside_us wait_percent loss_us",
        _OVERLAP_SHOWN,
    )


def ranks_of_jobs(report: Report) -> list[int]:
    """All that can be unfolded."""
    jobs = [run for run in report.runs if run.job]
    named = {worker.rank for run in jobs for worker in run.workers if worker.rank is not None}
    return sorted(named.union(*(run.job.map.ranks for run in jobs if run.job)))


def folds(run: Run, worker: Worker, unfolded: int | None) -> bool:
    """Whether a rank is told in one line: those of a job are, but for the one that is asked for."""
    return run.job is not None and worker.rank is not None and worker.rank != unfolded


def print_folded(console: Console, run: Run, worker: Worker) -> None:
    """One line, which says how to see the rest."""
    rows = run.job.by_rank if run.job else []
    row = next((row for row in rows if row.worker == worker.worker), None)
    said = _in_short(row) if row else "not among those recorded together"
    console.print(Plain(f"rank {worker.rank}: {said} … --rank {worker.rank} unfolds"), soft_wrap=True)


def _in_short(row: RankRow) -> str:
    step = [] if row.step_us is None else [f"{duration(row.step_us)} a step"]
    waits = f"waits {duration(row.wait_us)} for others, they {duration(row.late_us)} for it"
    return ", ".join([*step, waits])
