"""One TensorBoard with much to show in every panel, for all tests of panels."""

import pytest

from browser.panels.places import fill
from browser.processes import Servers
from recordings import Recording


@pytest.fixture(scope="session")
def everywhere(servers: Servers, tmp_path_factory: pytest.TempPathFactory, recording: Recording) -> str:
    """Its address."""
    return servers.start(fill(tmp_path_factory.mktemp("panels"), recording))
