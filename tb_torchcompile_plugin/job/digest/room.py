"""How much of a long recording its digest holds: whole steps from the first one on, as many as fit.

Steps are halved until they do, so that the ranks of a job, which recorded about the same, mostly hold the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tb_torchcompile_plugin.job.digest.digest_pb2 import DigestNotice

MOST_BYTES = 100_000
LARGEST = MOST_BYTES - 8  # a file tells its format, too
_WHOLE = "The trace holds all of it"


class Room(NamedTuple):
    """In bytes, for collectives and steps, for what was compiled, and for the host with its kernels."""

    calls: int
    compiled: int
    host: int


UNLIMITED = Room(1 << 40, 1 << 40, 1 << 40)
ROOM = Room(45_000, 15_000, 35_000)


def fitting(make: Callable[[int], list[bytes]], most: int, room: int) -> tuple[list[bytes], int]:
    """What is made of the first `count` of something, and that count: all, or halved until it fits; 0 fits always."""
    count = most
    while sum(map(len, made := make(count))) > room and count:
        count //= 2
    return made, count


def left_out(what: str, kept: int, of: int) -> list[DigestNotice]:
    """That of so many only the first ones are there; [] where all are."""
    if kept >= of:
        return []
    problem = f"too long for a digest: of {of} {what} it holds {f'the first {kept}' if kept else 'none'}"
    return [DigestNotice(problem=problem, kept=_WHOLE, next_step="Record fewer steps")]
