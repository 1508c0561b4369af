"""What does a fix change in the model of a step? Each change takes a model and returns the changed one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.model import CALL_NS, Model

Bools = npt.NDArray[np.bool_]
Change = Callable[[Model], Model]
Column = npt.NDArray[Any]


def without_host_time(ns: Int64s) -> Change:
    """Take this much off each host segment."""
    # Most segments lose nothing: keep only the others, as there are many changes.
    indices = np.flatnonzero(ns)
    lost = ns[indices]

    def change(model: Model) -> Model:
        host = model.host.copy()
        host[indices] = np.maximum(host[indices] - lost, 0)
        return model._replace(host=host)

    return change


def without_waiting(points: Bools) -> Change:
    """Let these calls return at once."""
    return lambda model: model._replace(
        waits=model.waits & ~points[:, None],
        target=np.where(points, -1, model.target),
        own=np.where(points, np.minimum(model.own, CALL_NS), model.own),
    )


def waiting_for(points: Bools, streams: Int64s) -> Change:
    """Let these calls return only when the work queued on these streams is done, too."""

    def change(model: Model) -> Model:
        waits = model.waits.copy()
        waits[np.ix_(points, streams)] = True
        return model._replace(waits=waits, returns=np.where(points, CALL_NS, model.returns))

    return change


def without_calls(points: Bools) -> Change:
    """Let these calls take no host time."""
    return with_call_time(points, 0)


def with_call_time(points: Bools, ns: Int64s | int) -> Change:
    """Let these calls take this long."""
    return lambda model: model._replace(own=np.where(points, ns, model.own))


def with_call_time_at_most(points: Bools, ns: int) -> Change:
    """Let these calls take at most this long."""
    return lambda model: model._replace(own=np.where(points, np.minimum(model.own, ns), model.own))


def with_call_share(points: Bools, share: float) -> Change:
    """Let these calls take this share of their time."""
    return lambda model: model._replace(own=np.where(points, (model.own * share).astype(np.int64), model.own))


def as_one_launch(points: Bools, first: Bools, launch_ns: int) -> Change:
    """Let the first of these points take `launch_ns` and the others nothing."""
    return with_call_time(points | first, np.where(first, launch_ns, 0))


def with_durations(work: Int64s, dur: Int64s) -> Change:
    """Let this work of the queue take this long."""

    def change(model: Model) -> Model:
        changed = model.dur.copy()
        changed[work] = dur
        return model._replace(dur=changed)

    return change


def without_work(work: Int64s) -> Change:
    """Let this work of the queue take no time."""
    return with_durations(work, np.zeros(len(work), np.int64))


def fused(work: Int64s, dur: Int64s) -> Change:
    """Let this work take this long; where that is less than before, it becomes part of the work before it."""

    def change(model: Model) -> Model:
        changed, gap, latency = model.dur.copy(), model.gap.copy(), model.latency.copy()
        changed[work], merged = dur, work[dur < model.dur[work]]
        gap[merged] = np.minimum(gap[merged], 0)
        latency[merged] = 0
        return model._replace(dur=changed, gap=gap, latency=latency)

    return change


def in_sequence(*changes: Change) -> Change:
    """Make one change after the other."""

    def change(model: Model) -> Model:
        for step in changes:
            model = step(model)
        return model

    return change


def apply_all(model: Model, changes: Sequence[Change]) -> Model:
    """Return the model with all of these changes; time that two of them take out is taken out once.

    Each is made by itself and compared with the model as recorded. So their order does not matter, and a change that is
    picked twice, or is inside another one, adds nothing.
    """
    changed = [change(model) for change in changes]
    columns: dict[str, Any] = {
        name: _least_changed(getattr(model, name), [getattr(other, name) for other in changed])
        for name in model._fields
        if name != "begin"
    }
    return model._replace(**columns)


def _least_changed(recorded: Column, changed: list[Column]) -> Column:
    """Return the smallest changed value where any change touches it, though that may exceed the recorded one."""
    least = recorded
    for column in changed:
        if column is recorded:  # as most columns are of most changes
            continue
        differs = column != recorded
        first = differs & (least == recorded)
        least = np.where(differs, np.where(first, column, np.minimum(least, column)), least)
    return least
