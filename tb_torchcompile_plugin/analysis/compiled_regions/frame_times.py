"""Where does the host time of a compiled frame go?

Frame time runs from the start of the outermost lookup to the end of its region. Each nanosecond of it belongs to the
first that holds of: graph execution, guards, overhead, called frames, breaks, other. So the parts sum to the frame
time whatever crosses or nests; where nothing crosses they are the plain sums.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from tb_torchcompile_plugin.profile.compiled import regions
from tb_torchcompile_plugin.profile.compiled.regions import compiling, resumes
from tb_torchcompile_plugin.profile.intervals import Intervals
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.units import us

_OTHER = "other"


class FrameTime(msgspec.Struct, frozen=True):
    """One row per compile id that begins a frame, its resumes included. `breaks_us` is the gaps between graphs less the
    guards and the overhead of the regions that resume; `called_us` is other compiled frames called from this one.
    Where the trace does not mark overhead (None), it is part of the others."""

    compile_id: str
    calls: int
    frame_us: float
    guards_us: float
    overhead_us: float | None
    graphs_us: float
    breaks_us: float
    called_us: float
    other_us: float


def frame_times(profile: Profile) -> list[FrameTime] | None:
    """Rows in order of first call; None where nothing tells resumes from called frames."""
    if profile.of(resumes) is None:
        return None
    overhead_marked = regions.marks_overhead(profile.trace)
    parts: dict[str, Counter[str]] = defaultdict(Counter)
    count, whole = Counter[str](), Counter[str]()
    for frame in regions.frames(profile.of(regions.region_calls)):
        count[frame.compile_id] += 1
        whole[frame.compile_id] += frame.end - frame.begin
        parts[frame.compile_id].update(
            _parts(frame, profile.of(compiling, int(profile.trace.track[frame.index])))
        )
    for compile_id, of_frame in parts.items():
        assert sum(of_frame.values()) == whole[compile_id]
    return [
        _row(name, count[name], whole[name], of_frame, overhead_marked) for name, of_frame in parts.items()
    ]


def frame_parts(frame: regions.RegionCall, compiled: Intervals) -> Iterator[tuple[str, int, int]]:
    """(part, start, end) in ns: the time of one frame cut into the parts of `FrameTime`, in order of time.

    They neither overlap nor leave a gap. What was compiled while a graph was broken is no part of the break.
    """
    chain = list(frame.chain())
    first, last = np.searchsorted(compiled.ends, frame.begin), np.searchsorted(compiled.starts, frame.end)
    here = (edges[first:last].tolist() for edges in compiled)
    layers: list[tuple[str, list[regions.Moment]]] = [
        ("graphs", [moment for call in chain for moment in call.graphs]),
        ("guards", [moment for call in chain for moment in call.lookups]),
        ("overhead", [moment for call in chain for moment in call.overhead]),
        ("called", [(one.begin, one.end) for call in chain for one in call.nested if not one.resume]),
        (_OTHER, list(zip(*here, strict=True))),
        ("breaks", [(gap.start, gap.end) for gap in regions.breaks(frame)]),
    ]
    return _split(frame.begin, frame.end, layers)


def _parts(frame: regions.RegionCall, compiled: Intervals) -> Counter[str]:
    parts = Counter[str]()
    for part, start, end in frame_parts(frame, compiled):
        parts[part] += end - start
    return parts


def _split(
    begin: int, end: int, layers: Sequence[tuple[str, list[regions.Moment]]]
) -> Iterator[tuple[str, int, int]]:
    """[begin, end) in pieces, each of the first layer that covers it."""
    changes = [(begin, len(layers), 1), (end, len(layers), -1)]
    for rank, (_, moments) in enumerate(layers):
        for start, stop in moments:
            start, stop = max(start, begin), min(stop, end)
            if start < stop:
                changes += [(start, rank, 1), (stop, rank, -1)]
    names = [*(name for name, _ in layers), _OTHER]
    depth = [0] * len(names)
    last = begin
    for time, rank, change in sorted(changes):
        if time > last:
            yield names[next(index for index, running in enumerate(depth) if running)], last, time
            last = time
        depth[rank] += change


def _row(compile_id: str, calls: int, whole: int, parts: Counter[str], overhead_marked: bool) -> FrameTime:
    return FrameTime(
        compile_id=compile_id,
        calls=calls,
        frame_us=us(whole),
        guards_us=us(parts["guards"]),
        overhead_us=us(parts["overhead"]) if overhead_marked else None,
        graphs_us=us(parts["graphs"]),
        breaks_us=us(parts["breaks"]),
        called_us=us(parts["called"]),
        other_us=us(parts[_OTHER]),
    )
