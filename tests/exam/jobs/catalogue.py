"""All jobs of the exam."""

from __future__ import annotations

from exam.jobs import communication, healthy, late, uneven
from exam.jobs.job import JOBS

__all__ = ["JOBS", "communication", "healthy", "late", "uneven"]
