"""Have traces read by one process of its own, which never gets in the way of training.

It reads one trace at a time, the newest first. When training ends it finishes what is pending; when training is killed
it ends, too.
"""

import atexit
import json
import os
import subprocess
import sys

_READER = "tb_torchcompile_plugin.api.indexing.beside_training"
_START = "import os, runpy; os.nice(19); runpy.run_module({!r}, run_name='__main__', alter_sys=True)"
_reader: subprocess.Popen[bytes] | None = None
_owner = 0  # the process that started the reader: the child of a fork starts its own


def read(trace: str, summary: str | None, *, index: bool, digest: bool) -> None:
    """Read a trace in the background: into the cache, or for its digest, or both.

    summary: of the same cycle, None where it was not written. Raises OSError if no process can start, or if its pipe
    is full.
    """
    if not os.path.isfile(trace):
        return
    line = json.dumps([os.path.abspath(trace), summary and os.path.abspath(summary), index, digest])
    try:
        _send(line)
    except BrokenPipeError:  # the reader was killed: start another one
        _send(line)


def _send(line: str) -> None:
    """Write a line to the reader, and start it if it does not run. Never waits: a full pipe is an OSError."""
    global _reader, _owner
    if _reader is None or _owner != os.getpid() or _reader.poll() is not None:
        quiet = subprocess.DEVNULL
        command = [sys.executable, "-c", _START.format(_READER), str(os.getpid())]
        _reader = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True
        )
        if _owner != os.getpid():
            atexit.register(_finish)
        _owner = os.getpid()
    assert _reader.stdin is not None
    os.set_blocking(_reader.stdin.fileno(), False)
    os.write(_reader.stdin.fileno(), f"{line}\n".encode())


def _finish() -> None:
    """Let the reader finish what is pending: training has ended normally."""
    try:
        if _reader is not None and _owner == os.getpid() and _reader.poll() is None:
            _send("null")
    except OSError:  # then it ends with this process
        pass
