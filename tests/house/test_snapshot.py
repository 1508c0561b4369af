"""Every answer about every recording has the bytes that were reviewed: a refactoring changes none.

`python tools/snapshot.py diff HEAD RECORDING "ANSWER"` shows what differs; `update` accepts it.
"""

import runpy
from pathlib import Path
from typing import Any

import pytest

SNAPSHOT: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "snapshot.py"))
SMALL: dict[str, Path] = SNAPSHOT["recordings"](committed_only=True)
LARGE: dict[str, Path] = {
    name: path for name, path in SNAPSHOT["recordings"](huge=True).items() if name not in SMALL
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_no_answer_about_a_small_recording_has_changed(name: str) -> None:
    assert SNAPSHOT["changed"](name, SMALL[name]) == []


@pytest.mark.large
@pytest.mark.parametrize("name", LARGE)
def test_no_answer_about_a_large_recording_has_changed(name: str) -> None:
    assert SNAPSHOT["changed"](name, LARGE[name]) == []


def test_the_snapshot_asks_every_route() -> None:
    from tb_torchcompile_plugin.api.routes import ROUTES

    asked = {answer.split()[0] for answers in SNAPSHOT["committed"]().values() for answer in answers}
    assert set(ROUTES) - asked == {"trace_file"}  # the recording itself


def test_every_recording_is_in_the_snapshot() -> None:
    assert set(SMALL) <= set(SNAPSHOT["committed"]())
