"""What a fix changes of the model of a step: each change takes a model and gives the changed one."""

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
    """So much of each piece of host time is gone. Most lose nothing: what they lose is not kept, as there are many
    changes."""
    places = np.flatnonzero(ns)
    lost = ns[places]

    def change(model: Model) -> Model:
        host = model.host.copy()
        host[places] = np.maximum(host[places] - lost, 0)
        return model._replace(host=host)

    return change


def without_waiting(points: Bools) -> Change:
    """These calls come back at once."""

    def change(model: Model) -> Model:
        return model._replace(
            waits=model.waits & ~points[:, None],
            target=np.where(points, -1, model.target),
            own=np.where(points, np.minimum(model.own, CALL_NS), model.own),
        )

    return change


def without_calls(points: Bools) -> Change:
    """These calls take no time of the host."""

    def change(model: Model) -> Model:
        return model._replace(own=np.where(points, 0, model.own))

    return change


def no_longer(points: Bools, ns: int) -> Change:
    """These calls take at most so long."""

    def change(model: Model) -> Model:
        return model._replace(own=np.where(points, np.minimum(model.own, ns), model.own))

    return change


def waiting(points: Bools, streams: Int64s) -> Change:
    """These calls come back when what is queued on these streams is done, too."""

    def change(model: Model) -> Model:
        waits = model.waits.copy()
        waits[np.ix_(points, streams)] = True
        return model._replace(waits=waits, returns=np.where(points, CALL_NS, model.returns))

    return change


def taking(points: Bools, ns: Int64s) -> Change:
    """These calls take so long."""

    def change(model: Model) -> Model:
        return model._replace(own=np.where(points, ns, model.own))

    return change


def shortened(points: Bools, share: float) -> Change:
    """These calls take this share of their time."""

    def change(model: Model) -> Model:
        return model._replace(own=np.where(points, (model.own * share).astype(np.int64), model.own))

    return change


def at_once(points: Bools, first: Bools, replay_ns: int) -> Change:
    """These points are one launch each time: the first of them takes `replay_ns`, the others nothing."""

    def change(model: Model) -> Model:
        own = np.where(points, 0, model.own)
        return model._replace(own=np.where(first, replay_ns, own))

    return change


def with_durations(places: Int64s, dur: Int64s) -> Change:
    """This work of the queue takes so long."""

    def change(model: Model) -> Model:
        changed = model.dur.copy()
        changed[places] = dur
        return model._replace(dur=changed)

    return change


def fused(places: Int64s, dur: Int64s) -> Change:
    """This work takes so long, and where that is less than before it becomes part of what runs before it."""

    def change(model: Model) -> Model:
        changed, gap, latency = model.dur.copy(), model.gap.copy(), model.latency.copy()
        changed[places], merged = dur, places[dur < model.dur[places]]
        gap[merged] = np.minimum(gap[merged], 0)
        latency[merged] = 0
        return model._replace(dur=changed, gap=gap, latency=latency)

    return change


def both(*changes: Change) -> Change:
    """One after the other."""

    def change(model: Model) -> Model:
        for one in changes:
            model = one(model)
        return model

    return change


def together(made: Model, changes: Sequence[Change]) -> Model:
    """The model with all of these changes made. What two of them take out goes once.

    Each is made by itself and compared with the model as recorded: so their order is of no importance, and one that is
    picked twice, or lies inside of another one, brings nothing more.
    """
    changed = [change(made) for change in changes]
    columns: dict[str, Any] = {
        name: _least_changed(getattr(made, name), [getattr(one, name) for one in changed])
        for name in made._fields
        if name != "begin"
    }
    return made._replace(**columns)


def _least_changed(recorded: Column, changed: list[Column]) -> Column:
    """Where any of them changes a value, the least that it becomes, though that may be more than it was."""
    least = recorded
    for one in changed:
        if one is recorded:  # as most columns are of most changes
            continue
        other = one != recorded
        first = other & (least == recorded)
        least = np.where(other, np.where(first, one, np.minimum(least, one)), least)
    return least
