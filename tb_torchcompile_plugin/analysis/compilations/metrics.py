"""Everything that torch wrote into its compilation metrics, grouped; fields that are new to us among them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tb_torchcompile_plugin.compile_log.record import Direction
from tb_torchcompile_plugin.compile_log.summary_pb2 import BACKWARD, FORWARD, CompileKey
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.records import GROUPS

_GROUP_OF = {name: group for group, names in GROUPS.items() for name in names.split()}


class Metric(msgspec.Struct, frozen=True):
    """One field. `value` is JSON text. `known`: a field of a torch version that this was made for.

    runtime: written when the compiled code first ran, not while compiling. record: which record of its kind, from 0
    (DDP compiles several backwards for one compile id).
    """

    group: str
    name: str
    value: str
    known: bool
    direction: Direction
    runtime: bool
    record: int


def metrics(data: CompileData, epoch: int, compile_id: str) -> list[Metric]:
    """All fields of all metrics records of one compile id that are not null, record by record, by group, then name."""
    wanted = CompileKey(epoch=epoch, compile_id=compile_id)
    rows: list[Metric] = []
    for runtime, messages in ((False, data.summary.compilations), (True, data.summary.runtime_metrics)):
        for code in (FORWARD, BACKWARD):
            mine = [row for row in messages if row.key == wanted and row.direction == code and row.metrics]
            for record, row in enumerate(mine):
                rows += _fields(row.metrics, "backward" if code == BACKWARD else "forward", runtime, record)
    return sorted(rows, key=lambda row: (row.direction == "backward", row.runtime, row.record))


def _fields(values: Mapping[str, str], direction: Direction, runtime: bool, record: int) -> list[Metric]:
    rows = [
        Metric(_GROUP_OF.get(name, "other"), name, value, name in _GROUP_OF, direction, runtime, record)
        for name, value in values.items()
    ]
    order = {group: place for place, group in enumerate(GROUPS)}
    return sorted(rows, key=lambda row: (order.get(row.group, len(order)), row.name))
