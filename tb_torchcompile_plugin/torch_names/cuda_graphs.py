"""What torch's CUDA graph trees call what they do. Standard library only.

See `torch/_inductor/cudagraph_trees.py`: a function is first run to warm up, then recorded, then replayed; each set of
symbolic sizes is a function of its own.
"""

from __future__ import annotations

import re
from typing import Literal, get_args

TREES_MODULE = "torch._inductor.cudagraph_trees"
CONTAINERS = "tree_manager_containers"  # by device, of a thread and of the autograd threads it starts
# Spans of the log, and slices of a trace: getting ready to warm up a new function, and recording one.
NEW_FUNCTION = "cudagraphify.get_container"
RECORDING = "CUDAGraphNode.record"
# Why a function was recorded: for the first time; for sizes that it had not seen; because an input that is to stay
# where it is (a parameter, say) lay elsewhere; because a result of an earlier graph did; because results of earlier
# graphs were alive that were dead, or dead that were alive; behind another graph than before.
Reason = Literal["first", "size", "static_input", "earlier_result", "liveness", "order"]
REASONS: tuple[Reason, ...] = get_args(Reason)
_BEGINS = re.compile(r"(?:cuda|hip)StreamBeginCapture")
_INSTANTIATES = re.compile(r"(?:cuda|hip)GraphInstantiate")


def is_recording(name: str) -> bool:
    """torch recording one function as a CUDA graph. torch before 2.11 has the slice of its own clock alone."""
    return name == RECORDING


def is_preparation(name: str) -> bool:
    """torch getting ready to run a function that it is to record: before it warms up."""
    return name == NEW_FUNCTION


def is_capture(name: str) -> bool:
    """The call that begins to record a CUDA graph."""
    return _BEGINS.match(name) is not None


def is_instantiation(name: str) -> bool:
    """The call that makes a recorded CUDA graph one that can be launched."""
    return _INSTANTIATES.match(name) is not None
