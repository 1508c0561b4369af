"""The status file of a process that compiles: what it compiles now, next to where its summaries are written.

The process replaces it about once a second and removes it when compiling ends. Standard library only.
"""

import os
import socket
from contextlib import suppress
from dataclasses import dataclass

from tb_torchcompile_plugin.logdir.filesystem import is_running

STALE_S = 10.0  # without an update: the process was killed, or its machine has ended
MAX_BYTES = 2_000
MAX_TEXT = 120  # characters of each text, which may take four bytes each; its end is kept


@dataclass(frozen=True)
class CompileStatus:
    """What a process compiles at one moment. Unknown is null, or "" for a text."""

    host: str  # of `host_name`
    pid: int
    rank: int | None
    updated_s: float  # Unix time
    seconds: float  # since this compilation began
    compilations: int  # that have begun, this one included; backwards do not count
    compile_id: str
    frame: str  # such as "forward (train.py:58)"
    direction: str  # forward or backward
    phase: str  # one of torch_names.records.PHASES
    attempt: int  # from 1
    kernels_done: int | None  # of Triton, in this compilation
    kernels: int | None  # that were sent to the compile workers until now
    autotuning: str  # the operator or kernel that is being tuned

    @property
    def state(self) -> tuple[object, ...]:
        """What a line is printed for when it changes."""
        return self.compile_id, self.direction, self.phase, self.attempt, self.autotuning

    def is_current(self, now_s: float) -> bool:
        """Whether the process still compiles: not if the file is old, or if the process is gone on this machine."""
        is_fresh = abs(now_s - self.updated_s) <= STALE_S
        return is_fresh and (self.host != host_name() or is_running(self.pid))

    def in_words(self) -> str:
        """Return "forward (train.py:58), 0/1 backward, inductor, 41 s, Triton kernels 12 of 40"."""
        phase = "Triton or C++" if self.phase == "triton" else self.phase
        parts = [
            self.frame,
            f"{self.compile_id} {self.direction}".strip(),
            f"{phase} of {self.autotuning}" if self.autotuning else phase,
            f"attempt {self.attempt}" if self.attempt > 1 else "",
            f"{self.seconds:.0f} s",
            f"Triton kernels {self.kernels_done} of {self.kernels}" if self.kernels else "",
        ]
        return ", ".join(filter(None, parts))


def host_name() -> str:
    """Return the machine within which a process id has one meaning: containers may share the name of their host."""
    namespace = "?"
    with suppress(OSError):  # not Linux
        namespace = os.readlink("/proc/self/ns/pid")
    return f"{socket.gethostname()} {namespace}"
