"""Which conditions does a gate check? Those of the command line, and of the table [gate] of a TOML file."""

import re
from collections.abc import Sequence

import msgspec

from tb_torchcompile_plugin.analysis.compare.measures import METRICS, Unit
from tb_torchcompile_plugin.errors import UserError

_CONDITION = re.compile(
    r"\s*(?P<metric>[A-Za-z_]+)\s*(?::(?P<pattern>.+?))?\s*(?P<op>>=?)\s*(?P<amount>\d+(?:\.\d+)?)\s*(?P<unit>%|[A-Za-zµ]*)\s*"
)
_UNITS: dict[Unit, dict[str, float]] = {
    "count": {"": 1},
    "time": {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9},
    "bytes": {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30},
}
ALLOWED = ("unknown", "program", "gpu", "torch", "world-size")


class InvalidGateError(UserError):
    """A condition or a setting of the gate that cannot be read: a wrong argument."""


class Condition(msgspec.Struct, frozen=True):
    """How much a metric may rise: `step>3%`, `breaks>0`, `kernel:triton_*>10%`."""

    text: str
    metric: str
    pattern: str  # of kernel names, "" for a metric without
    inclusive: bool  # whether the condition also holds for exactly the amount
    amount: float  # percent of the baseline, or in the metric's unit (ns, bytes, a count)
    percent: bool

    def holds(self, baseline: int, candidate: int) -> bool:
        """Return whether the metric rose by more than it may."""
        bound = self.amount * baseline / 100 if self.percent else self.amount
        rise = candidate - baseline
        return rise > bound or (self.inclusive and rise == bound)


class GateSettings(msgspec.Struct, frozen=True):
    """What a gate checks."""

    conditions: list[Condition]
    allow: list[str]  # of ALLOWED, what does not end the gate
    name: str  # of what is measured, for other programs that read its files


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [gate] of a TOML file."""

    fail_on: list[str] = []
    allow: list[str] = []
    name: str = ""


class _Document(msgspec.Struct, frozen=True):
    gate: _Table


def read_settings(fail_on: Sequence[str], allow: Sequence[str], name: str, file: str = "") -> GateSettings:
    """Return the settings of a TOML file, "" for none, then of the command line. Raises InvalidGateError."""
    table = _read(file) if file else _Table()
    allowed = list(dict.fromkeys([*table.allow, *allow]))
    if wrong := [word for word in allowed if word not in ALLOWED]:
        raise InvalidGateError(
            f"{wrong[0]!r} cannot be allowed", next_step=f"Use one of: {', '.join(ALLOWED)}"
        )
    texts = dict.fromkeys([*table.fail_on, *fail_on])
    return GateSettings([parse_condition(text) for text in texts], allowed, name or table.name)


def _read(file: str) -> _Table:
    try:
        with open(file, "rb") as stream:
            return msgspec.toml.decode(stream.read(), type=_Document).gate
    except OSError as error:
        raise InvalidGateError(
            f"cannot be read ({error.strerror})", file=file, next_step="Check --config"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidGateError(
            f"contains no valid table [gate] ({error})",
            file=file,
            next_step='Add one, for example with fail_on = ["step>3%"]',
        ) from error


def parse_condition(text: str) -> Condition:
    """Parse a condition. Raises InvalidGateError, which names the condition and what is possible."""
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise _wrong(text, "is not valid", "Examples: 'step>3%', 'breaks>0', 'kernel:triton_*>10%'")
    metric, pattern, unit = match["metric"], match["pattern"] or "", match["unit"]
    if metric not in METRICS:
        raise _wrong(text, f"has the unknown metric {metric!r}", f"Use one of: {', '.join(METRICS)}")
    if pattern and not METRICS[metric].by_name:
        by_name = ", ".join(name for name, kind in METRICS.items() if kind.by_name)
        raise _wrong(
            text, f"has a pattern, which {metric} does not support", f"Use a pattern with: {by_name}"
        )
    units = _UNITS[METRICS[metric].unit]
    amount = float(match["amount"])
    if unit != "%" and unit not in units and (unit or amount):
        possible = ", ".join(["%", *(name or "none" for name in units)])
        problem = f"has the unit {unit!r}" if unit else "has no unit"
        raise _wrong(text, problem, f"Units of {metric}: {possible}")
    amount *= units.get(unit, 1)
    return Condition(text.strip(), metric, pattern.strip(), match["op"] == ">=", amount, unit == "%")


def _wrong(text: str, problem: str, next_step: str) -> InvalidGateError:
    return InvalidGateError(f"the condition {text!r} {problem}", next_step=next_step)
