"""Whatever a trace holds, every question about it has an answer, and so has its comparison with another."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given

from any_trace import traces
from profiles import SPAN_QUESTIONS, ask, profile_with
from tb_torchcompile_plugin.analysis.compare.compare import compare
from tb_torchcompile_plugin.analysis.compare.sides import Sides, make_side
from tb_torchcompile_plugin.profile.compiled.regions import region_calls
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from traces import Event, launch, memory_event, slice_


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("any")


@given(traces, traces)
def test_every_question_has_an_answer(folder: Path, before: list[Event], after: list[Event]) -> None:
    sides = profile_with(folder, before), profile_with(folder, after)
    for question in SPAN_QUESTIONS:
        msgspec.json.encode(ask(sides[0], question))
    compare(Sides(*map(make_side, sides)))


def test_owned_slices_that_last_no_time_own_nothing(folder: Path) -> None:
    """As all that a thread has: old torch counts whole microseconds."""
    region = slice_("Torch-Compiled Region: 0/0", 5, 0)
    made = profile_with(folder, [region, *launch("triton_poi_fused_add_0", 5, 10, 5)])
    (row,) = made.of(kernel_launches)
    assert row.compile_id.tolist() == [-1] and made.of(region_calls) is not None


def test_a_trace_of_memory_alone(folder: Path) -> None:
    (row,) = ask(profile_with(folder, [memory_event(1, 512, 512)]), "memory").owners
    assert (row.operator, row.compile_id, row.allocated_bytes) == (None, None, 512)
