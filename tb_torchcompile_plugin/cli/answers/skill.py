"""`tb-torchcompile skill`: what an agent needs to know to use this, as a file that agents look for."""

from __future__ import annotations

import argparse
import os
import sys
from importlib.resources import files

from tb_torchcompile_plugin.logdir.filesystem import written

NAME = "tb-torchcompile"  # the folder of a skill is named as it is


def skill() -> str:
    """The text of SKILL.md."""
    return files(__package__).joinpath("SKILL.md").read_text(encoding="utf-8")


def show_skill(arguments: argparse.Namespace) -> None:
    """Print it, or write it below a folder of skills. Raises UserError where that cannot be written."""
    if arguments.install is None:
        sys.stdout.write(skill())
        return
    file = os.path.join(arguments.install, NAME, "SKILL.md")
    with written(file):
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(file, "w", encoding="utf-8") as target:
            target.write(skill())
    print(f"wrote {file}", file=sys.stderr)
