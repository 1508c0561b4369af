"""When this process began, as its operating system tells it, and when this package was imported."""

from __future__ import annotations

import os
import time

_STAT, _START_FIELD = "/proc/self/stat", 19  # counted behind the name, which may hold anything


def process_start_ns() -> int | None:
    """Unix time, to a hundredth of a second; None where the system does not tell it as Linux does."""
    try:
        with open(_STAT, "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[_START_FIELD])
        since_boot_ns = ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        age_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - since_boot_ns
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    return time.time_ns() - age_ns if ticks > 0 and age_ns >= 0 else None
