"""columns.py: distinct rows of parallel columns."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tb_torchcompile_plugin.profile.columns import distinct

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
