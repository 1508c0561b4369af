"""Which loop of the program launches the same few operators again and again? By the sequence of their names."""

from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.profile.columns import Int64s, Mask, sums

# A feature pyramid has up to seven levels, whose sizes differ: a loop over them is no loop over samples.
MIN_ITERATIONS = 8
# Of an iteration: one for each tensor of a list is an optimizer, a norm, or a copy of the state.
_MIN_OPERATORS = 2
# Of the operators of two iterations, those that both have: a random flip is in one of ten operators.
_SAME = 0.75
_MAX_SEARCHED = 1 << 15  # operators in which a loop is searched for: it takes time for each name


class Repetition(NamedTuple):
    """Loops whose iterations begin with one operator, as indices into the sequence."""

    first: Int64s  # of each loop, where its first iteration begins
    second: Int64s
    last: Int64s
    iterations: Int64s


def repetition(code: Int64s, part: Int64s) -> Repetition | None:
    """Return the loops that hold most of a sequence of operators.

    code: of the name of each operator. part: in which part of the sequence it is; a loop is within one.
    """
    searched = slice(None, _MAX_SEARCHED)
    names, counts = np.unique(code[searched], return_counts=True)
    covered = {
        name: int((found.last - found.first).sum())
        for name in names[counts >= MIN_ITERATIONS].tolist()
        if (found := _loops_from(name, code[searched], part[searched])) is not None
    }
    # Of equal ones the loop with the longest iteration: its parts may be alike, too.
    best = max(covered, key=lambda name: (covered[name], -int((code == name).sum())), default=None)
    return None if best is None else _loops_from(best, code, part)


def _loops_from(name: int, code: Int64s, part: Int64s) -> Repetition | None:
    """Return the loops whose iterations begin with this operator, None without one."""
    begins = np.flatnonzero(code == name)
    is_whole = part[begins[1:]] == part[begins[:-1]]  # of each iteration but the last of a loop
    continues = np.append(is_whole[1:] & is_whole[:-1] & _are_alike(begins, code), False)
    starts = np.flatnonzero(is_whole & ~np.append(False, continues)[: len(is_whole)])
    ends = np.flatnonzero(is_whole & ~continues) + 1
    is_long = (ends - starts + 1 >= MIN_ITERATIONS) & (begins[starts + 1] - begins[starts] >= _MIN_OPERATORS)
    starts, ends = starts[is_long], ends[is_long]
    loops = Repetition(begins[starts], begins[starts + 1], begins[ends], ends - starts + 1)
    return loops if len(starts) else None


def _are_alike(begins: Int64s, code: Int64s) -> Mask:
    """Return for each iteration but the last two whether it and the next have most operators in common."""
    number = np.repeat(np.arange(len(begins) - 1), np.diff(begins))
    size = int(code.max()) + 1
    keys, counts = np.unique(number * size + code[begins[0] : begins[-1]], return_counts=True)
    following = np.minimum(np.searchsorted(keys, keys + size), len(keys) - 1)
    shared = np.where(keys[following] == keys + size, np.minimum(counts, counts[following]), 0)
    shared = sums(keys // size, shared, len(begins) - 1)[:-1]
    lengths = np.diff(begins)
    return np.asarray(shared >= _SAME * np.maximum(lengths[1:], lengths[:-1]))
