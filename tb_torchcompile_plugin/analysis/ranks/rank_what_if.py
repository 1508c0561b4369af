"""What if this were mended on one rank of a job? As of a span on its own, but that waiting for another rank is nothing
to overlap: what transfers is, and the rank that is waited for is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.ranks.job_findings import OF_COLLECTIVES, waiting_ranks
from tb_torchcompile_plugin.analysis.ranks.rank_waits import place_of_rank, waiting_words
from tb_torchcompile_plugin.analysis.what_if.fix import Fix
from tb_torchcompile_plugin.analysis.what_if.gpu_fixes import overlapped
from tb_torchcompile_plugin.analysis.what_if.reasons import why_nothing
from tb_torchcompile_plugin.analysis.what_if.scenario import Offer, Scenario, offered, own_offer, priced_fix
from tb_torchcompile_plugin.job.calls import calls, trace_rows
from tb_torchcompile_plugin.job.instances import instances
from tb_torchcompile_plugin.job.job import TracedJob
from tb_torchcompile_plugin.job.waits import waits
from tb_torchcompile_plugin.profile.columns import places_in
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue

_OVERLAP = "communication"


def rank_what_if(job: TracedJob, rank: int, picked: Sequence[str] = ()) -> Scenario:
    """Of a rank that is here; picked: ids of fixes that are made together. Raises NotFound."""
    place = place_of_rank(job, rank)
    made = offered(job.ranks[place].profile, job.of(rank_offer, rank), picked)
    said = waiting_words(job, place)
    return msgspec.structs.replace(made, headline=f"{made.headline} This rank {said}.") if said else made


def rank_offer(job: TracedJob, rank: int) -> Offer:
    """Without fixes that would take out what may be waiting; with what is known to transfer. Raises NotFound."""
    place = place_of_rank(job, rank)
    profile = job.ranks[place].profile
    own = profile.of(own_offer)
    if not own.fixes or profile.of(why_nothing) or not len(job.of(instances)):
        return own
    gone = {_OVERLAP, *(OF_COLLECTIVES if rank in job.of(waiting_ranks) else ())}
    more = list(_transfers(job, place))
    rows = [priced_fix(profile, fix) for fix in more]
    rows = [row for row in rows if row.predicted.after_us < row.predicted.step_us]
    rows += [row for row in own.rows if row.kind not in gone]
    rows.sort(key=lambda row: row.predicted.after_us)
    return Offer((*(fix for fix in own.fixes if fix.kind not in gone), *more), tuple(rows))


def _transfers(job: TracedJob, place: int) -> Iterator[Fix]:
    """As if what is known to transfer ran beside everything else."""
    profile, made, known = job.ranks[place].profile, job.of(calls), job.of(waits)
    mine = np.flatnonzero((made.place == place) & (known.transferred > 0))
    work = places_in(profile.of(gpu_queue).row, job.of(trace_rows)[mine])
    return overlapped(profile, work[work >= 0], known.transferred[mine][work >= 0])
