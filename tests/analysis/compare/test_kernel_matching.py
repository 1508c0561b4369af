"""kernel_matching.py: which kernels of one run do the work of which of another."""

import re
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles import profile_in
from tb_torchcompile_plugin.analysis.compare.kernel_matching import (
    Landmark,
    Launch,
    _aligned,
    match_kernels,
    step_launches,
)
from traces import launch, slice_, write_trace


@pytest.fixture(scope="module")
def resnets(recording):
    return [step_launches(profile_in(recording(name))) for name in ("resnet18_eager", "resnet18")]


def made(*kernels):
    """Launches from (name, operator, ns): a landmark where the operator is a convolution."""
    return [
        Launch(re.sub(r"_*\d+$", "", name), name, operator, "c" * ("conv" in operator), -1, "aten", ns)
        for name, operator, ns in kernels
    ]


def test_every_launch_of_a_step_is_in_one_row(resnets):
    eager, compiled = resnets
    rows = match_kernels(eager, compiled)
    for side, steps in (("baseline", eager), ("candidate", compiled)):
        work = [getattr(row, side) for row in rows]
        assert round(3 * sum(getattr(row.launches, side) for row in rows)) == sum(map(len, steps))
        total = sum(launch.ns for step in steps for launch in step)
        assert round(3000 * sum(getattr(row.time_us, side) for row in rows)) == total
        assert Counter(name for one in work for name in one.kernels).keys() == {
            launch.name for step in steps for launch in step
        }


def test_what_compilation_fused_stands_beside_what_it_was_fused_from(resnets):
    """Three of resnet18's blocks: bias, batch norm and relu between two convolutions."""
    rows = match_kernels(*resnets)
    fused = ["add_", "cudnn_batch_norm", "clamp_min_"]
    (row,) = (row for row in rows if row.baseline.operators == fused and row.places == 5)
    assert row.change == "changed" and (row.launches.baseline, row.launches.candidate) == (20, 15)
    assert all("batch_norm_legit" in operator for operator in row.candidate.operators[:1])
    convolutions = [row for row in rows if row.baseline.operators == ["cudnn_convolution"]]
    assert all(row.candidate.operators == ["cudnn_convolution"] for row in convolutions)
    assert sum(row.places for row in convolutions) == 20  # all of resnet18's


def test_most_of_the_difference_is_between_rows_that_both_sides_have(resnets):
    times = Counter[str]()
    for row in match_kernels(*resnets):
        times[row.change] += round(1000 * ((row.time_us.baseline or 0) + (row.time_us.candidate or 0)))
    assert times["appeared"] + times["vanished"] < 0.1 * times.total()


def test_a_run_is_no_different_from_itself(resnets):
    for steps in resnets:
        rows = match_kernels(steps, steps)
        assert {row.change for row in rows} == {"same"} and {row.time_us.delta for row in rows} == {0}


def test_numbers_of_inductor_do_not_matter():
    conv = ("conv", "conv2d", 9)
    a = made(("triton_poi_fused_add_0", "add", 5), conv, ("triton_poi_fused_mul_1", "mul", 2))
    b = made(("triton_poi_fused_add_7", "add", 4), conv, ("triton_poi_fused_mul_3", "mul", 4))
    rows = match_kernels([a], [b])
    assert {row.change for row in rows} == {"same"}
    deltas = [(*row.baseline.operators, round((row.time_us.delta or 0) * 1000)) for row in rows]
    assert deltas == [("mul", 2), ("add", -1), ("conv2d", 0)]


def test_many_kinds_in_one_place():
    """No landmark: 4000 kinds are on both sides, as many and more on one."""
    ours = made(*((f"k{number}b", "", 1) for number in range(9000)))
    theirs = made(*((f"k{number}b", "", 2) for number in range(5000, 14000)))
    rows = match_kernels([ours], [theirs])
    assert Counter(row.change for row in rows) == {"same": 4000, "changed": 1}
    assert sum(row.time_us.delta or 0 for row in rows) == pytest.approx(9)


def work(name, family="", operator=""):
    """A launch that has its name to itself."""
    return Launch(name, name, operator, family, -1, "other", 1000)


def changes(a, b):
    return {
        (tuple(row.baseline.kernels), tuple(row.candidate.kernels)): row.change
        for row in match_kernels([list(a)], [list(b)])
    }


def test_a_landmark_of_one_side_alone_moves_nothing():
    """What comes after it is still after the landmark that both have."""
    matched = changes(
        [work("x"), work("conv_a", "convolution"), work("mm", "gemm"), work("after")],
        [work("y"), work("conv_b", "convolution"), work("after")],
    )
    assert matched == {
        (("x",), ("y",)): "changed",
        (("conv_a",), ("conv_b",)): "changed",
        (("after",), ("after",)): "same",
        (("mm",), ()): "vanished",
    }


def test_where_most_kernels_are_the_same_each_is_a_landmark():
    """Without any operator: what changed between two of them stands beside what it became."""
    same = [work(name) for name in "abc"]
    matched = changes([*same[:1], work("p"), same[1], work("q"), same[2]], [*same[:1], work("r"), *same[1:]])
    assert matched[(("p",), ("r",))] == "changed" and matched[(("q",), ())] == "vanished"


@pytest.mark.parametrize(
    ("kernel", "family"),
    [("triton_tem_fused_mm_3", "gemm"), ("nvjet_hsh_64x8", "gemm"), ("triton_poi_fused_add_0", "")],
)
def test_what_replaces_a_library_is_a_landmark_like_it(tmp_path, kernel, family):
    write_trace(tmp_path, launch(kernel, 10, 20, 5))
    ((one,),) = step_launches(profile_in(tmp_path))
    assert one.family == family


