"""Several fixes at once: what any of them changes is changed, and what two of them take out goes once.

Each change is made by itself and compared with the model as recorded: so their order is of no importance, and one that
is picked twice, or lies inside of another one, brings nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_torchcompile_plugin.analysis.what_if.change import Change
from tb_torchcompile_plugin.profile.model.model import Model

Column = npt.NDArray[Any]


def together(made: Model, changes: Sequence[Change]) -> Model:
    """The model with all of these changes made."""
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
        other = one != recorded
        first = other & (least == recorded)
        least = np.where(other, np.where(first, one, np.minimum(least, one)), least)
    return least
