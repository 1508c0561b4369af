"""Which ranks, hosts and links are slow, alone or together, and what would a step of the job take without them?

Ranks that are late together by one cause are one outlier: without one of them the others are still waited for. Where
traces were read all ranks are replayed; by digests alone as a chain, with wider bounds. Several outliers may be slow at
once, and the slowest hides the others: each is predicted with those before it fixed.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis import formatting, thresholds
from tb_torchcompile_plugin.analysis.finding import Predicted, prediction
from tb_torchcompile_plugin.analysis.ranks import why_late
from tb_torchcompile_plugin.analysis.ranks.job_rows import LateRank, late_ranks
from tb_torchcompile_plugin.job import as_early, chain
from tb_torchcompile_plugin.job.chain import Slow, SlowLink
from tb_torchcompile_plugin.job.instances import calls, instances
from tb_torchcompile_plugin.job.job import Job, TracedJob
from tb_torchcompile_plugin.job.late import Late, compared_steps, late, late_by_rank
from tb_torchcompile_plugin.job.steps import job_step_us, job_steps, waited_in_steps
from tb_torchcompile_plugin.profile.columns import sums
from tb_torchcompile_plugin.profile.model.launch_sequence import OVERLAP_GAIN

# Chosen by eye on the recordings, except for the ratio.
FEW_RANKS = 8  # up to so many, each rank is shown; of more, the outliers
_UNIFORM_PERCENT = 33.0  # gain from which a host that is slower at everything is a finding
_MAX_GAIN_RATIO = 1.1  # of the replayed gain to the chain's: the most that replaying the same jobs gave
_MAX_OUTLIERS = 10  # of each kind, that are compared with each other
_MAX_REPLAYED = 4  # groups of ranks: replaying the traces of many ranks takes long
MAX_HOSTS = 4  # that one sentence names
_USUALLY = 2 / 3  # of the lateness at its collectives: ranks that are late at fewer take turns
_LATE_ENOUGH = 0.2  # of the lateness of the latest rank
_TOGETHER = 0.5  # of the lateness of the latest of a group: who is late by less is not of the group

OutlierKind = Literal["rank", "host", "link"]


class Outlier(NamedTuple):
    """Slow ranks, alone or together, or a slow link."""

    what: Slow | SlowLink
    lates: list[Late]  # where its slowest rank is late
    why: LateRank | None  # what that rank does there; None where unknown
    predicted: Predicted | None = None  # with those before it fixed, too; None where no step is known
    before: tuple[str, ...] = ()  # the names of those

    @property
    def kind(self) -> OutlierKind:
        """What is slow."""
        return "link" if isinstance(self.what, SlowLink) else "host" if self.what.hosts else "rank"


def now_ns(job: Job) -> float:
    """Return the step of the job, 0 where it has none."""
    return 1000 * (job.of(job_step_us) or 0.0)


def if_early(job: Job, indices: list[int]) -> Predicted | None:
    """Predict a step with these ranks as early as their peers; None where no step is known."""
    lates = job.of(late)
    if isinstance(job, TracedJob):
        more = any(blamed.cause == "more_work" for row in lates for blamed in row.parts)
        variants = [True, False] if more else [True]
        changes = (
            {index: job.of(as_early.without_excess, index, shared) for index in indices}
            for shared in variants
        )
        return _after(job, *(as_early.replayed_step_ns(job, change) for change in changes))
    known = chain.explained([row for row in lates if row.rank_index in indices])
    return _shorter(job.of(now_ns), chain.saved_share(job, indices), known)


def _shorter(now: float, share: float, known: float) -> Predicted | None:
    """Predict a step (ns) that is shorter by a share, at least by its known part; None if nothing would be left."""
    if not now or share >= 1:
        return None
    shares = (share, share * known, share * _MAX_GAIN_RATIO)
    # a step that takes no time at all would be no prediction
    return prediction(now, *(now * (1 - min(value, 0.999)) for value in shares))


def if_even(job: Job, stages: as_early.Stages) -> Predicted | None:
    """Predict a step with even stages; by digests, the longest one's excess is gone or all shrinks in proportion."""
    if isinstance(job, TracedJob):
        return _after(job, as_early.replayed_step_ns(job, as_early.even_stages(job, stages)))
    now, longest = job.of(now_ns), float(stages.compute_ns[stages.longest])
    if not now:
        return None
    return prediction(now, max(now - (longest - stages.mean_ns), 1.0), now * stages.mean_ns / longest)


