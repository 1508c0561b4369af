"""What would a step of a job take with this mended? Where traces were read all ranks are replayed; by digests alone
as a chain, with wider bounds.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tb_torchcompile_plugin.analysis.findings import thresholds
from tb_torchcompile_plugin.analysis.findings.finding import Evidence, Predicted, prediction
from tb_torchcompile_plugin.job.as_early import Change, as_early, job_clocks, pace_ns, recording_cost_ns
from tb_torchcompile_plugin.job.chain import explained, saved_share
from tb_torchcompile_plugin.job.job import Job, TracedJob
from tb_torchcompile_plugin.job.late import compared_steps, late
from tb_torchcompile_plugin.job.overlap import hideable
from tb_torchcompile_plugin.job.stages import Stages, even_stages
from tb_torchcompile_plugin.job.steps import job_lengths, job_steps
from tb_torchcompile_plugin.job.waits import blame
from tb_torchcompile_plugin.profile.model.gpu_queue import SAVED

_UNIFORM_PERCENT = 33.0  # gain from which on a host that is slower at everything is worth a sentence
_MORE = 1.1  # times as much as the chain tells: what replaying the same jobs gave at most


def now_ns(job: Job) -> float:
    """A step of the job as it runs unrecorded, where that was noted; by digests as it was recorded."""
    if not isinstance(job, TracedJob):
        return float(min((one.ns.mean() for one in job.of(job_lengths) if len(one.ns)), default=0.0))
    return pace_ns(job_clocks(job, slice_ns=job.of(recording_cost_ns)))


def slowed_by_recording(job: Job) -> float:
    """How many times as long a step took as unrecorded."""
    return pace_ns(job.of(job_clocks)) / job.of(now_ns) if isinstance(job, TracedJob) else 1.0


def if_early(job: Job, places: list[int]) -> Predicted | None:
    """With these ranks as early as their peers. None where no step is known."""
    if isinstance(job, TracedJob):
        more = any(part.cause == "more_work" for one in job.of(late) for part in one.parts)
        return _replayed(
            job, *(as_early(job, places, shared) for shared in ([True, False] if more else [True]))
        )
    share = saved_share(job, places)
    return shorter(job.of(now_ns), share, explained([one for one in job.of(late) if one.place in places]))


def shorter(now: float, share: float, known: float) -> Predicted | None:
    """A step (ns) by a share of it; at least by that of the share that is `known` to be the ranks' own doing. None
    where no step is known, or nothing would be left of it."""
    if not now or share >= 1:
        return None
    return prediction(now, *(now * (1 - min(one, 0.999)) for one in (share, share * known, share * _MORE)))


def if_even(job: Job, known: Stages) -> Predicted | None:
    """With stages of one length. By digests the longest one's excess is gone, or as much of all that a step takes."""
    if isinstance(job, TracedJob):
        return _replayed(job, even_stages(job, known))
    now, longest = job.of(now_ns), float(known.compute_ns[known.longest])
    if not now:
        return None
    return prediction(now, max(now - (longest - known.mean_ns), 1.0), now * known.mean_ns / longest)


def if_overlapped(job: Job) -> Predicted | None:
    """With transfers beside compute. By digests as far as there is compute that nothing runs beside."""
    if isinstance(job, TracedJob):
        cost, beside = job.of(recording_cost_ns), job.of(hideable)
        clocks = [job_clocks(job, transfers=1 - part * beside, slice_ns=cost) for part in (SAVED, 1.0, 0.0)]
        return _after(job, *map(pace_ns, clocks))
    now, steps = job.of(now_ns), [one for one in job.of(job_steps) if one is not None]
    if not now or not steps:
        return None
    hidden = np.median([np.minimum(one.exposed_transfer, one.compute).mean() for one in steps])
    return prediction(now, *(now - part * min(float(hidden), now - 1) for part in (SAVED, 1.0, 0.0)))


def worth_telling(job: Job, predicted: Predicted, uniform: bool) -> bool:
    """Whether mending brings enough; by digests at the least that it may bring. uniform: a rank is slower at
    everything."""
    least = predicted.gain_percent
    if not isinstance(job, TracedJob):
        least = 100 * (1 - predicted.high_us / predicted.step_us)
    return least >= thresholds.gain_percent and (not uniform or predicted.gain_percent >= _UNIFORM_PERCENT)


def waited_us(job: Job, places: list[int]) -> float:
    """How long another rank waits for these in an average step, unrecorded."""
    marked = max((len(one.step) for one in job.of(job_steps) if one is not None), default=compared_steps(job))
    caused = int(job.of(blame).caused_by(len(job.digests))[places].sum())
    others = max(len(job.digests) - len(places), 1)
    return caused / 1000 / marked / others / job.of(slowed_by_recording)


def gain_of(predicted: Predicted) -> Evidence:
    """What it brings, as evidence."""
    gain = predicted.step_us - predicted.after_us
    return {"gain_us_per_step": gain, "share_percent": predicted.gain_percent}


def _replayed(job: TracedJob, *changes: Mapping[int, Change]) -> Predicted:
    """Behind the first what may be changed as well."""
    cost = job.of(recording_cost_ns)
    return _after(job, *(pace_ns(job_clocks(job, one, slice_ns=cost)) for one in changes))


def _after(job: TracedJob, *paces: float) -> Predicted:
    now = job.of(now_ns)
    return prediction(now, *(min(one, now) for one in paces))
