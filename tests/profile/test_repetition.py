"""Which sequences of operators are loops."""

import numpy as np
import pytest

from tb_torchcompile_plugin.profile.host.eager_roots import MIN_ITERATIONS, Repetition, repetition


def found(names: str, parts: str = "") -> Repetition | None:
    """The loops of a sequence of one letter for each operator, and for its part."""
    code, part = (np.frombuffer(text.encode(), np.uint8).astype(np.int64) for text in (names, parts))
    return repetition(code, part if parts else np.zeros(len(code), np.int64))


def test_a_loop_begins_with_its_first_operator() -> None:
    loop = found("xy" + "abc" * 10 + "z")
    assert loop is not None
    assert [column.tolist() for column in loop] == [[2], [5], [29], [10]]


def test_iterations_differ_a_little() -> None:
    """As where a picture is flipped at random, and two changes are made in any order."""
    loop = found("".join("abcdefgh" if number % 3 else "abcdgfeih" for number in range(12)))
    assert loop is not None and loop.iterations.tolist() == [12]


@pytest.mark.parametrize(
    "names",
    [
        "abc" * (MIN_ITERATIONS - 1),
        "a" * 100,  # one operator for each tensor of a list
        "".join("ab" + chr(99 + number) * 3 for number in range(12)),  # most of an iteration is in no other
        "abcdefghijklmnopqrstuvwxyz",
        "",
    ],
)
def test_no_loop(names: str) -> None:
    assert found(names) is None


def test_a_loop_is_within_a_part() -> None:
    """Each step has its own, and what is launched in between by compiled code or a layer separates them."""
    loop = found("ab" * 20, "1" * 20 + "2" * 20)
    assert loop is not None and loop.iterations.tolist() == [10, 10] and loop.first.tolist() == [0, 20]
    assert found("ab" * 20, "".join(str(number // 8) for number in range(40))) is None


def test_the_longest_loop_counts() -> None:
    loop = found("ab" * 10 + "xyz" * 30)
    assert loop is not None and loop.first.tolist() == [20]