def if_overlapped(job: Job) -> Predicted | None:
    """Predict a step whose transfers overlap compute; by digests, as far as there is compute that nothing overlaps."""
    if isinstance(job, TracedJob):
        hidden_share = job.of(as_early.hideable_share)
        transfers = [1 - part * hidden_share for part in (OVERLAP_GAIN, 1.0, 0.0)]
        return _after(job, *(as_early.replayed_step_ns(job, transfers=part) for part in transfers))
    now, steps = job.of(now_ns), [steps for steps in job.of(job_steps) if steps is not None]
    if not now or not steps:
        return None
    hidden = np.median([np.minimum(rank.exposed_transfer, rank.compute).mean() for rank in steps])
    return prediction(now, *(now - part * min(float(hidden), now - 1) for part in (OVERLAP_GAIN, 1.0, 0.0)))


def _after(job: TracedJob, *replayed_ns: float) -> Predicted:
    """Predict from the step of the job by how much shorter the first replayed one gets; the others give the bounds."""
    now, before = job.of(now_ns), job.of(as_early.replayed_step_ns)
    return prediction(now, *(now * min(ns / before, 1.0) for ns in replayed_ns))


def is_worth_reporting(job: Job, predicted: Predicted, is_uniform: bool) -> bool:
    """Return whether a fix brings enough (by digests, at least); more for a rank that is slower at everything."""
    least = predicted.gain_percent if isinstance(job, TracedJob) else predicted.least_gain_percent
    return least >= thresholds.gain_percent and (not is_uniform or predicted.gain_percent >= _UNIFORM_PERCENT)


def waited_us(job: Job, indices: list[int]) -> float:
    """Return how long another rank waits for these in the steps that all ranks have, per step, unprofiled."""
    inside = job.of(waited_in_steps)
    caused = int(inside.caused_by[indices].sum())
    others = max(len(job.digests) - len(indices), 1)
    us_per_step = caused / 1000 / (inside.steps or compared_steps(job)) / others
    if not isinstance(job, TracedJob):
        return us_per_step
    return us_per_step / (
        as_early.step_of_job_ns(job.of(as_early.job_clocks)) / job.of(as_early.replayed_step_ns)
    )


def is_many(job: Job) -> bool:
    """Return whether to look for outliers: several may be to blame, and no trace shows more."""
    return len(job.digests) > FEW_RANKS and not isinstance(job, TracedJob)


def outliers(job: Job) -> list[Outlier]:
    """Return ranks that are late, alone or together, and slow links, each predicted with those before it fixed.

    By traces, and of few ranks: the ranks that are late at most of their collectives, the latest first. Of many ranks
    by digests: those that are by far later than most, and links, most gain first.
    """
    is_traced, rows, step_ns = isinstance(job, TracedJob), list[Outlier](), job.of(now_ns)
    candidates = _by_cause(job, job.of(chain.slow) if is_many(job) else _usually_late(job))
    if is_many(job):
        candidates += [Outlier(link, [], None) for link in job.of(chain.slow_links)[:_MAX_OUTLIERS]]
        candidates.sort(key=lambda candidate: -_saved(job, [candidate]))
    for candidate in candidates[: _MAX_REPLAYED if is_traced else _MAX_OUTLIERS]:
        predicted = _after_those(job, [*rows, candidate], step_ns)
        before = tuple(name_in_words(job, row.what) for row in rows)
        rows.append(candidate._replace(predicted=predicted, before=before))
        step_ns = 1000 * predicted.after_us if predicted else step_ns
    return rows


def _after_those(job: Job, fixed: list[Outlier], step_ns: float) -> Predicted | None:
    """Predict a step with the last of these fixed, too. step_ns: with the others fixed."""
    if isinstance(job, TracedJob):
        together = if_early(job, late_indices(fixed))
        times_us = (together.after_us, together.low_us, together.high_us) if together else ()
        return prediction(step_ns, *(min(1000 * us_, step_ns) for us_ in times_us)) if times_us else None
    share = 1 - job.of(now_ns) * (1 - _saved(job, fixed)) / max(step_ns, 1)
    own = 1.0 if fixed[-1].kind == "link" else chain.explained(fixed[-1].lates)
    return _shorter(step_ns, max(share, 0.0), own)


