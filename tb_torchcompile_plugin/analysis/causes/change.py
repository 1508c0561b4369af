"""What does a fix change in the model of a step? Each change takes a model and returns the changed one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
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
    return lambda model: model._replace(
        host=_with_values(model.host, indices, np.maximum(model.host[indices] - lost, 0))
    )


def without_waiting(points: Bools) -> Change:
    """Let these calls return at once."""
    return lambda model: model._replace(
        waits=model.waits & ~points[:, None],
        target=np.where(points, -1, model.target),
        own=np.where(points, np.minimum(model.own, CALL_NS), model.own),
    )


def waiting_for(points: Bools, streams: Int64s) -> Change:
    """Let these calls return only when the work queued on these streams is done, too."""
    return lambda model: model._replace(
        waits=_with_values(model.waits, np.ix_(points, streams), True),
        returns=np.where(points, CALL_NS, model.returns),
    )


def with_call_time(points: Bools, ns: Int64s | int) -> Change:
    """Let these calls take this long."""
    return lambda model: model._replace(own=np.where(points, ns, model.own))


def with_call_time_at_most(points: Bools, ns: int) -> Change:
    """Let these calls take at most this long."""
    return lambda model: model._replace(own=np.where(points, np.minimum(model.own, ns), model.own))


def with_call_share(points: Bools, share: float) -> Change:
    """Let these calls take this share of their time."""
    return lambda model: model._replace(own=np.where(points, (model.own * share).astype(np.int64), model.own))


def with_durations(work: Int64s, dur: Int64s | int) -> Change:
    """Let this work of the queue take this long."""
    return lambda model: model._replace(dur=_with_values(model.dur, work, dur))


def fused(work: Int64s, dur: Int64s | int) -> Change:
    """Let this work take this long; where that is less than before, it becomes part of the work before it."""

    def change(model: Model) -> Model:
        merged = work[dur < model.dur[work]]
        return model._replace(
            dur=_with_values(model.dur, work, dur),
            gap=_with_values(model.gap, merged, np.minimum(model.gap[merged], 0)),
            latency=_with_values(model.latency, merged, 0),
        )

    return change


def _with_values(column: Column, index: Any, values: Int64s | int) -> Column:
    """Return a copy of a column with these values at this index."""
    changed: Column = column.copy()
    changed[index] = values
    return changed


def in_sequence(*changes: Change) -> Change:
    """Make one change after the other."""
    return lambda model: reduce(lambda changed, change: change(changed), changes, model)


def apply_all(model: Model, changes: Sequence[Change]) -> Model:
    """Return the model with all of these changes; time that two of them take out is taken out once.

    Each is made by itself and compared with the model as recorded. So their order does not matter, and a change that is
    picked twice, or is inside another one, adds nothing.
    """
    columns: dict[str, Any] = model._asdict()
    for other in [change(model) for change in changes]:
        for name, column in other._asdict().items():
            recorded, least = getattr(model, name), columns[name]
            if column is recorded:  # as most columns are of most changes
                continue
            # The smallest changed value where any change touches it, though that may exceed the recorded one.
            differs = column != recorded
            first = differs & (least == recorded)
            columns[name] = np.where(differs, np.where(first, column, np.minimum(least, column)), least)
    return Model(**columns)
