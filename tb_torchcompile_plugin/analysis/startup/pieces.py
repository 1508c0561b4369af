"""Time cut into pieces, each with the innermost of the spans around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple


class TimePiece(NamedTuple):
    """Some ns in which nothing begins or ends. span: the place of the innermost span, None between spans."""

    start_ns: int
    end_ns: int
    span: int | None


def pieces(spans: Sequence[tuple[int, int]], begin_ns: int, end_ns: int) -> Iterator[TimePiece]:
    """All of [begin_ns, end_ns), in order. spans: (start, end) in ns. The innermost began last; of several that began
    at once it is the one that ends first, and then the last in the list. O(n log n)."""
    order = sorted(range(len(spans)), key=lambda place: spans[place])
    edges = {begin_ns, end_ns, *(ns for span in spans for ns in span if begin_ns < ns < end_ns)}
    times = sorted(edges)
    open_spans: list[tuple[int, int, int]] = []
    waiting = iter(order)
    following = next(waiting, None)
    for start, end in pairwise(times):
        while following is not None and spans[following][0] <= start:
            heappush(open_spans, (-spans[following][0], spans[following][1], -following))
            following = next(waiting, None)
        while open_spans and open_spans[0][1] <= start:
            heappop(open_spans)
        yield TimePiece(start, end, -open_spans[0][2] if open_spans else None)
