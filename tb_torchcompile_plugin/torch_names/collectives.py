"""What is called what where ranks communicate: back ends, labels and the operators around them."""

from __future__ import annotations

import re

PARAM_COMMS = "record_param_comms"  # what c10d says of each collective, where it is called
GPU_BACKENDS = ("nccl", "rccl", "ucc", "xccl", "hccl")
_BACKENDS = "|".join((*GPU_BACKENDS, "gloo", "mpi"))
_LABEL = re.compile(rf"(?:{_BACKENDS}):(?P<name>\w+)(?: .*)?$")  # `nccl:all_reduce`, `nccl:send 0->1`
_CALL = re.compile(
    rf"(?:{_BACKENDS}):|_?c10d(?:_functional)?::|{PARAM_COMMS}$|.*torch\._C\._distributed_c10d"
)


def collective(name: str) -> str | None:
    """Which collective a label is of: `all_reduce` of `nccl:all_reduce`."""
    match = _LABEL.match(name)
    return match["name"] if match else None


def is_communication(name: str) -> bool:
    """A call that communicates, on the host: a label, an operator, or what Python calls of torch."""
    return _CALL.match(name) is not None
