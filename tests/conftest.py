"""Fixtures that every test may use: recordings of real runs, and what is known about them.

Small recordings are committed under tests/data. Larger ones are read from the folder that the environment variable
TB_TORCHCOMPILE_RECORDINGS names; tests that need one of those are skipped where it is not set.
"""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parent / "data" / "2.11.0"
VARIABLE = "TB_TORCHCOMPILE_RECORDINGS"


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests keep parsed traces apart from the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TB_TORCHCOMPILE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`recording("breaks")`: the unpacked folder. It is shared by all tests of the session: do not write to it."""
    unpacked: dict[str, Path] = {}

    def unpack(name: str) -> Path:
        if name not in unpacked:
            target = tmp_path_factory.mktemp("recordings")
            with tarfile.open(_archive(name)) as archive:
                archive.extractall(target, filter="data")
            unpacked[name] = target / name
        return unpacked[name]

    return unpack


@pytest.fixture(scope="session")
def expected() -> Callable[[str], dict[str, Any]]:
    """`expected("breaks")`: the reference numbers of a recording, computed independently of this project."""

    def numbers(name: str) -> dict[str, Any]:
        known: dict[str, dict[str, Any]] = json.loads((DATA / "expected.json").read_text())
        if name not in known:
            known = json.loads((_folder(name) / "expected.json").read_text())
        return known[name]

    return numbers


def _archive(name: str) -> Path:
    committed = next(DATA.parent.glob(f"*/{name}/{name}.tar.xz"), None)
    return committed or _existing(_folder(name) / f"{name}.tar.xz")


def _folder(name: str) -> Path:
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"the recording {name!r} is large; set {VARIABLE} to the folder that holds it")
    return Path(folder)


def _existing(archive: Path) -> Path:
    if not archive.exists():
        pytest.skip(f"{VARIABLE} is set, but there is no {archive.name} in it")
    return archive
