"""What was the host busy with, in words that a user can act on?

The answer is the innermost slice with a meaning: a call into the runtime is what it is for, an operator is itself,
and Python inside of them is theirs. Other Python is the user's innermost function around it; a function of a library
that the user's calls directly is named too. Where nothing was recorded, it is the line that the handler sampled there;
without one the cause is "nothing".
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import numpy as np

from tb_torchcompile_plugin.profile.columns import (
    Int64s,
    Intervals,
    Mask,
    distinct,
    groups_of_equal,
    host_slices,
    mask_at,
    mask_of,
    ordinals,
    union,
    within,
)
from tb_torchcompile_plugin.profile.model.launch_sequence import HostSegments, host_segments, launch_sequence
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.samples import lines_around, lines_around_slices, lines_of, samples
from tb_torchcompile_plugin.profile.steps import StepWindows
from tb_torchcompile_plugin.reader.trace.nest import ancestors_of
from tb_torchcompile_plugin.torch_names import collectives, python_frames, slices
from tb_torchcompile_plugin.torch_names.operators import is_backward

HostCauseKind = Literal[
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
    slices.CallKind,
    # Why the GPU of one rank of a job is behind those of others: no slice shows it.
    "slower_kernels",
    "more_work",
]
CAUSES: tuple[HostCauseKind, ...] = get_args(HostCauseKind)
_NOTHING, _PYTHON, _LIBRARY = range(3)
_COMPILE, _AUTOTUNING = CAUSES.index("compile"), CAUSES.index("autotuning")
# Everything inside of these is part of them; autotuning is not counted as the compilation that it is a part of.
_OUTER = [_COMPILE, _AUTOTUNING, *(CAUSES.index(cause) for cause in ("garbage", "data_loading"))]
# Causes that a name shows, whatever kind of slice it is; the first that is true counts.
_BY_NAME: tuple[tuple[HostCauseKind, Callable[[str], bool]], ...] = (
    ("nothing", slices.is_step),
    ("garbage", slices.is_garbage_collection),
    ("data_loading", slices.is_data_loading),
    ("communication", collectives.is_communication),
    ("guards", slices.LOOKUPS.__contains__),
    ("graph", slices.is_graph),
    ("wrappers", slices.WRAPPERS.__contains__),
    ("wrappers", slices.is_region),
    ("optimizer", slices.is_optimizer),
)
_FEWEST = 12  # pieces of a call: of fewer, growth and chance look alike; chosen by eye on the recordings


class Attribution(NamedTuple):
    """What the host was busy with."""

    cause: HostCauseKind
    name: str  # of the operator, call, function or label; "" where unknown
    file: str  # of the user's function around it, "" where unknown
    line: int  # of the same, 0 where unknown


class Attributions(NamedTuple):
    """The culprits of slices."""

    code: Int64s  # of each slice, index into `culprits`
    call: Int64s  # the culprit's own slice, -1 for none
    culprits: list[Attribution]


def culprits(profile: Profile) -> Attributions:
    """Return the culprit of each piece of `host_segments`."""
    return culprits_of(profile, profile.of(host_segments))


def culprits_of(profile: Profile, pieces: HostSegments) -> Attributions:
    """Return the culprit of each of these pieces; where nothing was recorded the sampled line is put in its place."""
    found, all_lines = attributions_of(profile, pieces.row), profile.of(samples).lines
    is_nothing = np.array([culprit.cause == "nothing" for culprit in found.culprits], bool)[found.code]
    line = np.full(len(pieces.row), -1)
    line[is_nothing] = _sampled_lines(profile, pieces.take(np.flatnonzero(is_nothing)))
    # Of an optimizer's step what is not the optimizer's is of the closure that it calls.
    is_optimizer = np.array([culprit.cause == "optimizer" for culprit in found.culprits], bool)[found.code]
    rows = np.flatnonzero(is_optimizer)
    line[rows] = lines_in_closures(profile, *_middles(profile, pieces.take(rows)))
    lines, index = np.unique(line[line >= 0], return_inverse=True)
    found.code[line >= 0], found.call[line >= 0] = len(found.culprits) + index, -1
    sampled = (
        Attribution(
            cause="library" if row.called else "python",
            name=f"{row.called or row.function} (sampled)".lstrip(),
            file=row.file,
            line=row.line,
        )
        for row in (all_lines[number] for number in lines)
    )
    return found._replace(culprits=[*found.culprits, *sampled])


def _sampled_lines(profile: Profile, pieces: HostSegments) -> Int64s:
    """Return the line of each piece, -1 where nothing was sampled.

    It is that of the thread of the piece's point; where that ran no Python, as autograd's, of the point before. A piece
    without samples has the line that those around it share.
    """
    line, tracks = np.full(len(pieces.row), -1), profile.of(launch_sequence).track
    for point in (pieces.point, pieces.point - 1):
        unnamed = np.flatnonzero(line < 0)
        for rows in groups_of_equal(unnamed, tracks[point]):
            times = Intervals(pieces.begin[rows], pieces.end[rows])
            line[rows], _ = lines_of(profile, int(tracks[point[rows[0]]]), times)
    unnamed = np.flatnonzero(line < 0)
    line[unnamed] = lines_around(profile, *_middles(profile, pieces.take(unnamed)))
    return line


def _closures(profile: Profile) -> Intervals:
    """Return the steps of optimizers in which a forward or backward runs: they call a closure."""
    trace = profile.trace
    steps = host_slices(trace, slices.is_optimizer_step, (slices.LABEL,))
    windows = union(trace.ts[steps], trace.ts[steps] + trace.dur[steps])
    computing = host_slices(trace, lambda name: slices.is_region(name) or is_backward(name))
    holding = np.unique(within(windows, trace.ts[computing]))
    holding = holding[holding >= 0]
    return Intervals(windows.starts[holding], windows.ends[holding])


def lines_in_closures(profile: Profile, tracks: Int64s, times: Int64s) -> Int64s:
    """Return the sampled line that runs at these times in a closure that an optimizer calls, -1 for none."""
    line, inside = np.full(len(times), -1), np.flatnonzero(within(profile.of(_closures), times) >= 0)
    around = lines_around(profile, tracks[inside], times[inside])
    names = (row.called for row in profile.of(samples).lines)
    is_programs = np.array([*(not python_frames.is_optimizer_function(name) for name in names), False], bool)
    line[inside] = np.where(is_programs[around], around, -1)
    return line


def _middles(profile: Profile, pieces: HostSegments) -> tuple[Int64s, Int64s]:
    tracks = profile.of(launch_sequence).track[pieces.point].astype(np.int64)
    return tracks, (pieces.begin + pieces.end) // 2


def attributions_of(profile: Profile, wanted: Int64s) -> Attributions:
    """Return the culprit of each of these slices; row -1 is nothing recorded."""
    rows, row = np.unique(wanted, return_inverse=True)
    *keys_of_rows, call = ancestor_causes(profile, rows)
    keys, code = distinct(*keys_of_rows)
    names = profile.trace.names
    blamed = [
        Attribution(CAUSES[cause], names[name] if name >= 0 else "", *location_of(profile, user))
        for cause, name, user in keys.T.tolist()
    ]
    return Attributions(code[row], call[row], blamed)


class AncestorCauses(NamedTuple):
    """What slices are part of, as columns; -1 for none."""

    cause: Int64s  # index into CAUSES
    name: Int64s  # code
    user: Int64s  # code of the name of the user's function; beyond those the number of a sampled line
    call: Int64s  # the slice that shows the cause


def ancestor_causes(profile: Profile, rows: Int64s) -> AncestorCauses:
    """Return what each slice is part of; row -1 is nothing recorded.

    A function that lasts longer than a step runs the loop: if a framework's function is inside it, its line is not
    shown. Without stacks the user's line is the one that was sampled around the slice's begin.
    """
    trace, moments = profile.trace, profile.of(StepWindows).moments
    longest = int(np.diff(moments).max()) if len(moments) > 1 else np.iinfo(np.int64).max
    of_names = profile.of(_of_names)
    is_outer = mask_at(np.array(_OUTER), len(CAUSES))
    cause, name, user, entry, framework, call = np.zeros(len(rows), np.int64), *np.full((5, len(rows)), -1)
    for waiting, ancestor in ancestors_of(trace.parent, rows):
        called, loops = trace.name[ancestor], trace.dur[ancestor] > longest
        found = of_names.causes[of_names.kind_of_cat[trace.cat[ancestor]], called]
        is_undecided = cause[waiting] == _NOTHING
        # What a library is known to do says more than what torch calls it by, as a module.
        is_known = of_names.is_library_work[called] | ~of_names.is_library_work[entry[waiting]]
        is_entry = is_undecided & (found == _LIBRARY) & ~loops & (is_known | (entry[waiting] < 0))
        entry[waiting[is_entry]], call[waiting[is_entry]] = called[is_entry], ancestor[is_entry]
        decides = (is_undecided & (found != _NOTHING) & (found != _LIBRARY)) | is_outer[found]
        decides &= (found != _COMPILE) | (cause[waiting] != _AUTOTUNING)
        cause[waiting[decides]], name[waiting[decides]] = found[decides], called[decides]
        is_call = decides & ((found != _PYTHON) | (call[waiting] < 0))
        call[waiting[is_call]] = ancestor[is_call]
        is_nearest = of_names.is_of_framework[called] & ~loops & (framework[waiting] < 0)
        framework[waiting[is_nearest]] = called[is_nearest]
        is_user = (found == _PYTHON) & (user[waiting] < 0) & ~(loops & (framework[waiting] >= 0))
        user[waiting[is_user]] = called[is_user]
    user = np.where(user >= 0, user, framework)
    unnamed = np.flatnonzero(user < 0)
    sampled = lines_around_slices(profile, rows[unnamed])
    user[unnamed] = np.where(sampled >= 0, len(trace.names) + sampled, -1)
    by_library = ((cause == _NOTHING) | (cause == _PYTHON)) & (entry >= 0)
    cause, name = np.where(by_library, _LIBRARY, cause), np.where(by_library, entry, name)
    return AncestorCauses(cause, name, user, call)


def location_of(profile: Profile, user: int) -> tuple[str, int]:
    """Return file and line of a function by the code of its name, or of a sampled line; "" and 0 for -1."""
    names = profile.trace.names
    if user >= len(names):
        sampled = profile.of(samples).lines[user - len(names)]
        return sampled.file, sampled.line
    frame = python_frames.frame_of(names[user]) if user >= 0 else None
    return (frame.file, frame.line) if frame else ("", 0)


def most_called_at(profile: Profile, rows: Int64s) -> tuple[str, int]:
    """Return file and line of the user's function that calls most of these slices; "" and 0 where unknown."""
    user = ancestor_causes(profile, rows).user
    return location_of(profile, int(np.bincount(user[user >= 0]).argmax()) if (user >= 0).any() else -1)


