"""Helpers of the tests that run a real torch.compile: a fresh recorder, and programs in processes of their own."""

import atexit
import importlib.metadata
import importlib.util
import logging
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import forked
from tb_torchcompile_plugin.compile_log import summary as summary_file
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.writer import recorder as recorder_module

HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = [
    pytest.mark.torch,
    pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed; it is in the dev extra"),
    # torch's own warnings (deprecations, the profiler's hints) are not ours to fail on.
    pytest.mark.filterwarnings("ignore"),
]


def torch_before(version: str) -> bool:
    """Whether the torch that is installed is older than this, such as "2.11"."""
    if not HAS_TORCH:
        return False
    here = importlib.metadata.version("torch").split("+")[0]
    return [int(part) for part in here.split(".")[:2]] < [int(part) for part in version.split(".")]


TRACE_LOGGER = logging.getLogger("torch.__trace")
ROOT = Path(__file__).parent.parent
TRACE, SUMMARY = ".pt.trace.json", ".pt.compile.pb"
PATIENCE_S = 300.0


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
        old._log_handlers.remove()
        old.sampler.enabled = False
        old.sampler.stop()
        old.status.stop()
    recorder_module._recorder = None
    torch._dynamo.reset()
    torch._dynamo.utils.clear_compilation_metrics()
    torch._dynamo.utils.counters.clear()


def run(program: str, folder: Path, **environment: str) -> str:
    """Runs a program with `folder` as its working directory; returns what it printed. Its exit status must be 0.

    torch is imported already. inductor's cache is a new one for each folder, unless another one is named.
    """
    statuses, printed = run_all(program, folder, [[]], **environment)
    assert statuses == [0], printed
    return printed


def run_handler(program: str, folder: Path) -> str:
    """Runs a program in which torch and the handler are imported."""
    imports = "import torch\nfrom tb_torchcompile_plugin import tensorboard_trace_handler\n"
    return run(imports + textwrap.dedent(program), folder)


def run_all(
    program: str, folder: Path, calls: Sequence[Sequence[str]], **environment: str
) -> tuple[list[int], str]:
    """Runs a program at the same time with each of several argument lists; returns what `forked.statuses` does, and
    what they printed.
    """
    everything = {**_environment(), "TORCHINDUCTOR_CACHE_DIR": f"{folder}.inductor", **environment}
    with tempfile.NamedTemporaryFile() as file:
        statuses = forked.statuses(textwrap.dedent(program), calls, folder, file.name, everything, PATIENCE_S)
        return statuses, Path(file.name).read_text()


def run_alone(program: str, folder: Path, *arguments: str, **environment: str) -> str:
    """Like `run`, in a process that imports torch itself: for variables that torch reads when it is imported."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program), *arguments],
        cwd=folder,
        env={**_environment(), **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def summaries(folder: Path) -> list[CompileSummary]:
    """All summaries in a folder, oldest first."""
    paths = sorted(folder.glob("*.pt.compile.pb"), key=lambda path: int(path.name.split(".")[-4]))
    return [summary_file.load(str(path)) for path in paths]


def names(folder: Path, suffix: str) -> list[str]:
    """Names of files with this end, without it."""
    return sorted(path.name.removesuffix(suffix) for path in folder.iterdir() if path.name.endswith(suffix))


def in_a_fork(work: Callable[[], object]) -> int:
    """Work in a child of this process, which ends well; its id."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    return pid
