"""torch's own table of operators beside ours, row by row, in integers: nanoseconds, bytes, counts."""

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from tb_torchcompile_plugin.analysis.runtime.operators import Operator

FIELDS = {
    "calls": "count",
    "self_host_us": "self_cpu_time_total",
    "host_us": "cpu_time_total",
    "self_device_us": "self_device_time_total",
    "device_us": "device_time_total",
    "self_cpu_memory_bytes": "self_cpu_memory_usage",
    "cpu_memory_bytes": "cpu_memory_usage",
    "self_device_memory_bytes": "self_device_memory_usage",
    "device_memory_bytes": "device_memory_usage",
    "flops": "flops",
}
Key = tuple[str, bool, str]  # name, whether it is a label, shapes
Row = dict[str, int]


def ours(rows: Iterable[Operator], by_shape: bool = False) -> dict[Key, Row]:
    table: dict[Key, Row] = defaultdict(lambda: dict.fromkeys(FIELDS, 0))
    for row in rows:
        into = table[row.name, row.kind == "label", _shapes(row.part) if by_shape else ""]
        for field in FIELDS:
            into[field] += _whole(field, getattr(row, field))
    return dict(table)


def torchs(rows: Iterable[dict[str, Any]], by_shape: bool = False) -> dict[Key, Row]:
    """Without Python functions, the GPU's rows, and memory that no operator asked for."""
    return {
        (row["key"], bool(row["is_user_annotation"]), row["input_shapes"] if by_shape else ""): {
            field: _whole(field, row[theirs]) for field, theirs in FIELDS.items()
        }
        for row in rows
        if row["device_type"] == "DeviceType.CPU" and row["key"] != "[memory]"
    }


def _whole(field: str, value: float | None) -> int:
    return round(1000 * (value or 0)) if field.endswith("_us") else int(value or 0)


def _shapes(text: str | None) -> str:
    """torch's table writes [] for a list of tensors, and for a call without inputs; the trace has every shape."""
    return str(
        [[] if any(isinstance(size, list) for size in shape) else shape for shape in json.loads(text or "[]")]
    )
