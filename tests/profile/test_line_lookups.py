"""What looking up the lines of callers took: in code that inductor wrote it grows from call to call."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from profiles import profile_with
from tb_torchcompile_plugin.profile.model.attribution import line_lookups
from tb_torchcompile_plugin.profile.model.model import model, replay, without_overhead
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.torch_names.slices import PYTHON_FUNCTION
from traces import Event, launch, slice_

GENERATED = f"/tmp/torchinductor_user/ab/c{'a' * 51}.py(40): call"
LAUNCHES, CALLS = 30, 2


def calls(function: str, gap_us: Callable[[int], float]) -> list[Event]:
    """Calls of a function of as many launches of 1 µs, each so long after the one before, by its number."""
    events: list[Event] = []
    now = 0.0
    for _ in range(CALLS):
        begin = now
        for number in range(LAUNCHES):
            now += gap_us(number)
            events += launch("k", now, now + 3, 1)
            now += 1
        events.append(slice_(function, begin, now + 1 - begin, PYTHON_FUNCTION))
        now += 5
    return events


def taken_us(profile: Profile) -> float:
    return float(profile.of(line_lookups).sum() / 1000)


def test_what_grows_in_generated_code_is_found(tmp_path: Path) -> None:
    profile = profile_with(tmp_path, calls(GENERATED, lambda number: 4 + number))
    grown = CALLS * sum(range(1, LAUNCHES))  # before the first launch of a call lies what belongs to nobody
    assert taken_us(profile) == pytest.approx(grown, rel=0.1)


@pytest.mark.parametrize(
    ("function", "gap_us"),
    [
        (GENERATED, lambda number: 10),  # nothing grows
        (GENERATED, lambda number: 40 - number),  # it shrinks
        ("train.py(3): train", lambda number: 4 + number),  # the user's loop takes what it takes
        ("train.py(3): call", lambda number: 4 + number),
    ],
)
def test_what_does_not_grow_or_is_not_generated_stays(
    tmp_path: Path, function: str, gap_us: Callable[[int], float]
) -> None:
    assert taken_us(profile_with(tmp_path, calls(function, gap_us))) == 0


def test_without_recording_it_is_gone_and_the_more_a_slice_costs_the_shorter_all_is(tmp_path: Path) -> None:
    profile = profile_with(tmp_path, calls(GENERATED, lambda number: 4 + number))
    made = profile.of(model)

    def whole_ns(slice_ns: int) -> int:
        walked = replay(without_overhead(profile, made, slice_ns))
        return int(walked.end[-1] - walked.begin[0])

    lengths = [whole_ns(slice_ns) for slice_ns in (0, 1, 200, 500, 1_000, 2_000)]
    assert (np.diff(lengths) <= 0).all() and lengths[1] == pytest.approx(lengths[0], rel=0.01)
    assert lengths[0] - lengths[4] >= 800 * taken_us(profile)
