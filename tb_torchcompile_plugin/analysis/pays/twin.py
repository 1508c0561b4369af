"""The run beside this one that is the same program, one eager and one compiled: is it, and what is known of it?

Its name says which one is meant (see `eager_of`). That it is the same program is not taken on trust: another script,
another GPU, other work for the libraries, or two runs that both ran compiled code, and it does not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis.gpu_utilization.devices import gpus
from tb_torchcompile_plugin.analysis.kernels.bandwidth import launched_work
from tb_torchcompile_plugin.analysis.kernels.per_step import launched_in
from tb_torchcompile_plugin.analysis.pays.compile_cost import CompileCost, compile_cost
from tb_torchcompile_plugin.analysis.pays.steady import Steady, steady
from tb_torchcompile_plugin.profile.compiled.regions import compiled_calls
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.profile import Profile, RunBeside
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.torch_names.slices import is_graph

_EAGER = {"eager", "uncompiled", "nocompile", "baseline"}
_COMPILED = {"compiled", "compile", "inductor", "cold", "warm"}
_LEAST_ALIKE, _MOST_ALIKE = 0.5, 1.5  # of the eager run's operations: inductor writes small products itself


class RunFacts(NamedTuple):
    """What is known of one run for a comparison. run: its name. compiled: whether compiled code ran; tried: whether
    torch compiled any frame. program: its script, "" where nobody noted it. tflop: of the libraries' kernels a step,
    None where shapes do not tell."""

    run: str
    compiled: bool
    tried: bool
    steady: Steady
    cost: CompileCost | None
    program: str
    device: str
    tflop: float | None


def eager_of(run: str, runs: Iterable[str]) -> str | None:
    """The name of the eager run that a run is to be held against: the one that differs from it by words alone that say
    how it ran, as `bert/eager` does from `bert/compiled` and `eager` from `compiled`. None without one, and of several.
    """
    mine = _words(run)
    if _EAGER & set(mine):
        return None
    alike = [one for one in runs if _EAGER & set(_words(one)) and _plain(one) == _plain(run)]
    return alike[0] if len(alike) == 1 else None


def compiled_of(run: str, runs: Sequence[str]) -> str | None:
    """The other way round: the only run of which this one is the eager one; of several the one with cold caches."""
    if not _EAGER & set(_words(run)):
        return None
    alike = [one for one in runs if _plain(one) == _plain(run)]
    compiled = [one for one in alike if not _EAGER & set(_words(one))]
    cold = [one for one in compiled if "warm" not in _words(one)] or compiled
    return cold[0] if len(alike) == len(compiled) + 1 and len(cold) == 1 else None


def _plain(run: str) -> list[str]:
    return [word for word in _words(run) if word not in _EAGER | _COMPILED]


@lru_cache(maxsize=1 << 14)
def _words(run: str) -> tuple[str, ...]:
    return tuple(word for word in re.split(r"[-_. /]+", run.lower()) if word)


def run_facts(profile: Profile) -> RunFacts:
    """Of a span."""
    summary = profile.summary
    return RunFacts(
        run="",
        compiled=_ran_compiled(profile),
        tried=bool(summary and summary.compilations),
        steady=profile.of(steady),
        cost=profile.data.of(compile_cost) if profile.data else None,
        program=summary.environment.program if summary else "",
        device=", ".join(sorted({row.name for row in profile.of(gpus) if row.name})),
        tflop=_tflop(profile),
    )


def facts_beside(profile: Profile, beside: RunBeside) -> RunFacts:
    """Of the run beside it, whose trace is closed again. Raises UserError."""
    return beside.read().of(run_facts)._replace(run=beside.run)


def _ran_compiled(profile: Profile) -> bool:
    return bool(profile.of(compiled_calls)) or any(map(is_graph, profile.trace.names))


def _tflop(profile: Profile) -> float | None:
    """Of an average step."""
    known = 0.0
    for rows, work in zip(profile.of(kernel_launches), profile.of(launched_work), strict=True):
        known += float(np.nansum(work.flop[launched_in(profile, rows)]))
    return known / 1e12 / max(len(profile.of(StepWindows)), 1) or None


def is_compiled(mine: RunFacts, other: RunFacts) -> bool | None:
    """Whether this one of two runs is the compiled one: by what ran, else by what torch tried. None where they are the
    same in both."""
    if mine.compiled != other.compiled:
        return mine.compiled
    return mine.tried if not mine.compiled and mine.tried != other.tried else None


def why_not_alike(mine: RunFacts, other: RunFacts) -> str:
    """Why they cannot be held against each other, behind the name of the other run; "" where they can."""
    if (compiled := is_compiled(mine, other)) is None:
        return "ran compiled code, too" if other.compiled else "is eager, too"
    if mine.program and other.program and mine.program != other.program:
        return "is of another program"
    if mine.device != other.device:
        return "is of another GPU"
    before, after = (other.tflop, mine.tflop) if compiled else (mine.tflop, other.tflop)
    if before and after and not _LEAST_ALIKE <= after / before <= _MOST_ALIKE:
        return "does other work: its matrix products and convolutions are of other sizes"
    return ""
