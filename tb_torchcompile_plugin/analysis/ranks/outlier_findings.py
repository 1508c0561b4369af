"""Findings about many ranks: a rank, a host or a link between hosts that is far slower than the others."""

from __future__ import annotations

from tb_torchcompile_plugin.analysis.findings.finding import Finding, Predicted, severity_of
from tb_torchcompile_plugin.analysis.ranks.compiled_otherwise import CompiledOtherwise, compiled_otherwise
from tb_torchcompile_plugin.analysis.ranks.job_predictions import gain_of, waited_us, worth_telling
from tb_torchcompile_plugin.analysis.ranks.job_rows import LateRank, OutlierRow
from tb_torchcompile_plugin.analysis.ranks.late_compile import COMPILING, compiled_in, compiled_words
from tb_torchcompile_plugin.analysis.ranks.late_words import advice, all_does, main_cause, telling
from tb_torchcompile_plugin.analysis.ranks.outliers import Outlier, is_many, outliers
from tb_torchcompile_plugin.analysis.what_if.words import instead
from tb_torchcompile_plugin.analysis.words import duration, listed, plural, significant
from tb_torchcompile_plugin.job.chain import Slow, SlowLink, hosts_of, why_slow
from tb_torchcompile_plugin.job.job import Job
from tb_torchcompile_plugin.job.late import compared_steps
from tb_torchcompile_plugin.profile.units import us

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
