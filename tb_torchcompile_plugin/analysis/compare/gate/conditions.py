"""`step>3%`, `breaks>0`, `kernel:triton_*>10%`: which rise of which metric is too much."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from tb_torchcompile_plugin.analysis.compare.gate.metrics import METRICS, Unit
from tb_torchcompile_plugin.errors import UserError

_CONDITION = re.compile(
    r"\s*(?P<metric>[A-Za-z_]+)\s*(?::(?P<pattern>.+?))?\s*(?P<op>>=?)\s*(?P<amount>\d+(?:\.\d+)?)\s*(?P<unit>%|[A-Za-zµ]*)\s*"
)
_UNITS: dict[Unit, dict[str, float]] = {
    "count": {"": 1},
    "time": {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9},
    "bytes": {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30},
}
ALLOWED = ("unknown", "gpu", "torch", "world-size")
_KEYS = {"fail_on", "allow", "name"}


class WrongGate(UserError):
    """A condition or a setting of the gate that cannot be read: a wrong argument."""


class Condition(msgspec.Struct, frozen=True):
    """It holds where the metric rose by more than `amount`: of the base where `percent`, else in the metric's unit (ns,
    bytes, a count). inclusive: by as much, too. pattern: of kernel names, "" for a metric without."""

    text: str
    metric: str
    pattern: str
    inclusive: bool
    amount: float
    percent: bool

    def holds(self, base: int, head: int) -> bool:
        bound = self.amount * base / 100 if self.percent else self.amount
        return head - base > bound or (self.inclusive and head - base == bound)


class GateSettings(msgspec.Struct, frozen=True):
    """conditions: of --fail-on. allow: of ALLOWED, what does not end the gate. name: of what is measured, for other
    programs that read its files."""

    conditions: list[Condition]
    allow: list[str]
    name: str


def condition_of(text: str) -> Condition:
    """Raises WrongGate, which names the condition and what there is."""
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise _wrong(text, "is no condition", "Write one like 'step>3%', 'breaks>0', 'kernel:triton_*>10%'")
    metric, pattern, unit = match["metric"], match["pattern"] or "", match["unit"]
    if metric not in METRICS:
        raise _wrong(text, f"asks for {metric!r}", f"There are {', '.join(METRICS)}")
    if pattern and not METRICS[metric].by_name:
        known = ", ".join(name for name, one in METRICS.items() if one.by_name)
        raise _wrong(text, f"has a pattern, and {metric} has no names", f"Names have: {known}")
    units = _UNITS[METRICS[metric].unit]
    amount = float(match["amount"])
    if unit != "%" and unit not in units and (unit or amount):
        there = ", ".join(["%", *(one or "none" for one in units)])
        raise _wrong(text, f"has the unit {unit!r}" if unit else "has no unit", f"Those of {metric}: {there}")
    return Condition(
        text.strip(), metric, pattern.strip(), match["op"] == ">=", amount * units.get(unit, 1), unit == "%"
    )


def settings_of(
    fail_on: Sequence[str],
    allow: Sequence[str],
    name: str,
    document: dict[str, Any] | None = None,
    file: str = "",
) -> GateSettings:
    """Of the command line, and before it of the table [gate] of a TOML document. Raises WrongGate."""
    table = {} if document is None else _table(document, file)
    allowed = [*_texts(table, "allow", file), *allow]
    if unknown := [one for one in allowed if one not in ALLOWED]:
        raise WrongGate(f"{unknown[0]!r} cannot be allowed", next_step=f"What can: {', '.join(ALLOWED)}")
    wanted = dict.fromkeys([*_texts(table, "fail_on", file), *fail_on])
    return GateSettings([condition_of(text) for text in wanted], allowed, name or str(table.get("name", "")))


def _table(document: dict[str, Any], file: str) -> dict[str, Any]:
    table = document.get("gate")
    if not isinstance(table, dict):
        raise WrongGate("has no table [gate]", file=file, next_step='Write one, with fail_on = ["step>3%"]')
    if wrong := sorted(set(table) - _KEYS):
        raise WrongGate(
            f"has {', '.join(wrong)} in [gate]", file=file, next_step=f"There are {', '.join(sorted(_KEYS))}"
        )
    return table


def _texts(table: dict[str, Any], key: str, file: str) -> list[str]:
    values = table.get(key, [])
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
        raise WrongGate(f"{key} is no list of texts", file=file, next_step=f'Write {key} = ["…"]')
    return values


def _wrong(text: str, what: str, next_step: str) -> WrongGate:
    return WrongGate(f"the condition {text!r} {what}", next_step=next_step)
