"""pairs.py: what one number of two sides says, in a word and in words."""

import pytest

from tb_torchcompile_plugin.analysis.compare.pairs import Outcome, Pair, in_words, numbers, outcome, pair


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (pair(0, 3), "appeared"),
        (pair(3, None), "vanished"),
        (pair(3, 3), "equal"),
        (pair(3, 4), "slower"),
        (pair(4, 3), "faster"),
        (pair(None, None), "equal"),
    ],
)
def test_a_change_is_told_by_what_is_there(times: Pair, expected: Outcome) -> None:
    assert outcome(times) == expected


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("step_us", pair(2000, 1000), ("2.00 ms", "1.00 ms", "−1.00 ms (−50.0 %)")),
        ("compile_s", pair(1, 1), ("1.00 s", "1.00 s", "equal")),
        ("gpu_busy_percent", pair(10, 12.5), ("10.0 %", "12.5 %", "+2.50 points")),
        ("peak_bytes", pair(1e6, 3e6), ("1.00 MB", "3.00 MB", "+2.00 MB (+200 %)")),
        ("launches", pair(0, 1200), ("0", "1,200", "+1,200")),
        ("graph_breaks", pair(None, 2), ("–", "2", "–")),
    ],
)
def test_the_end_of_a_name_is_its_unit(name: str, value: Pair, words: tuple[str, str, str]) -> None:
    assert in_words(name, value) == words


def test_the_first_number_of_a_row_decides() -> None:
    assert numbers(time_us=pair(8, 4), launches=pair(1, 2))["outcome"] == "faster"
