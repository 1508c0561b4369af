"""The timeline by its definition, slowly: from the events of the file, in plain loops."""

import json
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Place = tuple[Any, Any]  # pid, tid


@dataclass
class Slice:
    """clipped: where it ends inside of its parent, which it crosses if it lasts longer."""

    name: str
    cat: str
    start: int
    end: int
    clipped: int
    parent: "Slice | None" = None
    depth: int = 0
    crosses: bool = False


@dataclass(frozen=True)
class Rectangle:
    """The slices of one bucket and line: what `timeline_window` answers of them."""

    start: int
    end: int
    covered: int
    size: int
    name: str
    longest: int


def slices_of(path: Path) -> dict[Place, list[Slice]]:
    """By thread or stream, in order of (start, longest first), with depth and whether they outlast their parent."""
    document = json.loads(path.read_text())
    tracks: dict[Place, list[Slice]] = defaultdict(list)
    for event in document["traceEvents"]:
        if event.get("ph") == "X":
            start = ns(event["ts"])
            end = start + ns(event["dur"])
            tracks[event["pid"], event["tid"]].append(Slice(event["name"], event["cat"], start, end, end))
    for slices in tracks.values():
        slices.sort(key=lambda one: (one.start, -one.end))
        _nest(slices)
    return tracks


def ns(us: float) -> int:
    """Whole ns; the file has µs."""
    whole = int(us // 1)
    return whole * 1000 + round((us - whole) * 1000)


def _nest(slices: list[Slice]) -> None:
    stack: list[Slice] = []
    for one in slices:
        while stack and stack[-1].clipped <= one.start:
            stack.pop()
        if stack:
            one.parent, one.clipped = stack[-1], min(one.end, stack[-1].clipped)
        one.depth, one.crosses = len(stack), one.clipped < one.end
        stack.append(one)


def rectangles(line: list[Slice], start: int, end: int, shift: int) -> list[Rectangle]:
    """What one line shows of the buckets of 2^shift ns from `start` to `end`."""
    runs: list[list[Slice]] = []
    low = bisect_left(line, start - (1 << shift), key=lambda one: one.start)
    for one in line[max(0, low - 1) : bisect_left(line, end, key=lambda one: one.start)]:
        long = one.end - one.start >= 1 << shift
        last = runs[-1][-1] if runs else None
        joins = (
            shift > 0
            and last is not None
            and not long
            and last.end - last.start < 1 << shift
            and one.start >> shift == last.start >> shift
        )
        if joins:
            runs[-1].append(one)
        else:
            runs.append([one])
    drawn = [_rectangle(run) for run in runs]
    return [one for one in drawn if one.start < end and (one.end > start or one.start >= start)]


def _rectangle(run: list[Slice]) -> Rectangle:
    longest = max(run, key=lambda one: one.end - one.start)
    covered, longest_ns = sum(one.end - one.start for one in run), longest.end - longest.start
    return Rectangle(run[0].start, run[-1].end, covered, len(run), longest.name, longest_ns)
