"""`tb-torchcompile schema`: what sections a report has, and what a row of each holds."""

from __future__ import annotations

import argparse
import sys

import msgspec

from tb_torchcompile_plugin.api.answers.sections import schema
from tb_torchcompile_plugin.errors import visible


def show_schema(arguments: argparse.Namespace) -> None:
    """Print all sections; with `--json` the JSON schema of each one's rows."""
    whole = schema()
    if arguments.json:
        sys.stdout.write(msgspec.json.encode(whole).decode() + "\n")
        return
    for name, section in whole.sections.items():
        time = f", share of {section.time}" if section.time else ""
        sys.stdout.write(visible(f"{name}: of each {' and '.join(section.rows)}{time}\n"))
