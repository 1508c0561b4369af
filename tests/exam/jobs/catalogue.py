"""All jobs of the exam."""

from exam.jobs import blind, communication, healthy, late, uneven
from exam.jobs.blind import both as _both
from exam.jobs.blind import communication as _communication
from exam.jobs.blind import healthy as _healthy
from exam.jobs.blind import late as _late
from exam.jobs.blind import shares as _shares
from exam.jobs.job import JOBS

BLIND = (_both, _communication, _healthy, _late, _shares)

__all__ = ["BLIND", "JOBS", "blind", "communication", "healthy", "late", "uneven"]
