"""Helpers of the tests that run a real torch.compile: a fresh recorder, and programs in processes of their own."""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tb_torchcompile_plugin import summary as summary_file
from tb_torchcompile_plugin.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.writer import recorder as recorder_module

HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = [
    pytest.mark.torch,
    pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed; it is in the dev extra"),
    # torch's own warnings (deprecations, the profiler's hints) are not ours to fail on.
    pytest.mark.filterwarnings("ignore"),
]
TRACE_LOGGER = logging.getLogger("torch.__trace")
ROOT = Path(__file__).parent.parent


@contextmanager
def fresh_recorder() -> Iterator[None]:
    """A process that has recorded nothing and compiled nothing, as far as torch lets itself be reset."""
    forget_compilations()
    yield
    forget_compilations()


def forget_compilations() -> None:
    import torch._dynamo.utils

    old = recorder_module._recorder
    if old is not None:
        atexit.unregister(old._at_exit)
        for name, tap in old._taps.items():
            logging.getLogger(name).removeHandler(tap)
    recorder_module._recorder = None
    torch._dynamo.reset()
    torch._dynamo.utils.clear_compilation_metrics()
    torch._dynamo.utils.counters.clear()


def run(program: str, folder: Path, timeout: float = 180, **environment: str) -> str:
    """Runs a program with `folder` as its working directory; returns what it printed. Its exit status must be 0."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def summaries(folder: Path) -> list[CompileSummary]:
    """All summaries in a folder, oldest first."""
    paths = sorted(folder.glob("*.pt.compile.pb"), key=lambda path: int(path.name.split(".")[-4]))
    return [summary_file.load(str(path)) for path in paths]


def names(folder: Path, suffix: str) -> list[str]:
    """Names of files with this end, without it."""
    return sorted(path.name.removesuffix(suffix) for path in folder.iterdir() if path.name.endswith(suffix))
