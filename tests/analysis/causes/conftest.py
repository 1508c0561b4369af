"""Fixtures of the tests of causes."""

import pytest

from tb_torchcompile_plugin.analysis import finding


@pytest.fixture
def exact_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges are those of the cause alone: not widened to what predictions were found to be off."""
    monkeypatch.setattr(finding, "_LEAST_GAIN", 1.0)
    monkeypatch.setattr(finding, "_MOST_GAIN", 1.0)
