"""Hypothesis strategies for trace files: any layout, key order, escape and nesting that is valid JSON."""

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

_TRAPS = (
    *('}, {"ph": "X", "name": "', "}, {", "},\n  {", "]}", '"}]', '"', "\\", '\\"', '{"ph":'),
    *('"traceEvents": [', "ünïcödé \U0001f600", "\x01\x1f\t", ", ", ": "),
)
names = st.one_of(
    st.sampled_from(["aten::mm", "ProfilerStep#1", "triton_poi_fused_0", "[memory]", ""]),
    st.lists(st.sampled_from(_TRAPS) | st.text('ab{}[],:"\\ é', max_size=6), max_size=4).map("".join),
)
_times = st.integers(0, 60) | st.integers(0, 5000)
_late = st.integers(8_700_000_000_000_000, 8_700_000_000_000_300)  # ns; near what a float holds in µs
_long_ago = st.integers(
    1_700_000_000_000_000_123, 1_700_000_000_000_100_123
)  # epoch, as old profilers wrote it
_ids = st.integers(0, 50) | st.integers(2**40, 2**62)
_pids = st.sampled_from([1, 1, 1, 1, 1, 1, 2, 7, "7", "Spans", ""])
_events_in_args = st.lists(
    st.fixed_dictionaries({"ph": st.just("X"), "name": names, "ts": st.just(1), "dur": st.just(1)}),
    max_size=3,
)
_args = st.fixed_dictionaries(
    {},
    optional={
        "External id": _ids,
        "correlation": _ids,
        "Sequence number": _ids,
        "Fwd thread id": _ids,
        "device": st.integers(0, 7),
        "stream": st.integers(0, 30) | st.integers(0, 30).map(str) | st.none(),
        "Python id": _ids,
        "Python parent id": _ids | st.none(),
        "Input Dims": st.just([[5, 3], []]) | st.just([]),
        "Input type": st.just(["float", ""]),
        "grid": st.just([2, 6, 1]) | st.just("[2, 6, 1]"),
        "nested": _events_in_args,
        "deep": st.recursive(
            names, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2)
        ),
    },
)


def _us(ns: int) -> Decimal:
    return Decimal(ns).scaleb(-3)


def _slice(times: st.SearchStrategy[int]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "ph": st.just("X"),
            "cat": st.sampled_from(
                ["cpu_op", "kernel", "python_function", "cuda_runtime", "Trace", "gpu_memcpy"]
            ),
            "name": names,
            "pid": _pids,
            "tid": _pids,
            "ts": times.map(_us),
            "dur": (st.sampled_from([0, 1, 7]) | st.integers(0, 60) | st.integers(0, 3000)).map(_us),
        },
        optional={"args": _args, "id": _ids},
    )


_where = {"pid": _pids, "tid": _pids}
_flow = st.fixed_dictionaries(
    {
        "ph": st.sampled_from(["s", "f"]),
        "id": _ids,
        **_where,
        "ts": _times.map(_us),
        "cat": st.sampled_from(["ac2g", "fwdbwd"]),
        "name": st.just("x"),
    }
)
_label = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["process_name", "thread_name", "process_labels"]),
        "ph": st.just("M"),
        **_where,
        "args": st.fixed_dictionaries({"name": names}),
    }
)
_instant = st.fixed_dictionaries(
    {
        "ph": st.just("i"),
        "name": st.just("[memory]"),
        **_where,
        "ts": _times.map(_us),
        "args": st.fixed_dictionaries({"Bytes": st.integers(-99, 99), "Total Allocated": _ids}),
    }
)
_others = _flow | _label | _instant


@dataclass(frozen=True)
class Layout:
    """How a document is written."""

    between_events: str
    after_comma: str
    colon: str
    ascii_only: bool
    bare_array: bool
    keys_after: bool


layouts = st.builds(
    Layout,
    between_events=st.sampled_from(["", " ", "\n  ", "\n", "\r\n\t  "]),
    after_comma=st.sampled_from(["", " ", "\n    "]),
    colon=st.sampled_from([":", ": ", " : "]),
    ascii_only=st.booleans(),
    bare_array=st.booleans(),
    keys_after=st.booleans(),
)


@st.composite
def documents(draw: st.DrawFn, max_events: int = 30) -> str:
    """The text of a trace."""
    times = draw(st.sampled_from([_times, _times, _late, _long_ago]))
    # left to itself hypothesis draws documents with one or two slices
    count = draw(st.sampled_from([0, 1, 2, max_events // 2, max_events]))
    kinds = st.integers(0, 4).flatmap(lambda kind: _others if kind == 4 else _slice(times))
    events = draw(st.lists(kinds, min_size=count, max_size=count))
    if draw(st.booleans()):
        events = [dict(draw(st.permutations(list(event.items())))) for event in events]
    return write(events, draw(layouts))


def write(events: list[dict[str, Any]], layout: Layout) -> str:
    """The text of these events."""
    gap = layout.between_events
    array = "[" + gap + f"{gap},{gap}".join(_dump(event, layout) for event in events) + gap + "]"
    if layout.bare_array:
        return array
    info = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "}, {"}, {"id": 1, "name": "x"}]}
    tail = {"traceName": "a]}b", "distributedInfo": {"rank": 0, "pg_config": [{"ph": 1}, {"ph": 2}]}}
    before, behind = (info, tail) if layout.keys_after else ({**info, **tail}, {})
    parts = [_pair(key, value, layout) for key, value in before.items()]
    parts.append(f'"traceEvents"{layout.colon}{array}')
    parts += [_pair(key, value, layout) for key, value in behind.items()]
    return "{" + gap + f",{gap}".join(parts) + gap + "}"


def _pair(key: str, value: Any, layout: Layout) -> str:
    return json.dumps(key, ensure_ascii=layout.ascii_only) + layout.colon + _dump(value, layout)


def _dump(value: Any, layout: Layout) -> str:
    comma = "," + layout.after_comma
    if isinstance(value, dict):
        return "{" + comma.join(_pair(key, item, layout) for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + comma.join(_dump(item, layout) for item in value) + "]"
    if isinstance(value, Decimal):
        return f"{value:.3f}"
    return json.dumps(value, ensure_ascii=layout.ascii_only)