def test_an_optimizers_step_is_one_landmark(tmp_path):
    """However many kernels it launches, whatever they are; what comes before it is none of its."""
    step = slice_("Optimizer.step#Adam.step", 100, 50, "user_annotation")
    ran = [launch("before", 10, 20, 5), launch("gemm_a", 110, 120, 5), launch("b", 130, 140, 5)]
    write_trace(tmp_path, [step, *(event for events in ran for event in events)])
    before, *inside = step_launches(profile_in(tmp_path))[0]
    assert before.family == "" and {launch.family for launch in inside} == {"optimizer"}
    (unit,) = {launch.unit for launch in inside}
    assert unit >= 0
    matched = changes([before, *inside], [work("c", "optimizer")])
    assert matched.keys() == {(("before",), ()), (("gemm_a", "b"), ("c",))}


def test_landmarks_keep_alike_work_apart():
    """The same operators before and after the convolution: a place each, and only one of them changed."""
    alike = ("ka", "relu", 5), ("kb", "add", 5)
    eager = made(*alike, ("c", "conv2d", 9), *alike)
    fused = made(("f", "add_relu", 3), ("c", "conv2d", 9), *alike)
    rows = {(tuple(row.baseline.operators), row.change): row for row in match_kernels([eager], [fused])}
    # most kernels are the same, so each is a landmark: the first relu and add belong to the fused kernel
    assert rows[("relu", "add"), "changed"].candidate.kernels == ["f"]
    assert rows[("relu",), "same"].launches.baseline == 1


def test_work_that_only_one_side_has():
    both, more = made(("c", "conv2d", 9)), made(("c", "conv2d", 9), ("copy", "copy_", 1))
    (row,) = (row for row in match_kernels([both], [more]) if row.change != "same")
    assert (row.change, row.time_us.delta, row.baseline.kernels) == ("appeared", 0.001, [])
    assert match_kernels([], []) == [] and match_kernels([[]], [[]]) == []
    assert [row.change for row in match_kernels([more], [])] == ["vanished"]


def test_launches_belong_to_the_step_of_their_call(tmp_path):
    """The kernel of step 1 runs in step 2; what nobody calls in a step is left out."""
    steps = [slice_(f"ProfilerStep#{n}", 100 * n, 90, "user_annotation") for n in (1, 2)]
    calls = ("first", 150, 205, 3), ("second", 250, 260, 4), ("between", 195, 196, 5)
    launches = [event for call in calls for event in launch(*call)]
    write_trace(tmp_path, [*steps, *launches])
    names = [[(one.name, one.ns) for one in step] for step in step_launches(profile_in(tmp_path))]
    assert names == [[("first", 3000)], [("second", 4000)]]
    write_trace(tmp_path, launches)
    (step,) = step_launches(profile_in(tmp_path))
    assert [one.name for one in step] == ["first", "between", "second"]


def test_shapes_tell_which_of_several_was_added():
    """By names alone the first three would be paired, and the last one would be new."""

    def convolutions(*shapes):
        named = ("conv2d", "convolution")
        return [
            [Launch("k", f"k{shape}", *named, n, "convolution", 1, shape) for n, shape in enumerate(shapes)]
        ]

    rows = match_kernels(convolutions("[3]", "[5]", "[7]"), convolutions("[9]", "[3]", "[5]", "[7]"))
    values = {row.change: (row.baseline.kernels, row.candidate.kernels) for row in rows}
    assert values == {"same": (["k[3]", "k[5]", "k[7]"],) * 2, "appeared": ([], ["k[9]"])}
    unknown = match_kernels(convolutions("", ""), convolutions("[3]", "[5]"))
    assert [row.change for row in unknown] == ["same"]


def test_shapes_tell_also_between_others():
    ours, theirs = ([Landmark("conv", shape) for shape in shapes] for shapes in ("adb", "xdyz"))
    assert _aligned(ours, theirs)[1] == 1
    assert _aligned(theirs, ours)[1] == 1
    ours, theirs = ([Landmark("conv", shape) for shape in shapes] for shapes in ("adb", "xwdz"))
    assert _aligned(ours, theirs)[1] == 2


WORDS = st.lists(st.builds(Landmark, st.sampled_from("abc"), st.sampled_from(["", "[1]"])), max_size=12)


@given(WORDS, WORDS)
def test_alignment_is_a_common_subsequence(ours, theirs):
    pairs = [(mine, other) for mine, other in enumerate(_aligned(ours, theirs)) if other >= 0]
    assert all(ours[mine].name == theirs[other].name for mine, other in pairs)
    assert all(one[1] < next_[1] for one, next_ in pairwise(pairs))
    if {mark.name for mark in ours} & {mark.name for mark in theirs}:
        assert pairs


NAMES, OPERATORS = st.sampled_from(["k_0", "k_1", "m", "c"]), st.sampled_from(["relu", "conv"])
KERNELS = st.lists(st.tuples(NAMES, OPERATORS, st.integers(1, 9)), max_size=9)


@given(st.lists(KERNELS, max_size=3), st.lists(KERNELS, max_size=3))
def test_nothing_is_lost(a, b):
    sides = [made(*step) for step in a], [made(*step) for step in b]
    rows = match_kernels(*sides)
    for name, steps in zip(("baseline", "candidate"), sides):
        total = sum(one.ns for step in steps for one in step)
        mean_us = sum(getattr(row.time_us, name) for row in rows)
        assert round(mean_us * max(len(steps), 1) * 1000) == total
