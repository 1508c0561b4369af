"""Joins by small integer ids: dense look-up where the ids allow it, sorted search where they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_DENSE_LIMIT = 1 << 22


def first_row_of(ids: Array, rows: Array, wanted: Array) -> Array:
    """For each id in `wanted` the first of `rows` whose id (in `ids`, same order) equals it; -1 for none or id < 0."""
    known = ids >= 0
    ids, rows = ids[known], rows[known]
    if not len(ids):
        return np.full(len(wanted), -1, np.int64)
    if int(ids.max()) <= max(_DENSE_LIMIT, 4 * len(ids)):
        return _dense(ids, rows, wanted)
    unique, first = np.unique(ids, return_index=True)
    at = np.minimum(np.searchsorted(unique, wanted), len(unique) - 1)
    matches: Array = np.where(unique[at] == wanted, rows[first[at]], -1)
    return matches


def _dense(ids: Array, rows: Array, wanted: Array) -> Array:
    table = np.full(int(ids.max()) + 2, -1, np.int64)
    table[ids[::-1]] = rows[::-1]  # the last assignment wins: the first row
    inside = (wanted >= 0) & (wanted < len(table))
    matches: Array = table[np.where(inside, wanted, len(table) - 1)]
    return matches
