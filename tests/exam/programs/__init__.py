"""All programs of the exam, by family: each module adds its own."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from exam.program import PROGRAMS

__all__ = ["PROGRAMS"]

for family in iter_modules(__path__):
    import_module(f"{__name__}.{family.name}")
