"""The type of the fixture `recording` of conftest.py: the name of a recording → its unpacked folder."""

from collections.abc import Callable
from pathlib import Path

Recording = Callable[[str], Path]
