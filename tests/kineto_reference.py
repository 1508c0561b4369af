"""A second, plain reader for comparison: json.loads, one loop per question, no cleverness."""

import gzip
import json
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

GPU = ("kernel", "gpu_memcpy", "gpu_memset")
FIELDS = {
    "correlation": "correlation",
    "external_id": "External id",
    "device": "device",
    "stream": "stream",
    "sequence": "Sequence number",
    "forward_thread": "Fwd thread id",
}
# what each sort of slice may carry; a value in the args of another sort is no id of it
CARRIED = {
    "gpu": ("correlation", "external_id", "device", "stream"),
    "runtime": ("correlation", "external_id"),
    "python": (),
    "host": ("correlation", "external_id", "sequence", "forward_thread", "device", "stream"),
}


@dataclass
class Row:
    """One slice."""

    event: int
    name: str
    cat: str
    track: tuple[Any, Any]
    ts: int
    dur: int
    ids: dict[str, int]
    args: dict[str, Any]
    parent: int = -1
    depth: int = 0
    own: int = 0
    end: int = 0


def read(path: Path) -> list[Row]:
    """The slices of a trace, as a table in the order of `Trace`."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    document = json.loads(text, parse_float=Decimal)
    events = document if isinstance(document, list) else document["traceEvents"]
    rows = [_row(number, event) for number, event in enumerate(events) if event.get("ph") == "X"]
    rows.sort(key=lambda row: (_key(row.track), row.ts, -row.dur, row.event))
    _nest(rows)
    return rows


def _row(number: int, event: dict[str, Any]) -> Row:
    args = event.get("args") or {}
    cat = event.get("cat")
    sort = "gpu" if cat in GPU else "runtime" if cat in ("cuda_runtime", "cuda_driver") else "host"
    carried = CARRIED["python" if cat == "python_function" else sort]
    ids = {column: _int(args.get(key)) if column in carried else -1 for column, key in FIELDS.items()}
    track = (event.get("pid", ""), event.get("tid", ""))
    return Row(number, event["name"], cat or "", track, _ns(event["ts"]), _ns(event["dur"]), ids, args)


def _int(value: Any) -> int:
    try:
        return -1 if value is None else int(value)
    except ValueError:
        return -1


def _ns(us: Any) -> int:
    exact = Decimal(us) * 1000
    assert exact == int(exact)
    return int(exact)


def _key(value: Any) -> Any:
    return tuple(map(_key, value)) if isinstance(value, tuple) else (isinstance(value, str), value)


def _nest(rows: list[Row]) -> None:
    stack: list[int] = []
    for index, row in enumerate(rows):
        if stack and rows[stack[-1]].track != row.track:
            stack = []
        while stack and rows[stack[-1]].end <= row.ts:
            stack.pop()
        row.end = row.ts + row.dur
        if stack:
            row.parent = stack[-1]
            row.end = min(row.end, rows[row.parent].end)
            rows[row.parent].own -= row.end - row.ts
        row.depth = len(stack)
        row.own += row.end - row.ts
        stack.append(index)
