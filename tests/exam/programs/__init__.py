"""All programs of the exam, by family."""

from __future__ import annotations

from exam.program import PROGRAMS
from exam.programs import (
    allocator,
    breaks,
    copies,
    cuda_graphs,
    eager,
    guards,
    healthy,
    host_python,
    inputs,
    kernels,
    launch,
    layout,
    not_compiled,
    optimizers,
    precision,
    recompiles,
    shapes,
    sync,
)

__all__ = ["PROGRAMS"]

FAMILIES = (
    inputs,
    host_python,
    sync,
    copies,
    allocator,
    launch,
    breaks,
    not_compiled,
    guards,
    recompiles,
    cuda_graphs,
    eager,
    optimizers,
    precision,
    kernels,
    layout,
    shapes,
    healthy,
)
