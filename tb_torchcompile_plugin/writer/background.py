"""Starts the reading of a trace in a process of its own, which outlives training and never gets in its way."""

from __future__ import annotations

import os
import subprocess
import sys

_READER = "tb_torchcompile_plugin.reader.cache.index"
_running: list[subprocess.Popen[bytes]] = []


def index(path: str) -> None:
    """Read the trace at `path` into the reader's cache, in the background. Raises OSError if no process can start."""
    _running[:] = [process for process in _running if process.poll() is None]  # no zombies
    if not os.path.isfile(path):
        return
    quiet = subprocess.DEVNULL
    command = [sys.executable, "-m", _READER, os.path.abspath(path)]
    process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    _running.append(process)
