"""All programs of the exam, by family: each module adds its own, those of `blind` with them."""

from importlib import import_module
from pkgutil import walk_packages

from benchmarks.diagnosis.program import PROGRAMS

__all__ = ["PROGRAMS"]

for family in walk_packages(__path__, f"{__name__}."):
    import_module(family.name)
