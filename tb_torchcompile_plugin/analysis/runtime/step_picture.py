"""Show where a step of the model goes: the host's time by cause, and how long each GPU works. Parts sum to the step."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.profile.columns import covered_ns, union
from tb_torchcompile_plugin.profile.model.attribution import HostCauseKind, culprits
from tb_torchcompile_plugin.profile.model.launch_sequence import (
    gpu_queue,
    host_segments,
    is_truncated,
    launch_sequence,
)
from tb_torchcompile_plugin.profile.model.model import Model, Replayed, clock, gpu_windows, replay
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepSource, StepWindows
from tb_torchcompile_plugin.torch_names.slices import call_kind

# Culprits that have parts of their own, and their least share of the host's time.
_MAX_NAMED, _MIN_NAMED_SHARE = 6, 0.04

# As `profile/model/attribution.py` finds it. waiting: until a GPU is done; gpu_clock: by how much the step is longer on
# the clock of a GPU.
HostCause = Literal[HostCauseKind, "waiting", "gpu_clock"]


class HostPart(msgspec.Struct, frozen=True):
    """Host time of one cause in a step."""

    cause: HostCause
    name: str  # this and the next two: of a culprit that has a part of its own, else "" and 0
    file: str
    line: int
    time_us: float


class GpuPart(msgspec.Struct, frozen=True):
    """One GPU in a step."""

    device: int
    busy_us: float
    idle_us: float


class Picture(msgspec.Struct, frozen=True):
    """A step: the parts of the host sum to it, and so do busy and idle of each GPU."""

    step_us: float
    host: list[HostPart]
    gpus: list[GpuPart]


Key = tuple[HostCause, str, str, int]  # cause, name, file, line
_NOTHING: Key = ("nothing", "", "", 0)
_WAITING: Key = ("waiting", "", "", 0)
_GPU_CLOCK: Key = ("gpu_clock", "", "", 0)


def step_picture(
    profile: Profile, changed: Model, scale: float = 1.0, like: Sequence[HostPart] = ()
) -> Picture:
    """Return the step of a changed model.

    scale: of replayed times to step times. like: the parts before the change, whose names and order are kept.
    """
    lane, queue, times = profile.of(launch_sequence), profile.of(gpu_queue), replay(changed)
    step, steps = clock(lane, queue, times).step, int(lane.steady.sum())
    spent = _spent(profile, changed, times)
    order: list[Key] = [(part.cause, part.name, part.file, part.line) for part in like]
    if like:
        named = [key for key in order if key[1]]
    else:
        least = _MIN_NAMED_SHARE * sum(spent.values())
        largest = sorted((key for key in spent if key[1] and spent[key] > least), key=lambda key: -spent[key])
        named = largest[:_MAX_NAMED]
    host = _by_cause(spent, named)
    keys = sorted(host, key=lambda key: (order.index(key) if key in order else len(order), -host[key]))
    # ns: less is what sums of floats are off by
    if (longer := step * steps - sum(host.values())) > 0.01:
        keys.append(_GPU_CLOCK)
        host[_GPU_CLOCK] = longer
    parts = [HostPart(*key, time_us=scale * host[key] / steps / 1000) for key in keys]
    gpus = []
    for device, on_gpu in gpu_windows(lane, queue, times).items():
        on_device = queue.device == device
        work = union(times.work_begin[on_device], times.work_end[on_device])
        busy = int(covered_ns(work, *on_gpu.windows).sum()) / len(on_gpu.rows)
        # The work takes as long in a step of any length; no step is shorter.
        busy = min(busy, scale * step)
        gpus.append(GpuPart(device, busy / 1000, (scale * step - busy) / 1000))
    return Picture(scale * step / 1000, parts, gpus)


def _spent(profile: Profile, changed: Model, times: Replayed) -> dict[Key, float]:
    """Return host time (ns) of the steady steps by culprit.

    The way to a point counts in the shares that are left of its segments.
    """
    pieces, attribution = profile.of(host_segments), profile.of(culprits)
    lane, trace = profile.of(launch_sequence), profile.trace
    inside = slice(int(lane.marks[0]), int(lane.marks[-1]) + 1)
    # After a change the last step may end before calls of another thread that were in it.
    begin = np.minimum(times.begin[inside], times.begin[lane.marks[-1]])
    end = np.minimum(times.end[inside], begin[-1])
    reach = np.concatenate((begin[:1], np.maximum.accumulate(end)[:-1]))
    # Of each point the time on the way to it, and of its call; without what overlaps, they sum to the steps.
    before, call, waiting = np.zeros((3, len(lane)), np.int64)
    before[inside] = np.maximum(begin - reach, 0)
    call[inside] = np.maximum(end - np.maximum(begin, reach), 0)
    beyond = np.maximum((times.end - times.begin - changed.own)[inside], 0)
    waiting[inside] = np.minimum(call[inside], beyond)  # part of the call, until a GPU was done
    # The way to a mark belongs to the step that ends there.
    step = np.searchsorted(lane.marks, np.arange(len(lane)), side="left") - 1
    is_unsteady = ~np.append(lane.steady, False)[np.minimum(step, lane.steps)]
    before[is_unsteady] = call[is_unsteady] = waiting[is_unsteady] = 0
    total = np.bincount(pieces.point, changed.host, len(lane))
    share = np.divide(before, total, out=np.zeros(len(lane)), where=total > 0)
    weights = changed.host * share[pieces.point]
    by_culprit = np.bincount(attribution.code, weights, len(attribution.culprits))
    spent: dict[Key, float] = defaultdict(float)
    spent[_NOTHING] = float(before[total <= 0].sum())
    spent[_WAITING] = float(waiting.sum())
    for culprit, ns in zip(attribution.culprits, by_culprit.tolist()):
        spent[culprit] += ns
    called = lane.row >= 0
    own = np.bincount(trace.name[lane.row[called]], (call - waiting)[called])
    for name in np.flatnonzero(own).tolist():
        spent[call_kind(trace.names[name]), "", "", 0] += float(own[name])
    return spent


def _by_cause(spent: dict[Key, float], named: Sequence[Key]) -> dict[Key, float]:
    """Return the times by cause, except those of named culprits, in whole ns with the same sum."""
    merged: dict[Key, float] = defaultdict(float)
    for key, ns in spent.items():
        merged[key if key in named else (key[0], "", "", 0)] += ns
    edges = np.round(np.cumsum([0.0, *merged.values()]))
    return {key: ns for key, ns in zip(merged, np.diff(edges).tolist()) if ns > 0}


class TimeUnit(NamedTuple):
    """What times are of, in words."""

    one: str  # "a step"
    each: str  # after a number


PER_STEP, PER_SPAN = TimeUnit("a step", "per step"), TimeUnit("this span", "in this span")


def how_steps_were_found(profile: Profile) -> str:
    """Return "inferred from the optimizer's calls"; "" where the profiler marked the steps."""
    steps = profile.of(StepWindows)
    words: dict[StepSource, str] = {
        "profiler": "",
        "server": "marked by the server",
        "optimizer": "inferred from the optimizer's calls",
        "compiled_region": f"inferred from calls of compiled region {steps.region}",
        "span": "no steps were marked",
    }
    return words[steps.source]


def modeled_steps(profile: Profile) -> str:
    """Return "the first 2 of 39 steps", if the model has too many calls to hold all steps; "" otherwise."""
    if not profile.of(is_truncated):
        return ""
    steps, held = len(profile.of(StepWindows)), profile.of(launch_sequence).steps
    if steps < 1:
        return f"its first {profile.most_calls:,} calls"
    return f"the first {f'{held:,} ' if held > 1 else ''}of {steps:,} steps"


def time_base(profile: Profile) -> str:
    """Return what times of the model are of: "a step", "the span", or "the first of 39 steps"."""
    part = profile.of(modeled_steps)
    if profile.of(time_unit) is PER_SPAN:
        return f"the span, {part}" if part else "the span"
    return f"a step of {part}" if part and profile.of(launch_sequence).steps > 1 else part or "a step"


def time_unit(profile: Profile) -> TimeUnit:
    """Return what predictions are of: a step, or the span where no steps were found."""
    return PER_STEP if len(profile.of(StepWindows)) else PER_SPAN
