"""What was the host busy with, in words that a user can act on?

The innermost slice is climbed to the first that tells: a call into the runtime is what it is for, an operator is
itself, Python inside of them is theirs. Other Python is the user's innermost function around it; a function of a
library that the user's calls directly is named too. With nothing recorded, nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import numpy as np

from tb_torchcompile_plugin.profile.columns import Mask, alike, distinct, mask_of, ordinals, place_mask
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.launch_sequence import host_pieces, loop_steps
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.nest import ways_up
from tb_torchcompile_plugin.torch_names.collectives import is_communication
from tb_torchcompile_plugin.torch_names.python_frames import frame_of, is_frameworks, is_programs, runs_graph
from tb_torchcompile_plugin.torch_names.slices import (
    LABEL,
    LOOKUPS,
    OPERATOR,
    PYTHON_FUNCTION,
    RUNTIME_CATS,
    WRAPPERS,
    CallKind,
    autotuning,
    call_kind,
    compiling,
    is_collection,
    is_data_loading,
    is_graph,
    is_optimizer,
    is_region,
    is_step,
)

CulpritCause = Literal[
    "nothing",
    "python",
    "library",
    "compile",
    "autotuning",
    "garbage",
    "data_loading",
    "communication",
    "guards",
    "wrappers",
    "graph",
    "optimizer",
    "operator",
    "label",
    CallKind,
]
CAUSES: tuple[CulpritCause, ...] = get_args(CulpritCause)
_UNNAMED = -1
_NOTHING, _PYTHON, _LIBRARY = range(3)
_COMPILE, _AUTOTUNING = CAUSES.index("compile"), CAUSES.index("autotuning")
# These tell what everything inside of them is part of; tuning is not told as the compilation that it is a part of.
_OUTER = [_COMPILE, _AUTOTUNING, *(CAUSES.index(cause) for cause in ("garbage", "data_loading"))]


class Culprit(NamedTuple):
    """cause: what kind of thing. name: of the operator, call, function or label; "" where nothing tells. file, line: of
    the user's function around it, "" and 0 where none is known."""

    cause: CulpritCause
    name: str
    file: str
    line: int


class Culprits(NamedTuple):
    """`code`: for each slice the place of its culprit in `culprits`. `call`: the culprit's own slice, -1 for none."""

    code: Int64s
    call: Int64s
    culprits: list[Culprit]


def culprits(profile: Profile) -> Culprits:
    """The culprit of each piece of `host_pieces`."""
    return culprits_of(profile, profile.of(host_pieces).row)


def culprits_of(profile: Profile, slices: Int64s) -> Culprits:
    """The culprit of each of these slices; row -1 is nothing recorded."""
    rows, place = np.unique(slices, return_inverse=True)
    *what, call = climbed(profile, rows)
    keys, code = distinct(*what)
    names = profile.trace.names
    blamed = [
        Culprit(CAUSES[cause], names[name] if name >= 0 else "", *place_of(profile, user))
        for cause, name, user in keys.T.tolist()
    ]
    return Culprits(code[place], call[place], blamed)


def _step_ns(profile: Profile) -> int:
    """How long the longest step is, the whole span without steps."""
    moments = profile.of(loop_steps).moments
    return int(np.diff(moments).max()) if len(moments) > 1 else np.iinfo(np.int64).max


class Climbed(NamedTuple):
    """By slice: place of the cause in CAUSES, code of the name, of the user's function, and the slice that the cause is
    read off; -1 for none."""

    cause: Int64s
    name: Int64s
    user: Int64s
    call: Int64s


def climbed(profile: Profile, rows: Int64s) -> Climbed:
    """What each slice is part of; row -1 is nothing recorded.

    A function that lasts longer than a step runs the loop: behind a framework's, it is not whom a line is shown of.
    """
    trace, longest = profile.trace, profile.of(_step_ns)
    causes, frameworks = profile.of(_causes), profile.of(_frameworks)
    outer = place_mask(np.array(_OUTER), len(CAUSES))
    cause, name, user, entry, framework, call = np.zeros(len(rows), np.int64), *np.full((5, len(rows)), -1)
    for waiting, at in ways_up(trace.parent, rows):
        here, called, loops = causes(at), trace.name[at], trace.dur[at] > longest
        undecided = cause[waiting] == _NOTHING
        library = undecided & (here == _LIBRARY) & ~loops
        entry[waiting[library]], call[waiting[library]] = called[library], at[library]
        decides = (undecided & (here != _NOTHING) & (here != _LIBRARY)) | outer[here]
        decides &= (here != _COMPILE) | (cause[waiting] != _AUTOTUNING)
        cause[waiting[decides]], name[waiting[decides]] = here[decides], called[decides]
        its = decides & ((here != _PYTHON) | (call[waiting] < 0))
        call[waiting[its]] = at[its]
        nearest = frameworks[called] & ~loops & (framework[waiting] < 0)
        framework[waiting[nearest]] = called[nearest]
        mine = (here == _PYTHON) & (user[waiting] < 0) & ~(loops & (framework[waiting] >= 0))
        user[waiting[mine]] = called[mine]
    through = ((cause == _NOTHING) | (cause == _PYTHON)) & (entry >= 0)
    place = np.where(user >= 0, user, framework)
    return Climbed(np.where(through, _LIBRARY, cause), np.where(through, entry, name), place, call)


