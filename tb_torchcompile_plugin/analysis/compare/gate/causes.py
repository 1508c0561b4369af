"""What made a metric rise: the kernels, breaks and functions of which there is more than before, with their lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

import msgspec

from tb_torchcompile_plugin.analysis.compare.gate.measures import MeasuredItem, MeasuredRun
from tb_torchcompile_plugin.analysis.compare.gate.metrics import METRICS, Unit
from tb_torchcompile_plugin.analysis.compare.pairs import change_percent, pair
from tb_torchcompile_plugin.analysis.words import duration, signed, size
from tb_torchcompile_plugin.compile_log.counts import COUNTS
from tb_torchcompile_plugin.reader.arrays import grouped

_MOST = 3
_TEXTS: dict[Unit, Callable[[float], str]] = {
    "time": lambda ns: duration(ns / 1000),
    "bytes": size,
    "count": "{:,.0f}".format,
}


class GateCause(msgspec.Struct, frozen=True):
    """where: "folder/file.py:12", "" where no line is known. change: in the metric's unit."""

    text: str
    where: str
    change: int


def in_unit(unit: Unit, value: float | None) -> str:
    """ "13.0 ms", "95.0 MB", "4"; a dash where it is unknown."""
    return "–" if value is None else _TEXTS[unit](value)


def change_in_unit(unit: Unit, base: float | None, head: float | None) -> str:
    """ "+550 µs (+4.21 %)", "equal"; a dash where a side is unknown."""
    if base is None or head is None:
        return "–"
    if base == head:
        return "equal"
    return signed(head - base, _TEXTS[unit]) + change_percent(pair(base, head))


def causes(metric: str, pattern: str, base: MeasuredRun, head: MeasuredRun) -> list[GateCause]:
    """The largest rises, three at most."""
    unit = METRICS[metric].unit
    before, after = (grouped(_items(one, metric, pattern), lambda item: item.key) for one in (base, head))
    rises = {key: _sum(items) - _sum(before.get(key, [])) for key, items in after.items()}
    largest = sorted((key for key in rises if rises[key] > 0), key=lambda key: -rises[key])[:_MOST]
    return [_cause(metric, unit, before.get(key, []), after[key]) for key in largest]


def _items(one: MeasuredRun, metric: str, pattern: str) -> list[MeasuredItem]:
    """Of a step also what its kernels take."""
    metrics = (metric, "kernel") if metric == "step" else (metric,)
    rows = [item for name in metrics for item in one.measures[name].items]
    return [item for item in rows if not pattern or fnmatchcase(item.what, pattern)]


def _sum(items: Sequence[MeasuredItem]) -> int:
    return sum(item.value for item in items)


def _cause(metric: str, unit: Unit, before: list[MeasuredItem], after: list[MeasuredItem]) -> GateCause:
    """At a line that was not there before, if there is one."""
    known = {item.line for item in before}
    item = max(after, key=lambda item: (item.line not in known, item.value))
    base, head = _sum(before), _sum(after)
    kind = next((kind for name, kind in COUNTS.items() if name == metric), None)
    what = item.what if kind is None or item.what == kind.one else f"{kind.one} of {item.what}"
    text = f"{what}: {item.why}" if item.why else what
    rose = f"+{head - base:,}" if unit == "count" else change_in_unit(unit, base, head)
    change = "" if rose == "+1" else f", {rose}"
    where = item.file if item.line is None else f"{item.file}:{item.line}"
    return GateCause(text + change, where, head - base)
