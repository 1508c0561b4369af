"""What stops a program now and then: garbage collection, and tuning of kernels. By the names of their slices."""

from __future__ import annotations

import re

from tb_torchcompile_plugin.compile_spans import phase_of

_GARBAGE = re.compile(r"Python GC$|<built-in (?:function|method) collect\b|gc \(dynamo_timed\)$")
_TIMED = " (dynamo_timed)"


def is_collection(name: str) -> bool:
    """torch records collections with `record_python_gc_info`, and calls of `gc.collect` with Python stacks."""
    return _GARBAGE.match(name) is not None


def is_autotuning(name: str) -> bool:
    """Whether a slice is a timed function of torch's compiler whose phase is `autotune`."""
    return name.endswith(_TIMED) and phase_of(name.removesuffix(_TIMED)) == "autotune"
