"""pytest's plugin: the fixture `torchcompile`, and failures that name each break with its reason and line.

    def test_model(torchcompile):
        with torchcompile.record() as r:
            model(batch)
        assert r.graph_breaks == 0

pytest imports this in every run of it, so it imports nothing but pytest until the fixture is asked for.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tb_torchcompile_plugin.writer.recorded_block import RecordedBlock

_BLOCKS = "tb_torchcompile_plugin.writer.recorded_block"


class TorchCompile:
    """What the fixture is."""

    def record(self) -> RecordedBlock:
        """A context manager that tells what was compiled inside of it. What was compiled before, in this test, is
        still there: a call that needs no compilation has none to count."""
        from tb_torchcompile_plugin.writer.recorded_block import RecordedBlock

        return RecordedBlock()


@pytest.fixture
def torchcompile() -> TorchCompile:
    """Records compilations. Each test begins with nothing compiled, whatever other tests have compiled."""
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()
    return TorchCompile()


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Why `assert r.graph_breaks == 0` fails."""
    blocks = sys.modules.get(_BLOCKS)
    return blocks.explained(op, left, right) if blocks else None
