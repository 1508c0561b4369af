"""Findings about many ranks: a rank, a host or a link between hosts that is far slower than the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis import thresholds
from tb_torchcompile_plugin.analysis.causes.fix_words import instead
from tb_torchcompile_plugin.analysis.finding import Evidence, Finding, Predicted, prediction, severity_of
from tb_torchcompile_plugin.analysis.formatting import duration, listed, plural, significant
from tb_torchcompile_plugin.analysis.ranks.job_rows import LateRank, OutlierRow, late_rows
from tb_torchcompile_plugin.analysis.ranks.late import (
    COMPILING,
    advice,
    all_does,
    compiled_in,
    compiled_words,
    main_cause,
    telling,
)
from tb_torchcompile_plugin.analysis.ranks.rank_differences import CompiledOtherwise, compiled_otherwise
from tb_torchcompile_plugin.job.as_early import Change, as_early, job_clocks, pace_ns, recording_cost_ns
from tb_torchcompile_plugin.job.chain import (
    Slow,
    SlowLink,
    explained,
    hosts_of,
    saved_share,
    saved_without,
    slow,
    slow_links,
    why_slow,
)
from tb_torchcompile_plugin.job.job import Job, TracedJob
from tb_torchcompile_plugin.job.late import compared_steps, late
from tb_torchcompile_plugin.job.overlap import hideable
from tb_torchcompile_plugin.job.stages import Stages, even_stages
from tb_torchcompile_plugin.job.steps import job_lengths, job_steps
from tb_torchcompile_plugin.job.waits import blame
from tb_torchcompile_plugin.profile.model.gpu_queue import SAVED
from tb_torchcompile_plugin.profile.units import us

# What would a step of a job take with this mended? Where traces were read all ranks are replayed; by
# digests alone as a chain, with wider bounds.


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


# Which of many ranks, hosts and links are slow, and what would a step take without them? Several may be
# slow at once, and the slowest hides the others: each is priced with those before it mended.


MANY = 8  # ranks that are few
_TOLD = 10  # outliers that are held against each other


class Outlier(NamedTuple):
    """A slow rank or host, or a slow link. why: what its slowest rank does, None where nothing tells. predicted: with
    those before it mended, too; None where no step is known. first: nothing is before it."""

    what: Slow | SlowLink
    why: LateRank | None
    predicted: Predicted | None
    first: bool


def is_many(job: Job) -> bool:
    """Whether outliers are looked for: several may be to blame, and no trace tells more."""
    return len(job.digests) > MANY and not isinstance(job, TracedJob)


def outliers(job: Job) -> list[Outlier]:
    """Most gain first; none of few ranks, nor where traces tell more."""
    if not is_many(job):
        return []
    slowest: list[Slow | SlowLink] = [*job.of(slow)[:_TOLD], *job.of(slow_links)[:_TOLD]]
    alone = sorted((_Priced(job, one) for one in slowest), key=lambda one: -one.alone)
    return list(_one_by_one(job, alone[:_TOLD]))


class _Priced:
    """known: which share of it is of its own doing. alone: by which share a step is shorter without it."""

    def __init__(self, job: Job, what: Slow | SlowLink) -> None:
        self.what = what
        self.why = job.of(why_slow, what.places[0]) if isinstance(what, Slow) else []
        self.known = explained(self.why) if isinstance(what, Slow) else 1.0
        self.alone = saved_without(job, self.shares, self.links)

    @property
    def shares(self) -> dict[int, float]:
        return dict.fromkeys(self.what.places, self.known) if isinstance(self.what, Slow) else {}

    @property
    def links(self) -> list[SlowLink]:
        return [self.what] if isinstance(self.what, SlowLink) else []


def _one_by_one(job: Job, wanted: list[_Priced]) -> Iterator[Outlier]:
    shares: dict[int, float] = {}
    links: list[SlowLink] = []
    gone, now = 0.0, job.of(now_ns)
    for one in wanted:
        shares |= one.shares
        links += one.links
        more = max(saved_without(job, shares, links), gone)
        predicted = shorter(now * (1 - gone), (more - gone) / max(1 - gone, 1e-9), one.known)
        yield Outlier(one.what, next(iter(late_rows(job, one.why)), None), predicted, one is wanted[0])
        gone = more


_HOSTS = 4  # that one sentence names
_RANKS = 64  # that a row lists


def outlier_findings(job: Job) -> list[Finding]:
    """Those whose mending brings enough, most first."""
    return [
        _finding(job, one, one.predicted)
        for one in job.of(outliers)
        if one.predicted and worth_telling(job, one.predicted, _is_uniform(one))
    ]


def outlier_rows(job: Job) -> list[OutlierRow]:
    """Those that are told of many ranks, whether mending them brings enough or not: the slow ones, most gain first, and
    ranks that compiled otherwise."""
    if not is_many(job):
        return []
    slow = sorted((_row(job, one) for one in job.of(outliers)), key=lambda row: -(row.gain_us or 0.0))
    return [*slow, *(_compiled(job, one) for one in job.of(compiled_otherwise))]


def _row(job: Job, one: Outlier) -> OutlierRow:
    what, predicted, steps = one.what, one.predicted, compared_steps(job)
    ranks = sorted(job.numbers[place] for place in what.places)
    return OutlierRow(
        kind="link" if isinstance(what, SlowLink) else "host" if what.host else "rank",
        name=_name(job, what),
        ranks=ranks[:_RANKS],
        count=len(ranks),
        words=outlier_words(job, one),
        longer_us=(what.excess_ns if isinstance(what, SlowLink) else what.ns) / 1000 / steps,
        gain_us=predicted.step_us - predicted.after_us if predicted else None,
    )


def _name(job: Job, what: Slow | SlowLink) -> str:
    if isinstance(what, SlowLink):
        return _joined(what.hosts) if 0 < len(what.hosts) <= _HOSTS else f"ranks {_ranks(job, what)}"
    return what.host or f"rank {job.numbers[what.places[0]]}"


def _compiled(job: Job, one: CompiledOtherwise) -> OutlierRow:
    ranks = [job.numbers[place] for place in one.places]
    whole = hosts_of(job, one.places)
    name = (
        _joined(whole) if 0 < len(whole) <= _HOSTS else f"rank{'s' if len(ranks) > 1 else ''} {listed(ranks)}"
    )
    return OutlierRow(
        kind="compiled",
        name=name,
        ranks=ranks[:_RANKS],
        count=len(ranks),
        words=f"{name[:1].upper()}{name[1:]} compiled otherwise: {one.words}",
        longer_us=None,
        gain_us=None,
    )


def _is_uniform(one: Outlier) -> bool:
    """A single rank that is slower at everything may be so by chance; several of a host are not."""
    alone = isinstance(one.what, Slow) and one.what.host is None
    return alone and not (one.why and telling(one.why))


def _finding(job: Job, one: Outlier, predicted: Predicted) -> Finding:
    what, steps = one.what, compared_steps(job)
    main = main_cause(one.why) if one.why else None
    where = [what.host or f"rank {job.numbers[what.places[0]]}"] if isinstance(what, Slow) else what.hosts
    return Finding(
        rule=_rule(what),
        severity=severity_of(predicted.gain_percent),
        title=f"{outlier_words(job, one)}; {_instead(one, predicted)}",
        evidence=gain_of(predicted) | _numbers(job, what),
        saves_us=(predicted.step_us - predicted.after_us) * steps,
        panel="ranks",
        row=f"ranks:{job.numbers[what.places[0]]}" if isinstance(what, Slow) else None,
        next_step=_advice(what) or (advice(main) if main else "See its timeline at the beginning of a step"),
        predicted=predicted,
        where=[*(where or [f"ranks {_ranks(job, what)}"]), *([main.where] if main and main.where else [])],
    )


def _rule(what: Slow | SlowLink) -> str:
    if isinstance(what, SlowLink):
        return "slow_link"
    return "slow_host" if what.host else "late_rank"


def _numbers(job: Job, what: Slow | SlowLink) -> dict[str, float | int]:
    ranks = {"ranks": len(what.places)}
    if isinstance(what, SlowLink):
        return ranks | {"transfer_us": us(what.ns), "usual_transfer_us": us(what.usual_ns)}
    longer = what.ns / 1000 / compared_steps(job)
    return ranks | {"longer_us_per_step": longer, "waited_us_per_step": waited_us(job, what.places)}


def _ranks(job: Job, what: Slow | SlowLink) -> str:
    return listed(sorted(job.numbers[place] for place in what.places))


def outlier_words(job: Job, one: Outlier) -> str:
    """ "Rank 37 is slow: before collectives it takes 4.53 ms a step longer than its peers: it runs Python …" """
    what = one.what
    if isinstance(what, SlowLink):
        return f"{_whose(job, what)} {_speeds(what)}"
    longer = duration(what.ns / 1000 / compared_steps(job))
    rank, does = job.numbers[what.places[0]], _does(job, what, one.why)
    if what.host is None:
        return f"Rank {rank} is late by {longer} a step, and the others wait for it{does and f': it {does}'}"
    count = f"with {plural(len(what.places), 'rank')} ({_ranks(job, what)})"
    why = f": rank {rank} {does}" if does else ""
    return f"Host {what.host} is late by {longer} a step, {count}, and the others wait for it{why}"


def _does(job: Job, what: Slow, why: LateRank | None) -> str:
    """What the slowest of its ranks does beyond its peers; "" where nothing tells."""
    if why is None:
        return ""
    place = what.places[0]
    compiles = main_cause(why).cause in COMPILING
    compiled = compiled_in(job, place, job.of(why_slow, place)) if compiles else None
    said = compiled_words(compiled, job.numbers[place]) if compiled else ""
    return f"{all_does(why, compared_steps(job))}{said}"


def _whose(job: Job, what: SlowLink) -> str:
    operation = what.kind.operation.replace("_", " ").capitalize()
    name = what.kind.group.name if what.kind.group else ""
    groups = f"group {name}" if what.groups == 1 and name else plural(what.groups, "group")
    between = f" between {_joined(what.hosts)}" if 0 < len(what.hosts) <= _HOSTS else ""
    return f"{operation} of {groups}{between} (ranks {_ranks(job, what)})"


def _speeds(what: SlowLink) -> str:
    """ "moves 2.28 GB/s, 9.07 GB/s elsewhere" """
    if what.kind.message_bytes <= 0:
        return f"takes {duration(us(what.ns))}, {duration(us(what.usual_ns))} elsewhere"
    mine, usual = (significant(what.kind.message_bytes / max(ns, 1)) for ns in (what.ns, what.usual_ns))
    return f"moves {mine} GB/s, {usual} GB/s elsewhere"


def _instead(one: Outlier, predicted: Predicted) -> str:
    mended = "as fast as elsewhere" if isinstance(one.what, SlowLink) else "as early as its peers"
    hidden = "" if one.first else ", once what hides it is mended"
    return f"{mended}, a step takes {instead(predicted)}{hidden}"


def _advice(what: Slow | SlowLink) -> str:
    """Empty where what the rank does tells more."""
    if isinstance(what, SlowLink):
        joins = _joined(what.hosts) if 0 < len(what.hosts) <= _HOSTS else "these ranks"
        return (
            f"Look at what joins {joins}: NCCL_DEBUG=INFO tells over which links it sends, nccl-tests how fast they "
            "are, ibstat and nvidia-smi nvlink --status (AMD: amd-smi xgmi) which are down or slower"
        )
    if what.host is None:
        return ""
    return (
        f"Look at {what.host}: whether its GPUs are throttled (nvidia-smi -q -d PERFORMANCE,CLOCK; AMD: rocm-smi), "
        "what else runs on it, whether its disks are slower; leave it out of the job to see what that brings"
    )


def _joined(hosts: list[str]) -> str:
    return " and ".join((", ".join(hosts[:-1]), hosts[-1])) if len(hosts) > 1 else hosts[0]
