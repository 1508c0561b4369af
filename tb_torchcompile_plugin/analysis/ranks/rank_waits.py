"""How much of its time does a rank of a job wait for another one, and for which?"""

from __future__ import annotations

from tb_torchcompile_plugin.analysis.findings import thresholds
from tb_torchcompile_plugin.analysis.words import percent
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.steps import job_steps
from tb_torchcompile_plugin.job.waits import blame


def waiting_words(job: Job, place: int) -> str:
    """ "waits for rank 1 for 98.2 % of its steps"; "" where it does not wait to speak of."""
    steps, waited = job.of(job_steps)[place], job.of(blame)
    most = waited.of(place)
    if steps is None or not len(most):
        return ""
    share = 100 * int(steps.exposed_wait.sum()) / max(int(steps.span.sum()), 1)
    if share < thresholds.communication_percent:
        return ""
    return f"waits for rank {job.numbers[waited.awaited[most[0]]]} for {percent(share)} of its steps"
