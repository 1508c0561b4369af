"""`report` of every recording fits one screen."""

from pathlib import Path

import pytest
from rich.cells import cell_len

from recordings import Recording
from terminal import COLUMNS, LINES, command_line, height, of_commands

pytestmark = pytest.mark.slow

DATA = Path(__file__).parents[1] / "data"
OTHERS = {
    "exam",
    "jobs",
    "library_kernels",
    "strangers",
}  # many programs, of which tests/exam looks at some; no logdir
RECORDINGS = sorted({path.parent.name for path in DATA.glob("*/*/*.tar.xz")} - OTHERS)


@pytest.mark.parametrize("name", RECORDINGS)
def test_it_fits_one_screen(recording: Recording, capsys: pytest.CaptureFixture[str], name: str) -> None:
    status, out, _ = command_line(capsys, "report")(recording(name))
    assert status == 0 and 8 <= height(out) <= LINES
    lines = out.splitlines()
    assert all(cell_len(line) <= COLUMNS for line in lines[: -len(of_commands(lines))])
    assert "\x1b" not in out
