"""One TensorBoard with much to show in every panel, for all tests of panels."""

from collections.abc import Callable
from pathlib import Path

import pytest

from browser.panels.places import fill
from browser.processes import Servers


@pytest.fixture(scope="session")
def everywhere(
    servers: Servers, tmp_path_factory: pytest.TempPathFactory, recording: Callable[[str], Path]
) -> str:
    """Its address."""
    return servers.start(fill(tmp_path_factory.mktemp("panels"), recording))
