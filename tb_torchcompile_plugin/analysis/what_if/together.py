"""Several fixes at once: what any of them changes is changed, and what two of them take out goes once.

Each fix is made by itself and compared with the model as recorded: so their order is of no importance, and one that is
picked twice, or lies inside of another one, brings nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.analysis.what_if.change import Change
from tb_torchcompile_plugin.analysis.what_if.fix import Fix
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.culprits import Culprit, culprits
from tb_torchcompile_plugin.profile.model.host_pieces import host_pieces
from tb_torchcompile_plugin.profile.model.model import Model, model
from tb_torchcompile_plugin.profile.profile import Profile

Floats = npt.NDArray[np.float64]
Column = npt.NDArray[Any]


class Changed(NamedTuple):
    """The model with several changes made; left: what there still is (ns) of each host piece."""

    model: Model
    left: Floats


def together(profile: Profile, found: Sequence[tuple[Fix, Change]]) -> Changed:
    """These fixes, each with the change that stands for it; the recorded model without any."""
    made, pieces = profile.of(model), profile.of(host_pieces)
    changed = [change(made) for _, change in found]
    gone = np.zeros(len(pieces.point))
    for (fix, _), one in zip(found, changed):
        gone = np.maximum(gone, _gone(profile, fix, np.maximum(made.before - one.before, 0)))
    taken = np.bincount(pieces.point, gone, len(made.before)).round().astype(np.int64)
    before = np.where(made.before > 0, np.maximum(made.before - taken, 0), made.before)
    columns: dict[str, Any] = {
        name: _least_changed(getattr(made, name), [getattr(one, name) for one in changed])
        for name in made._fields
        if name not in ("before", "begin")
    }
    columns["before"] = np.minimum.reduce([before, *(one.before for one in changed)])
    return Changed(made._replace(**columns), pieces.ns - gone)


def _least_changed(recorded: Column, changed: list[Column]) -> Column:
    """Where any of them changes a value, the least that it becomes, though that may be more than it was."""
    least = recorded
    for one in changed:
        other = one != recorded
        first = other & (least == recorded)
        least = np.where(other, np.where(first, one, np.minimum(least, one)), least)
    return least


def _gone(profile: Profile, fix: Fix, taken: Int64s) -> Floats:
    """How much of each piece a fix takes out that takes so much on the way to each point: first of what it is about."""
    pieces = profile.of(host_pieces)
    mine, ns = _is_about(profile, fix), pieces.ns.astype(np.float64)
    own, other = (np.bincount(pieces.point, np.where(one, ns, 0.0), len(taken)) for one in (mine, ~mine))
    from_own = _share(np.minimum(taken, own), own)
    from_other = _share(np.clip(taken - own, 0, other), other)
    return ns * np.where(mine, from_own[pieces.point], from_other[pieces.point])


def _share(part: Column, whole: Column) -> Floats:
    return np.divide(part, whole, out=np.zeros(len(whole)), where=whole > 0)


def _is_about(profile: Profile, fix: Fix) -> npt.NDArray[np.bool_]:
    """Whether each host piece is of what the fix is about."""
    told = profile.of(culprits)
    return np.array([_same(fix, one) for one in told.culprits] or [False], bool)[told.code]


def _same(fix: Fix, one: Culprit) -> bool:
    if fix.kind == "python":
        return one.cause in ("python", "library") and (one.file, one.line) == fix.subject[2:]
    return one.cause == fix.kind and (fix.kind == fix.id or one == fix.subject)
