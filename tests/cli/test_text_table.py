"""Tables in a terminal: they fit its width, numbers and places are whole, and what has no room is counted."""

import os
import re
import sys
from collections.abc import Callable
from io import StringIO
from typing import Annotated

import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console

from tb_torchcompile_plugin.analysis.compare.pairs import Pair, pair
from tb_torchcompile_plugin.analysis.formatting import column_head
from tb_torchcompile_plugin.cli.text_table import (
    WIDTH,
    print_lines,
    print_row,
    print_table,
    stdout_console,
    text_of,
)

Printed = Callable[[int], str]
NAME = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
REASON = "Failed to trace a builtin operator that the graph needs"


class Inner(msgspec.Struct, frozen=True):
    """A struct within a row."""

    gain_percent: float
    calls: int


class Row(msgspec.Struct, frozen=True):
    """With a column of each kind, and more than fit into 80 columns."""

    name: str
    file: str
    line: int
    compile_id: str
    time_us: float | None
    transfer_gb_s: float
    reason: str
    both_us: Pair
    inner: Inner | None
    pieces: list[Inner]
    ops: list[str]
    size_bytes: int
    never: str | None = None


ROWS = [
    Row(
        name=NAME,
        file="/home/user/train/model.py",
        line=128,
        compile_id="0/0",
        time_us=1234.5 * (number + 1),
        transfer_gb_s=2.5,
        reason=REASON,
        both_us=pair(1e3, 2e6),
        inner=Inner(12.5, 7),
        pieces=[Inner(1.0, 1)] * 3,
        ops=["aten.add", "aten.mul", "aten.add"],
        size_bytes=5_000,
    )
    for number in range(15)
]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    def run(width: int) -> str:
        print_table(Console(width=width, highlight=False), "rows", ROWS)
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_a_table_fits_and_no_number_is_cut(printed: Printed, width: int) -> None:
    out = printed(width)
    assert all(cell_len(line) <= width for line in out.splitlines())
    assert out.count("train/model.py:128") == 12 and len(re.findall(r"\b0/0\b", out)) == 12
    if width >= 80:
        assert all(text in out for text in ("1.23 ms", "2.47 ms", "14.8 ms", "2.50"))


class Timed(msgspec.Struct, frozen=True):
    """A run with many numbers before the time that counts, which has a bar."""

    run: str
    first: int
    second: int
    third: int
    fourth: int
    fifth: int
    sixth: int
    time_us: Annotated[float, column_head(bar=True)]


@pytest.mark.parametrize("width", [60, 80])
def test_the_name_of_a_run_and_the_time_have_priority(capsys: pytest.CaptureFixture[str], width: int) -> None:
    run = "a_run_of_a_long_name_that_says_what_was_changed_and_why"
    print_table(
        Console(width=width, highlight=False),
        "runs",
        [Timed(run, 100_000, 100_001, 100_002, 100_003, 100_004, 100_005, 1234.5)],
    )
    title, _, *rows = capsys.readouterr().out.splitlines()
    assert "columns" in title and "1.23 ms" in rows[0]
    assert "".join(row.split(" ")[0] for row in rows) == run


def test_bars_have_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [Timed("a", 0, 0, 0, 0, 0, 0, time_us) for time_us in (50.0, 100.0)]
    print_table(Console(width=100, highlight=False), "runs", rows)
    *_, half, whole, _ = capsys.readouterr().out.splitlines()
    assert 2 * half.count("█") == whole.count("█") == 16
    print_table(Console(width=50, highlight=False), "runs", rows)
    assert "█" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("columns", "width"), [("80", 80), ("200", 200), ("", WIDTH), ("0", WIDTH), ("wide", WIDTH)]
)
def test_the_width_is_that_of_columns(monkeypatch: pytest.MonkeyPatch, columns: str, width: int) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(os, "get_terminal_size", lambda _: (_ for _ in ()).throw(OSError()))
    assert stdout_console().width == width


def test_the_width_is_that_of_the_terminal_that_shows_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(sys, "stdout", StringIO())
    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    monkeypatch.setattr(os, "get_terminal_size", lambda number: os.terminal_size((77 + number, 24)))
    assert stdout_console().width == 79


