"""columns.py: distinct rows of parallel columns, and values that no column can hold."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tb_torchcompile_plugin.profile.columns import (
    codes_of,
    distinct,
    order_of,
    ordinals,
    sums,
    values_at,
    values_of,
)
from tb_torchcompile_plugin.reader.trace.kineto import read_trace
from traces import launch, slice_, write_trace

small = st.integers(-3, 3)
huge = st.integers(-(2**62), 2**62)


@example(np.array([[1 - 2**62, 2**62]]))  # further apart than 64 bits tell
@given(
    st.tuples(st.integers(1, 3), st.integers(0, 20)).flatmap(
        lambda shape: arrays(np.int64, shape, elements=small) | arrays(np.int64, shape, elements=huge)
    )
)
def test_distinct_is_what_numpy_says(columns: np.ndarray) -> None:
    unique, place = distinct(*columns)
    expected, inverse = np.unique(columns, axis=1, return_inverse=True)
    assert unique.tolist() == expected.tolist() and place.tolist() == inverse.reshape(-1).tolist()


def test_numbers_beyond_a_column_are_no_codes_and_nothing_warns_of_them(tmp_path: Path) -> None:
    args = {"kernel_flop": 1e30, "kernel_num_gb": 7.0, "Input Dims": [[1]]}
    call, kernel = launch("k", 0, 1, 5)
    operator = {**call, "cat": "cpu_op", "name": "aten::mm", "args": args}
    kernel["args"]["est. achieved occupancy %"] = 1e300
    trace = read_trace(str(write_trace(tmp_path, [operator, kernel])))
    rows = np.arange(len(trace))
    assert sorted(codes_of(trace, "kernel_flop", rows).tolist()) == [-1, -1]
    assert sorted(codes_of(trace, "kernel_num_gb", rows).tolist()) == [-1, 7]
    assert np.isinf(values_of(trace, "occupancy", rows)).sum() == 1


def test_a_place_below_0_is_none() -> None:
    places = np.array([-2, 1, -1, 0, 1])
    assert values_at(np.array([7, 8], np.int32), places).tolist() == [-1, 8, -1, 7, 8]
    assert values_at(np.zeros(0, np.int32), np.array([-1])).tolist() == [-1]
    assert sums(places, np.array([1, 2, 4, 8, 16]), 2).tolist() == [8, 18]
    with pytest.raises(AssertionError, match="beyond the last"):
        sums(places, places, 1)


def test_rows_of_32_bits_are_found_by_numbers_of_64(tmp_path: Path) -> None:
    events = [slice_("a", 1, 1), slice_("b", 3, 1, "kernel", grid=[1, 1, 1], **{"registers per thread": 9})]
    trace = read_trace(str(write_trace(tmp_path, events)))
    rows, _ = trace.sparse("registers")
    assert rows.dtype == np.int32
    values = np.nan_to_num(values_of(trace, "registers", np.array([0, 1, 1 + 2**32])), nan=-1).tolist()
    assert values == [-1, 9, -1]


@given(st.lists(st.integers(-3, 3), max_size=20))
def test_an_ordinal_counts_what_comes_before_of_the_same_group(groups):
    answer = ordinals(np.array(groups, np.int64)).tolist()
    assert answer == [groups[:place].count(group) for place, group in enumerate(groups)]


def test_numbers_that_no_float_holds_keep_their_order() -> None:
    codes = np.array([-1, 2**53 + 1, 2**53])
    assert order_of(codes).tolist() == [0, 2, 1]
    assert values_at(np.array([7]), np.array([-5, 0])).tolist() == [-1, 7]