def place_of(profile: Profile, user: int) -> tuple[str, int]:
    """File and line of a function by the code of its name; "" and 0 for -1."""
    frame = frame_of(profile.trace.names[user]) if user >= 0 else None
    return (frame.file, frame.line) if frame else ("", 0)


def most_called_at(profile: Profile, rows: Int64s) -> tuple[str, int]:
    """File and line of the user's function that most of these slices are called in; "" and 0 where none is known."""
    user = climbed(profile, rows).user
    return place_of(profile, int(np.bincount(user[user >= 0]).argmax()) if (user >= 0).any() else -1)


def _frameworks(profile: Profile) -> Mask:
    return mask_of(profile.trace.names, is_frameworks)


def _causes(profile: Profile) -> Callable[[Int64s], Int64s]:
    """What tells the cause of slices on their own."""
    trace = profile.trace
    by_name = np.array([_named(name) for name in trace.names] or [_NOTHING])
    by_name[np.flatnonzero(compiling(trace.names))] = _COMPILE
    by_name[np.flatnonzero(autotuning(trace.names))] = _AUTOTUNING
    call = np.array([CAUSES.index(call_kind(name)) for name in trace.names] or [_NOTHING])
    python = np.array([_PYTHON if is_programs(name) else _LIBRARY for name in trace.names] or [_NOTHING])
    cats = {OPERATOR: 0, LABEL: 1, PYTHON_FUNCTION: 2} | dict.fromkeys(RUNTIME_CATS, 3)
    kind = np.array([cats.get(cat, 4) for cat in trace.cats] or [4])
    plain = np.array([CAUSES.index("operator"), CAUSES.index("label"), 0, 0, _NOTHING])

    def of(rows: Int64s) -> Int64s:
        names, cat = trace.name[rows], kind[trace.cat[rows]]
        named = by_name[names]
        unnamed = np.select([cat == 2, cat == 3], [python[names], call[names]], plain[cat])
        return np.where((named != _UNNAMED) & (cat != 3), named, unnamed)

    return of


def _named(name: str) -> int:
    """The cause that a name tells whatever kind of slice it is."""
    tests: tuple[tuple[CulpritCause, bool], ...] = (
        ("nothing", is_step(name)),
        ("garbage", is_collection(name)),
        ("data_loading", is_data_loading(name)),
        ("communication", is_communication(name)),
        ("guards", name in LOOKUPS),
        ("graph", is_graph(name)),
        ("wrappers", name in WRAPPERS or is_region(name)),
        ("optimizer", is_optimizer(name)),
    )
    return next((CAUSES.index(cause) for cause, holds in tests if holds), _UNNAMED)


# What it took to look up the lines of callers while stacks were recorded. For each Python call the profiler
# asks for the line that it comes from, and Python counts from the function's first line on. In the one long
# function that inductor writes for a graph, each call thus takes longer than the one before: up to half of
# the host's time in it, and of an unrecorded step nothing.


_FEWEST = 12  # pieces of a call: of fewer, growth and chance look alike


def line_lookups(profile: Profile) -> Int64s:
    """Of each piece of host time the part that went into it (ns)."""
    trace, pieces = profile.trace, profile.of(host_pieces)
    taken = np.zeros(len(pieces.row), np.int64)
    name = trace.name[pieces.row]
    mine = np.flatnonzero((pieces.row >= 0) & mask_of(trace.names, runs_graph)[name])
    for here in alike(mine, name):
        at, ns = ordinals(pieces.row[here]), pieces.ns[here]
        taken[here] = np.minimum(_growth(at, ns) * at, ns)
    return taken


def _growth(at: Int64s, ns: Int64s) -> float:
    """By how much a piece is longer than the one before it, from what is usual in the first and in the last third."""
    count = int(at.max()) + 1
    if count < _FEWEST:
        return 0.0
    early, late = at < count / 3, at >= count * 2 / 3
    longer = np.median(ns[late]) - np.median(ns[early])
    return max(0.0, float(longer / (np.median(at[late]) - np.median(at[early]))))
