"""Intervals against sets of integers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_torchcompile_plugin.profile.columns import covered_ns, union

spans = st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 20)).map(lambda pair: (pair[0], sum(pair))))


def arrays(pairs):
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def moments(pairs):
    return {moment for start, end in pairs for moment in range(start, end)}


@given(spans)
def test_union_covers_each_moment_once(pairs):
    answer = union(*arrays(pairs))
    assert moments(zip(answer.starts.tolist(), answer.ends.tolist())) == moments(pairs)
    assert answer.total_ns == len(moments(pairs))
    assert (answer.starts[1:] > answer.ends[:-1]).all()


@given(spans, spans)
def test_covered_ns_is_the_overlap_of_each_window(pairs, windows):
    answer = covered_ns(union(*arrays(pairs)), *arrays(windows))
    assert answer.tolist() == [len(moments(pairs) & set(range(start, end))) for start, end in windows]
