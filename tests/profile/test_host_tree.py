"""host_tree.py against torch's definition, written out as the loop over a stack that it is."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles import profile_with
from tb_torchcompile_plugin.profile.host.host_tree import host_tree
from tb_torchcompile_plugin.reader.trace.nest import ancestors_of, first_ancestor
from traces import MAIN, slice_

moments = st.tuples(st.integers(0, 30), st.integers(0, 30), st.sampled_from("abcd"))


def torchs_parents(slices):
    """torch/autograd/profiler_util.py: a parent holds all of its child; who does not is done with."""
    parents: list[int] = []
    open_ones: list[int] = []
    for place, (start, end, _) in enumerate(slices):
        while open_ones and (start >= slices[open_ones[-1]][1] or end > slices[open_ones[-1]][1]):
            open_ones.pop()
        parents.append(open_ones[-1] if open_ones else -1)
        open_ones.append(place)
    return parents


def tree_of(events):
    with tempfile.TemporaryDirectory() as folder:
        profile = profile_with(Path(folder), events)
    return profile.trace, host_tree(profile)


@given(st.lists(moments, max_size=25))
def test_parents_are_those_of_torch_however_slices_cross(drawn):
    slices = sorted(((a, a + b, f"n{i}") for i, (a, b, _) in enumerate(drawn)), key=lambda s: (s[0], -s[1]))
    trace, tree = tree_of([slice_(name, start, end - start) for start, end, name in slices])
    # equal slices come in the order of the file, as torch has them
    assert tree.parent.tolist() == torchs_parents(slices)
    own = [end - start for start, end, _ in slices]
    for place, parent in enumerate(tree.parent.tolist()):
        if parent >= 0:
            own[parent] -= slices[place][1] - slices[place][0]
    assert (tree.self_ns // 1000).tolist() == own and len(trace) == len(slices)


@given(st.lists(st.tuples(moments, st.booleans()), max_size=25))
def test_what_torch_does_not_count_holds_and_hides_nothing(drawn):
    slices = sorted(
        ((a, a + b, "aten::is_leaf" if hidden else f"n{i}") for i, ((a, b, _), hidden) in enumerate(drawn)),
        key=lambda s: (s[0], -s[1]),
    )
    _, tree = tree_of([slice_(name, start, end - start) for start, end, name in slices])
    assert tree.parent.tolist() == torchs_parents([one for one in slices if one[2] != "aten::is_leaf"])


def test_what_outlasts_something_that_does_not_count_holds_what_follows():
    slices = [(1, 6, "aten::is_leaf"), (3, 29, "a"), (7, 10, "b"), (11, 12, "c")]
    _, tree = tree_of([slice_(name, start, end - start) for start, end, name in slices])
    assert tree.parent.tolist() == [-1, 0, 0]


def test_what_crosses_inside_of_what_crosses_is_found_again():
    inner = [(30, 40), (35, 45), (47, 48), (50, 60), (55, 65), (65, 65)]
    slices = [(0, 200), (10, 20), (15, 90), *inner, (90, 90), (100, 120), (110, 130), (115, 118)]
    _, tree = tree_of([slice_(f"n{i}", a, b - a) for i, (a, b) in enumerate(slices)])
    assert tree.parent.tolist() == torchs_parents([(a, b, "") for a, b in slices])


@given(st.lists(moments, max_size=25))
def test_only_children_of_their_own_name_become_one(drawn):
    events = [slice_(name, a, b) for a, b, name in drawn]
    trace, tree = tree_of(events)
    names = trace.name[tree.index]
    children = np.bincount(tree.parent[tree.parent >= 0], minlength=len(tree.index))
    inner = np.flatnonzero(tree.parent >= 0)
    assert not ((names[inner] == names[tree.parent[inner]]) & (children[tree.parent[inner]] == 1)).any()
    assert (tree.place >= 0).all() and (trace.name == names[tree.place]).all()
    assert (tree.place[tree.index] == np.arange(len(tree.index))).all()


def test_what_torch_does_not_count_is_its_callers_time():
    events = [slice_("aten::add", 0, 10), slice_("aten::is_leaf", 2, 5), slice_("aten::mul", 3, 2)]
    trace, tree = tree_of(events)
    assert [trace.names[name] for name in trace.name[tree.index]] == ["aten::add", "aten::mul"]
    assert tree.parent.tolist() == [-1, 0] and tree.self_ns.tolist() == [8000, 2000]


def test_the_profilers_own_work_is_the_main_threads():
    events = [slice_("aten::add", 0, 100), slice_("aten::mul", 200, 10)]
    events += [slice_("Activity Buffer Request", 10, 70, "overhead", 0) | {"pid": -1}]
    events += [slice_("Activity Buffer Request", 195, 10, "overhead", 0) | {"pid": -1}]
    trace, tree = tree_of(events)
    own = {
        (trace.names[name], trace.ts[row]): ns
        for row, name, ns in zip(tree.index, trace.name[tree.index], tree.self_ns.tolist())
    }
    assert own["aten::add", 0] == 30_000 and own["aten::mul", 200_000] == 10_000 and MAIN == 100


def test_the_profilers_own_work_on_the_main_thread_is_where_it_stands():
    overhead = slice_("Buffer Flush", 10, 20, "overhead")
    _, tree = tree_of([slice_("aten::mm", 0, 100), overhead, slice_("aten::mul", 12, 3)])
    assert tree.parent.tolist() == [-1, 0, 1] and tree.self_ns.tolist() == [80_000, 17_000, 3_000]


def test_the_profilers_own_work_inside_its_own_counts_once():
    inside = [
        slice_(name, at, 90 - 2 * at, "overhead", 0) | {"pid": -1} for name, at in (("a", 5), ("b", 10))
    ]
    _, tree = tree_of([*inside, slice_("aten::mm", 0, 100)])
    assert tree.self_ns.tolist() == [10_000, 70_000, 20_000]


def test_a_way_up_without_an_end_is_an_error():
    circle = np.array([1, 2, 0])
    nowhere = np.zeros(3, bool)
    with pytest.raises(AssertionError, match="around itself"):
        first_ancestor(circle, np.array([0]), nowhere)
    with pytest.raises(AssertionError, match="around itself"):
        list(ancestors_of(circle, np.array([0])))
