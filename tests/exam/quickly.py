"""The exam's runners as tests call them: on the CPU, with tiny sizes, in a process that has torch already."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from forked import statuses

ROOT = Path(__file__).parents[2]


def run_quickly(runner: str, out: Path, names: list[str], *options: str) -> dict[str, dict[str, Any]]:
    """What a runner (the name of its module) measured of these programs or jobs."""
    program = f"import sys\nsys.path.insert(0, {str(ROOT / 'tests')!r})\nfrom {runner} import main\nsys.exit(main())"
    printed = out / "printed"
    printed.touch()
    call = ["--out", str(out), "--cpu", "--quick", *options, "--only", *names]
    codes = statuses(program, [call], ROOT, str(printed), os.environ, 1800)
    assert codes == [0], printed.read_text()
    return {row["name"]: row for row in json.loads((out / "measured.json").read_text())["programs"]}
