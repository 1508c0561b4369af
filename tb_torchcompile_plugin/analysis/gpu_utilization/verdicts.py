"""What bounds a step: compute, copies, launches, input, communication or compilation?

The wall time of a step, seen from its busiest device, has six parts that sum to it; the largest one is the verdict.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from tb_torchcompile_plugin.profile.host.thread_activity import CAUSES
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.units import share_percent, us

Bound = Literal["compute", "copy", "communication", "input", "compile", "launch"]

ON_DEVICE: tuple[Bound, ...] = ("compute", "copy", "communication")
_NOTHING_LAUNCHED = np.zeros(len(ON_DEVICE), np.int64)
_COMMUNICATION, _INPUT, _COMPILE = (
    CAUSES.index(cause) for cause in ("communication_wait", "data_loading", "compile")
)


class Verdict(msgspec.Struct, frozen=True):
    """`bound`: the largest of the six parts, which sum to `wall_us`; `share_percent` is its share. Where what was
    launched keeps the device busy for longer than `wall_us`, the host is ahead of it and cannot be what bounds:
    then it is what most of that work is in place of launch, and `share_percent` is None.

    compute: the device computed. copy: it only copied or filled. communication: only that ran, or the host waited for
    it. input, compile: the device idled while the host loaded data, or compiled. launch: it idled for another reason.
    least_us: how long the busiest device was busy, or where the host is ahead, is with what was launched: with the same
    work the step could not be shorter.
    """

    bound: Bound
    share_percent: float | None
    device: int
    wall_us: float
    compute_us: float
    copy_us: float
    communication_us: float
    input_us: float
    compile_us: float
    launch_us: float
    least_us: float


def verdict(
    device: int,
    wall_ns: int,
    busy_ns: int,
    exposed_communication_ns: int,
    exposed_memory_ns: int,
    causes_ns: Int64s,
    launched: Int64s = _NOTHING_LAUNCHED,
) -> Verdict:
    """The verdict over one window, or over several whose numbers were summed.

    causes_ns: idle time by cause. launched: how long the work takes that was launched there, by ON_DEVICE.
    """
    idle = np.asarray(causes_ns)
    assert wall_ns == busy_ns + int(idle.sum())
    parts: dict[Bound, int] = {
        "compute": busy_ns - exposed_communication_ns - exposed_memory_ns,
        "copy": exposed_memory_ns,
        "communication": exposed_communication_ns + int(idle[_COMMUNICATION]),
        "input": int(idle[_INPUT]),
        "compile": int(idle[_COMPILE]),
    }
    parts["launch"] = wall_ns - sum(parts.values())
    bound = max(parts, key=lambda name: parts[name])
    launched_ns = int(launched.sum())
    is_ahead = bound == "launch" and launched_ns >= wall_ns
    if is_ahead:
        bound = ON_DEVICE[int(np.argmax(launched))]
    return Verdict(
        bound=bound,
        share_percent=None if is_ahead else share_percent(parts[bound], wall_ns),
        device=device,
        wall_us=us(wall_ns),
        compute_us=us(parts["compute"]),
        copy_us=us(parts["copy"]),
        communication_us=us(parts["communication"]),
        input_us=us(parts["input"]),
        compile_us=us(parts["compile"]),
        launch_us=us(parts["launch"]),
        least_us=us(launched_ns if launched_ns >= wall_ns else busy_ns),
    )


def bound_unrecorded(recorded: Verdict, share: float) -> Bound:
    """What bounds the same windows while nobody records, which then take this share of their time: what recording adds
    is idle time, as between launches."""
    if recorded.bound != "launch":
        return recorded.bound
    parts: dict[Bound, float] = {
        name: getattr(recorded, f"{name}_us") for name in (*ON_DEVICE, "input", "compile")
    }
    parts["launch"] = share * recorded.wall_us - sum(parts.values())
    return max(parts, key=lambda name: parts[name])