def test_a_number_is_not_parted_from_its_unit(capsys: pytest.CaptureFixture[str]) -> None:
    for width in range(12, 40):
        print_lines(Console(width=width), "A step takes 580 µs instead of 1.20 s, 40.6 % of 3 things")
        lines = capsys.readouterr().out.splitlines()
        assert not any(re.match(r" *(µs|s|%)", line) for line in lines)
        assert all(len(line) <= width for line in lines) and "3" in " ".join(lines).split()


def test_when_something_began_is_a_date(capsys: pytest.CaptureFixture[str]) -> None:
    """A log may hold any number."""
    assert text_of("unix", 1795230252.5) == "2026-11-21 03:04:12 UTC"
    assert text_of("unix", 1e300) and text_of("unix", -1.0)


def test_what_has_no_room_is_counted(printed: Printed) -> None:
    assert printed(80).splitlines()[0] == "rows: 12 of 15 rows, 5 of 14 columns"
    assert printed(400).splitlines()[0] == "rows: 12 of 15 rows"


def test_columns_are_the_fields_in_their_order(printed: Printed) -> None:
    assert re.split(r"  +", printed(400).splitlines()[1].strip()) == [
        *("Name", "Where", "Compile id", "Time", "Transfer GB/s", "Reason", "Both baseline"),
        *("Both candidate", "Both change", "Gain, %", "Calls", "Pieces", "Ops", "Size"),
    ]


class TwoPairs(msgspec.Struct, frozen=True):
    """Two numbers of two sides, with equal texts."""

    time_us: Pair
    launches: Pair


def test_each_number_of_two_sides_has_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(Console(width=120, highlight=False), "two", [TwoPairs(pair(1.0, 1.0), pair(1, 1))])
    _title, head, row = capsys.readouterr().out.splitlines()[:3]
    assert re.split(r"  +", head.strip()) == [
        f"{name} {side}" for name in ("Time", "Launches") for side in ("baseline", "candidate", "change")
    ]
    assert row.split() == ["1.00", "µs", "1.00", "µs", "equal", "1", "1", "equal"]


class NamedPair(msgspec.Struct, frozen=True):
    """A row of a comparison, whose second text matters more than the change of its time."""

    function: str
    compile_ids: str
    time_us: Pair


def test_texts_of_a_comparison_are_shown_before_the_change(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(
        Console(width=56, highlight=False), "pairs", [NamedPair("f" * 20, "0/0 → 0/0", pair(1.0, 2.0))]
    )
    head = " ".join(capsys.readouterr().out.splitlines()[1:3])  # the heads of times are folded
    assert sorted(head.split()) == ["Compile", "Function", "Time", "Time", "baseline", "candidate", "ids"]


def test_one_side_of_a_number_is_not_shown_alone(capsys: pytest.CaptureFixture[str]) -> None:
    for width in range(20, 80):
        print_table(Console(width=width, highlight=False), "two", [TwoPairs(pair(1.0, 1.0), pair(1, 1))])
        head = " ".join(capsys.readouterr().out.splitlines()[1:-2])
        assert head.count("baseline") == head.count("candidate")


def test_names_are_cut_and_prose_is_folded(printed: Printed) -> None:
    out = printed(120)
    assert NAME not in out and "…" in out
    assert NAME in printed(400) and REASON in printed(400)


def test_a_row_alone_has_all_fields_that_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    print_row(Console(width=80, highlight=False), ROWS[0])
    out = capsys.readouterr().out
    assert "  Transfer GB/s: 2.50\n" in out and "  Ops: aten.add, aten.mul\n" in out
    assert "  Both change: +2.00 s" in out and "Never" not in out
    assert out.partition("\nPieces\n")[2].split()[:4] == ["Gain,", "%", "Calls", "1.00"]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("us", None, "–"),
        ("us", 0.0, "0 µs"),
        ("us", -1500.0, "−1.50 ms"),
        ("s", 2.0, "2.00 s"),
        ("bytes", 5000, "5.00 kB"),
        ("count", 12345, "12,345"),
        ("flag", True, "yes"),
        ("s", {"dynamo": 0.5, "inductor": 0.002}, "dynamo 500 ms, inductor 2.00 ms"),
        ("", {"breaks": 4, "gain_us_per_step": 2514.6}, "breaks 4, gain per step 2.51 ms"),
        ("", [], "–"),
        ("text", [2, 1, 1], "2, 1, 1"),
    ],
)
def test_values_have_units(kind: str, value: object, text: str) -> None:
    assert text_of(kind, value) == text
