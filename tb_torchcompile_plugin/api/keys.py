"""What tells a row of a table from the others of it: its `key`, or all that it says by name and not by measure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from tb_torchcompile_plugin.analysis.runtime.kernel_rows import brief

NONE = "all"  # of a table with one row, which has no name
# Fields that name something, whatever table they are in.
NAMES = frozenset(
    (
        *(
            "rule",
            "row",
            "fix",
            "kind",
            "cause",
            "name",
            "function",
            "parent",
            "op",
            "group",
            "dtype",
            "frame",
        ),
        *(
            "file",
            "line",
            "compile_id",
            "resume_compile_id",
            "epoch",
            "direction",
            "graph_key",
            "graph",
            "limit",
        ),
        *(
            "device",
            "stream",
            "thread",
            "rank",
            "for_rank",
            "host",
            "step",
            "category",
            "part",
            "cache",
            "kernel",
        ),
        *("message_bytes", "size_bytes", "group_size", "beside", "operator", "id", "config", "subject"),
    )
)


def key_of(row: msgspec.Struct) -> str:
    """Without regard to other rows."""
    if own := getattr(row, "key", ""):
        return str(own)
    named = (getattr(row, field) for field in row.__struct_fields__ if field in NAMES)
    return ",".join(dict.fromkeys(_parts(named))) or NONE


def _parts(values: Iterable[object]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str | int) and value != "":
            yield brief(str(value))
