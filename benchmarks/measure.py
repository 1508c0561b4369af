"""Measure CPU time, wall time and memory of a program and all the processes it starts."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

_INTERVAL_S = 0.02  # between two readings of /proc


@dataclass(frozen=True)
class Measured:
    """What a command cost."""

    wall_s: float
    cpu_s: float
    # The largest sum of the processes' proportional set sizes, read every 20 ms. It counts a page shared by two
    # processes once, and pages of mapped files that were touched as well.
    peak_mb: float
    output: str
    failed: bool


def measure(command: list[str]) -> Measured:
    """Run a command to its end. Its CPU time includes that of processes it has waited for."""
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    peak = 0.0
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        peak = max(peak, sum(map(pss_mb, _tree(process.pid))))
        time.sleep(_INTERVAL_S)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.stdout is not None
    output = process.stdout.read().strip()
    process.stdout.close()
    wall = time.monotonic() - started
    return Measured(wall, usage.ru_utime + usage.ru_stime, peak, output, process.returncode != 0)


def _tree(pid: int) -> list[int]:
    pids = [pid]
    for parent in pids:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                pids += map(int, task.read_text().split())
            except OSError:
                continue
    return pids


def pss_mb(pid: int) -> float:
    """Return the proportional set size of a process; 0 if it has ended."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024 / 1e6
    except OSError:
        pass
    return 0.0
