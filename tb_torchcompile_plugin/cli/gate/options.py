"""The arguments of the gate and of `baseline`, and what they are made into."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tb_torchcompile_plugin.analysis.compare.gate_judge import ALLOWED, GateSettings, WrongGate, settings_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def add_gate(compare: argparse.ArgumentParser) -> None:
    """The options that make a gate of `compare`."""
    compare.add_argument(
        "--fail-on",
        metavar="CONDITION",
        action="append",
        default=[],
        help="end with status 3 where this holds: 'step>3%%', 'breaks>0', 'kernel:triton_*>10%%'; as often as needed",
    )
    compare.add_argument(
        "--config", metavar="FILE", default="", help="conditions from the table [gate] of this TOML file"
    )
    compare.add_argument(
        "--allow",
        metavar="WHAT",
        action="append",
        default=[],
        help=f"end with status 0 nevertheless where this differs or is unknown: {', '.join(ALLOWED)}",
    )
    compare.add_argument("--name", default="", help="of what is measured, in the files that are written")
    for name, what in (
        ("markdown", "the verdict for people, such as a GitHub job summary (appended to what is there)"),
        ("junit", "one test case a condition, as JUnit's XML"),
        ("bmf", "HEAD's numbers in Bencher's metric format"),
    ):
        compare.add_argument(f"--{name}", metavar="FILE", default="", help=f"write {what}")


def is_gate(arguments: argparse.Namespace) -> bool:
    """Whether a verdict is asked for, and not only tables."""
    asked = "fail_on", "config", "allow", "name", "markdown", "junit", "bmf"
    return any(getattr(arguments, name) for name in asked)


def gate_settings(arguments: argparse.Namespace) -> GateSettings:
    """Of the command line and its file. Raises WrongGate."""
    document = _document(arguments.config) if arguments.config else None
    return settings_of(arguments.fail_on, arguments.allow, arguments.name, document, arguments.config)


def _document(file: str) -> dict[str, Any]:
    try:
        with open(file, "rb") as stream:
            document: dict[str, Any] = tomllib.load(stream)
        return document
    except OSError as error:
        raise WrongGate(
            f"cannot be read ({error.strerror})", file=file, next_step="Check --config"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WrongGate(f"is no TOML ({error})", file=file, next_step="Mend it") from error
