"""The pytest plugin: the fixture `torchcompile`, and failures that name each break with its reason and line.

    def test_model(torchcompile):
        with torchcompile.record() as r:
            model(batch)
        assert r.graph_breaks == 0

pytest imports this in every run, so it imports nothing but pytest until the fixture is used.
"""

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tb_torchcompile_plugin.writer.recorded_block import RecordedBlock


class TorchCompile:
    """The value of the fixture."""

    def record(self) -> "RecordedBlock":
        """Return a context manager that counts what is compiled inside of it.

        What was compiled earlier in this test stays compiled: a call that needs no compilation counts none.
        """
        from tb_torchcompile_plugin.writer.recorded_block import RecordedBlock

        return RecordedBlock()


@pytest.fixture
def torchcompile() -> TorchCompile:
    """Record compilations. Each test begins with nothing compiled, whatever other tests have compiled."""
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()
    return TorchCompile()


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Explain why `assert r.graph_breaks == 0` fails."""
    blocks = sys.modules.get("tb_torchcompile_plugin.writer.recorded_block")
    return blocks.explained(op, left, right) if blocks else None
