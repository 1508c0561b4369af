"""Which value had a symbol in each call of a compiled graph? Read off the shapes that the profiler recorded.

torch writes no symbol's value. Inside each call the operators have shapes; where one size alone is dynamic, a dimension
that changes from call to call is that size or grows with it, and the smallest that does is the size.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import numpy as np

from tb_torchcompile_plugin.profile.columns import codes_of
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu.graph_runs import graph_runs
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.slices import CALL_CATS

_SIZES_END = 1 << 62  # torch's are of 64 bits
_MOST_OPERATORS = 24  # of one call: a size that no one of the first takes is looked for no further
Place = tuple[int, int, int]  # which operator of the call, which argument, which dimension


def call_sizes(profile: Profile, compile_id: str, known: frozenset[int]) -> Counter[int] | None:
    """How often each size came in the forward calls of one compilation whose only dynamic size this is; None where the
    shapes do not tell. known: sizes that are known to have come."""
    runs = profile.of(graph_runs)
    mine = (runs.compile_id == profile.of(Ownership).code(compile_id)) & ~runs.backward
    calls = [_dimensions(profile.trace, row) for row in runs.row[mine].tolist()]
    if not calls or not all(calls):
        return None
    common = set.intersection(*(set(call) for call in calls))
    columns = {place: [call[place] for call in calls] for place in common}
    moving = {place: values for place, values in columns.items() if len(set(values)) > 1}
    still = {place: values for place, values in columns.items() if values[0] in known}
    candidates = moving or still
    if not candidates:
        return None
    best = min(candidates.values(), key=lambda values: (-len(known & set(values)), sum(values)))
    return Counter(best)


def _dimensions(trace: Trace, call: int) -> dict[Place, int]:
    """Every dimension of every tensor that the first operators of a call take."""
    rows = _inside(trace, call)
    codes = codes_of(trace, "input_dims", rows)
    texts = trace.texts["input_dims"]
    shaped = (code for code in codes.tolist() if code >= 0 and texts[code].strip("[], "))
    return {
        (number, *place): size
        for number, code in zip(range(_MOST_OPERATORS), shaped)
        for place, size in _sizes(texts[code])
    }


def _inside(trace: Trace, call: int) -> Int64s:
    """The calls of operators inside of a slice, in order of time."""
    low, high = call + 1, int(np.searchsorted(_track_ts(trace, call), trace.ts[call] + trace.dur[call]))
    first = int(trace.track_bounds[trace.track[call]])
    rows = np.arange(low, first + high)
    cats = [code for code, name in enumerate(trace.cats) if name in CALL_CATS]
    return rows[np.isin(trace.cat[rows], cats)]


def _track_ts(trace: Trace, call: int) -> Int64s:
    track = int(trace.track[call])
    return trace.ts[int(trace.track_bounds[track]) : int(trace.track_bounds[track + 1])]


def _sizes(dims: str) -> Iterator[tuple[tuple[int, int], int]]:
    try:
        shapes = json.loads(dims)
    except (ValueError, RecursionError):
        return
    for argument, shape in enumerate(shapes if isinstance(shapes, list) else ()):
        if isinstance(shape, list) and all(isinstance(size, int) for size in shape):
            known = ((dimension, size) for dimension, size in enumerate(shape) if 1 < size < _SIZES_END)
            yield from (((argument, dimension), size) for dimension, size in known)
