"""Answers that are cut to so many bytes."""

import json
from typing import Any

import msgspec
import pytest

from tb_torchcompile_plugin.api.answers.bounded import fitted


class Answer(msgspec.Struct):
    """Of which the row alone may be too long."""

    id: str
    row: dict[str, Any]
    next: list[str]


@pytest.mark.parametrize("most_bytes", [200, 500, 2000, 9000])
def test_a_field_that_has_no_room_is_named(most_bytes: int) -> None:
    answer = Answer("kernel", {f"field{number}": "x" * 70 for number in range(40)}, ["show"])
    text = fitted(answer, most_bytes)
    assert len(text) <= most_bytes
    said = json.loads(text)
    assert "row" in said or "row" in said["left_out"]
