"""Programs that begin where torch is imported already: one process imports it, and forks for each of them.

This module is both ends: what tests call, and the program of the process that forks. A request is one line of JSON on
its standard input, the answer one line on its standard output.
"""

import atexit
import gc
import json
import os
import select
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, NoReturn

# What inductor imports when it first compiles.
_LATE = ("sympy.physics.units", "torch.distributed.tensor.experimental", "torch.utils.cpp_extension")


def statuses(
    program: str,
    calls: Sequence[Sequence[str]],
    folder: Path,
    output: str,
    environment: Mapping[str, str],
    timeout_s: float,
) -> list[int]:
    """Runs a program at the same time with each of several argument lists; all of them print into one file.

    As with `subprocess`, a negative status is the signal that ended the program. TimeoutExpired ends them all.
    """
    server = _server()
    assert server.stdin and server.stdout
    request = [program, [list(call) for call in calls], str(folder), output, dict(environment)]
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    answered = select.poll()
    answered.register(server.stdout, select.POLLIN)
    if not answered.poll(timeout_s * 1000):
        _stop(server)
        _server.cache_clear()
        raise subprocess.TimeoutExpired(program, timeout_s)
    codes: list[int] = json.loads(server.stdout.readline())
    return codes


@cache
def _server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-W", "ignore", __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    atexit.register(_stop, server)
    return server


def _stop(server: subprocess.Popen[str]) -> None:
    if server.poll() is None:
        os.killpg(server.pid, 9)
    with server:
        pass


def _serve() -> None:
    import torch._dynamo
    import torch._inductor.compile_fx
    import torch.profiler  # noqa: F401

    _prepare_inductor()
    # What is frozen no child looks through, not even when it ends: that took longer than most of the programs.
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        program, calls, *place = json.loads(line)
        pids = []
        for call in calls:
            if not (pid := os.fork()):
                _end(_status(program, call, *place))
            pids.append(pid)
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]), flush=True)


def _prepare_inductor() -> None:
    """What it imports and computes when it first compiles, which each program would do anew: a third of that time."""
    from torch._inductor.codecache import torch_key
    from torch._inductor.fx_passes import serialized_patterns as patterns

    stored = [module.name for module in iter_modules(patterns.__path__, f"{patterns.__name__}.")]
    for name in (*_LATE, *stored):
        import_module(name)
    torch_key()


def _status(*what: Any) -> int:
    """Runs a program; what it would end with, its error printed."""
    try:
        _become(*what)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _end(status: int) -> NoReturn:
    """As the interpreter ends, but for taking all modules apart: for torch's that takes longer than most programs."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _become(program: str, call: list[str], folder: str, output: str, environment: dict[str, str]) -> None:
    """Runs the program as `python -c` would."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if "TORCH_TRACE" in environment:
        _begin_torch_trace()
    printed = os.open(output, os.O_WRONLY | os.O_APPEND)
    for standard, file in enumerate((os.open(os.devnull, os.O_RDONLY), printed, printed)):
        os.dup2(file, standard)
    sys.argv = ["-c", *call]
    sys.modules["__main__"] = main = ModuleType("__main__")
    exec(compile(program, "<string>", "exec"), main.__dict__)


def _begin_torch_trace() -> None:
    """What torch does when it is imported, where the variable is set: until something is compiled it writes nothing."""
    from torch._logging import _internal

    _internal.LOG_TRACE_HANDLER = None
    _internal._init_logs()


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)
    _serve()
