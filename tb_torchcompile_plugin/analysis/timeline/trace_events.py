"""Write results of analyses as events of a trace, for Perfetto and other programs that open such files."""

from collections.abc import Iterator
from decimal import Decimal

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.runtime.source_lines import line_launches
from tb_torchcompile_plugin.analysis.timeline.lanes import Item, ItemSlices
from tb_torchcompile_plugin.analysis.timeline.timeline import Timeline
from tb_torchcompile_plugin.errors import visible_json
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.torch_names.slices import LANE_CAT

_PROCESS = "torch.compile"
_encode = msgspec.json.Encoder(decimal_format="number").encode


def lane_events(timeline: Timeline, start: int, end: int) -> Iterator[bytes]:
    """Yield the items that touch [start, end] ns of the timeline as JSON events of a process of their own."""
    yield _encode({"ph": "M", "name": "process_sort_index", "pid": _PROCESS, "args": {"sort_index": -1}})
    for title, lane in grouped(_items(timeline, start, end), lambda pair: pair[0]).items():
        slices = ItemSlices.of([item for _, item in lane])
        ends, inner = slices.start + slices.dur, np.flatnonzero(slices.line).tolist()
        # Programs that draw slices expect that each ends within the one around it on its thread.
        are_nested = all(ends[row] <= ends[slices.parent(row)] for row in inner)
        for line, item in zip(slices.line.tolist(), slices.items):
            thread = title if are_nested or not line else f"{title} ({line + 1})"
            yield _event(item, thread, timeline.origin)


def _items(timeline: Timeline, start: int, end: int) -> Iterator[tuple[str, Item]]:
    """Yield what there is, with the title of its lane: items of the timeline, then the category of each kernel."""
    for lane in timeline.lanes:
        slices = timeline.slices.get(lane.id)
        title = f"{lane.title}, {lane.group}" if lane.kind == "gaps" else lane.title
        for item in slices.items if isinstance(slices, ItemSlices) else ():
            if item.start <= end and item.start + item.dur >= start:
                yield title, item
    trace = timeline.profile.trace
    for kernel, rows, at, lines, modules, _ in timeline.profile.of(line_launches):
        title = f"Kernel categories, {'CPU' if kernel.device == 'cpu' else f'GPU {kernel.device}'}"
        places = [line.key for line in lines]
        facts = {"kernel": kernel.name, "graph_key": kernel.graph_key, "lines": places, "modules": modules}
        begin = trace.ts[rows.index[at]] - timeline.origin
        for time, duration in zip(begin.tolist(), rows.dur[at].tolist()):
            if time <= end and time + duration >= start:
                yield title, Item(kernel.category, time, duration, "", None, kernel.compile_id, facts=facts)


def _event(item: Item, thread: str, origin: int) -> bytes:
    cause = item.color.partition("gap_")[2].replace("_", " ")  # of idle time, which has the name of host work
    args = {"compile_id": item.compile_id, "host": cause and item.name, **item.facts}
    fields = {"ph": "X", "cat": LANE_CAT, "name": cause or item.name, "pid": _PROCESS, "tid": thread}
    # As torch writes them: µs with all digits of a nanosecond, on the clock of the trace.
    times = {"ts": Decimal(item.start + origin).scaleb(-3), "dur": Decimal(item.dur).scaleb(-3)}
    known = {name: value for name, value in args.items() if value not in (None, "", [])}
    return visible_json(_encode({**fields, **times, "args": known}))
