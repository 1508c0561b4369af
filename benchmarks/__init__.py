"""Measure what the package costs: each module is a program (`python -m benchmarks.NAME`)."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # where the browser's helpers are
