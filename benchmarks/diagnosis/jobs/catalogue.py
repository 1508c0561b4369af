"""All jobs of the exam: each of these modules adds its own."""

from importlib import import_module

from benchmarks.diagnosis.jobs.job import JOBS

__all__ = ["JOBS"]

PLAIN = ("communication", "healthy", "late", "uneven")
for name in (*PLAIN, *(f"blind.{name}" for name in ("both", "communication", "healthy", "late", "shares"))):
    import_module(f"benchmarks.diagnosis.jobs.{name}")