def late_indices(rows: Iterable[Outlier]) -> list[int]:
    """Return the indices of the ranks that are late, without those of slow links."""
    return [index for row in rows if isinstance(row.what, Slow) for index in row.what.rank_indices]


def _saved(job: Job, fixed: list[Outlier]) -> float:
    """Return by which share a step is shorter without these."""
    links = [row.what for row in fixed if isinstance(row.what, SlowLink)]
    return chain.saved_share(job, late_indices(fixed), links)


def _usually_late(job: Job) -> list[Slow]:
    """Return the ranks that are late at most of the collectives at which they or ranks that they meet are late."""
    ranks, lates = len(job.digests), [row for row in job.of(late) if row.parts]
    columns = [(row.rank_index, row.instance, row.lateness) for row in lates]
    index, instance, ns = np.array(columns, np.int64).reshape(-1, 3).T
    most = np.zeros(len(job.of(instances)) + 1, np.int64)
    np.maximum.at(most, instance, ns)
    own, at_those = sums(index, ns, ranks), sums(index, most[instance], ranks)
    at_all = sums(job.of(calls).rank_index, most[job.of(instances).of_call], ranks)
    is_usual = (own >= _LATE_ENOUGH * own.max()) & (own > 0) & (at_those >= _USUALLY * at_all)
    return chain.by_host(job, np.asarray(is_usual), own)


def _by_cause(job: Job, slowest: Iterable[Slow]) -> list[Outlier]:
    """Join ranks, and hosts, that are late by one cause and by about as much; slowest first, as they are given."""
    why_of_rank = {row.rank: row for row in job.of(late_ranks)}
    groups = defaultdict[tuple[Any, ...], list[list[Slow]]](list)
    for slow in slowest:
        cause = (bool(slow.hosts), *_cause(why_of_rank.get(job.numbers[slow.rank_indices[0]])))
        same = groups[cause]
        if not same or slow.ns < _TOGETHER * same[-1][0].ns:
            same.append([])
        same[-1].append(slow)
    rows = []
    for members in (members for same in groups.values() for members in same):
        indices = [index for slow in members for index in slow.rank_indices]
        what = Slow(indices, sorted(host for slow in members for host in slow.hosts), members[0].ns)
        lates = job.of(late_by_rank).get(indices[0], [])
        rows.append(Outlier(what, lates, why_of_rank.get(job.numbers[indices[0]])))
    return sorted(rows, key=lambda row: -row.what.ns)[:_MAX_OUTLIERS]


def _cause(why: LateRank | None) -> tuple[Any, ...]:
    if why is None:
        return ("unknown",)
    main = why_late.main_cause(why)
    return (main.cause, main.where) if why_late.distinctive_reasons(why) else ("slower at everything",)


def reported(job: Job) -> list[Outlier]:
    """Return the outliers whose fix brings enough."""
    return [
        outlier
        for outlier in job.of(outliers)
        if outlier.predicted and is_worth_reporting(job, outlier.predicted, _is_uniform(job, outlier))
    ]


def _is_uniform(job: Job, outlier: Outlier) -> bool:
    """Return whether ranks are slower at everything and may be so by chance: those of a host or a stage are not."""
    if outlier.kind != "rank" or (outlier.why and why_late.distinctive_reasons(outlier.why)):
        return False
    ranks = outlier.what.rank_indices
    return len(ranks) == 1 or not chain.shared_by(job, ranks)


def name_in_words(job: Job, what: Slow | SlowLink) -> str:
    """Return "rank 37", "ranks 3, 7, 11", "node0011" or "node0018 and node0019"."""
    plural = "s" if len(what.rank_indices) > 1 else ""
    return hosts_in_words(what.hosts) or f"rank{plural} {ranks_in_words(job, what)}"


def ranks_in_words(job: Job, what: Slow | SlowLink) -> str:
    """Return "3, 7, 11"."""
    return formatting.listed_numbers(sorted(job.numbers[index] for index in what.rank_indices))


def hosts_in_words(names: Sequence[str]) -> str:
    """Return "a, b and c"; "" for none or for more than a sentence can name."""
    return formatting.joined_names(names) if len(names) <= MAX_HOSTS else ""