class _OfNames(NamedTuple):
    causes: Int64s  # by kind of slice (row) and name (column), index into CAUSES
    kind_of_cat: Int64s
    is_of_framework: Mask  # by name
    is_library_work: Mask  # by name


def _of_names(profile: Profile) -> _OfNames:
    names = profile.trace.names
    rules = [(CAUSES.index(cause), holds) for cause, holds in _BY_NAME]
    # -1 where no cause follows from the name
    named = np.array([next((cause for cause, holds in rules if holds(name)), -1) for name in names], np.int64)
    named[np.flatnonzero(slices.are_compiling(names))] = _COMPILE
    named[np.flatnonzero(slices.are_autotuning(names))] = _AUTOTUNING
    python = np.where(mask_of(names, python_frames.is_program_function)[: len(names)], _PYTHON, _LIBRARY)
    by_cat = CAUSES.index("operator"), CAUSES.index("label"), python, _NOTHING
    causes = [np.where(named >= 0, named, unnamed) for unnamed in by_cat]
    causes.append(np.array([CAUSES.index(slices.call_kind(name)) for name in names], np.int64))
    kinds = {slices.OPERATOR: 0, slices.LABEL: 1, slices.PYTHON_FUNCTION: 2} | dict.fromkeys(
        slices.RUNTIME_CATS, 4
    )
    kind_of_cat = np.array([kinds.get(cat, 3) for cat in profile.trace.cats], np.int64)
    is_of_framework, is_work = (
        mask_of(names, matches)
        for matches in (python_frames.is_framework_function, python_frames.is_library_work)
    )
    return _OfNames(np.stack(causes), kind_of_cat, is_of_framework, is_work)


def line_lookups(profile: Profile) -> Int64s:
    """Return of each piece of host time the part that went into looking up the lines of callers (ns).

    While stacks are recorded the profiler asks for the line of each Python call, and Python counts from the function's
    first line on. In the one long function that inductor writes for a graph, each call thus takes longer than the one
    before: up to half of the host's time in it, and nothing of an unprofiled step.
    """
    trace, pieces = profile.trace, profile.of(host_segments)
    taken = np.zeros(len(pieces.row), np.int64)
    name = trace.name[pieces.row]
    in_graphs = np.flatnonzero((pieces.row >= 0) & mask_of(trace.names, python_frames.runs_graph)[name])
    for rows in groups_of_equal(in_graphs, name):
        number, ns = ordinals(pieces.row[rows]), pieces.ns[rows]
        count = int(number.max()) + 1
        if count < _FEWEST:
            continue
        # By how much a piece is longer than the one before it, from what is usual in the first and last third.
        early, late = number < count / 3, number >= count * 2 / 3
        longer = np.median(ns[late]) - np.median(ns[early])
        growth = max(0.0, float(longer / (np.median(number[late]) - np.median(number[early]))))
        taken[rows] = np.minimum(growth * number, ns)
    return taken
