"""The sums that docs/concepts promises hold to the nanosecond, whatever the trace."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from any_trace import traces
from profiles import IDENTITIES, SPAN_QUESTIONS, SPLITS, data_of, profile_with
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary, StepTimes
from tb_torchcompile_plugin.profile.profile import Profile
from traces import Event


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("identities")


@pytest.mark.parametrize("holds", IDENTITIES, ids=lambda identity: identity.__name__)
@given(events=traces, noted_ns=st.lists(st.integers(1, 200_000), max_size=4))
def test_holds(
    folder: Path, holds: Callable[[Profile], None], events: list[Event], noted_ns: list[int]
) -> None:
    """noted_ns: lengths of unprofiled steps."""
    summary = CompileSummary(steps=StepTimes(unrecorded_ns=noted_ns))
    holds(profile_with(folder, events, data_of(summary)))


def test_these_are_questions() -> None:
    assert {"span", "kernels", "what_if", *SPLITS} <= SPAN_QUESTIONS.keys()
