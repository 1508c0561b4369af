"""What is called what where ranks communicate: back ends, labels, operators, and what each collective moves."""

from __future__ import annotations

import re
from typing import Literal

GPU_BACKENDS = ("nccl", "rccl", "ucc", "xccl", "hccl")
PARAM_COMMS = "record_param_comms"  # what c10d says of each collective, where it is called
_BACKENDS = "|".join((*GPU_BACKENDS, "gloo", "mpi"))
_LABEL = re.compile(rf"(?:{_BACKENDS}):(?P<name>\w+)(?: .*)?$")  # `nccl:all_reduce`, `nccl:send 0->1`
_HOST_LABEL = re.compile(r"(?:gloo|mpi):\w+")
_CALL = re.compile(
    rf"(?:{_BACKENDS}):|_?c10d(?:_functional)?::|{PARAM_COMMS}$|.*torch\._C\._distributed_c10d"
)

Operation = Literal[
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "barrier",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "send",
    "recv",
    "other",
]
# In torch's word, a label or a kernel's name, in any spelling; first match.
_OPERATIONS: tuple[tuple[str, Operation], ...] = (
    ("allreduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("reducescatter", "reduce_scatter"),
    ("alltoall", "all_to_all"),
    ("barrier", "barrier"),
    ("broadcast", "broadcast"),
    ("sendrecv", "other"),  # a kernel of both: torch's word tells which
    ("scatter", "scatter"),
    ("gather", "gather"),
    ("reduce", "reduce"),
    ("recv", "recv"),
    ("send", "send"),
)
# Nobody is done before everybody has come.
HOLD_ALL: tuple[Operation, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
PAIRED: tuple[Operation, ...] = ("send", "recv")  # between two ranks
# Of parameters and gradients, of which several may be put together.
MERGEABLE: tuple[Operation, ...] = ("all_reduce", "reduce_scatter", "all_gather", "broadcast")
_ELEMENT_BYTES = {
    "Byte": 1,
    "Char": 1,
    "Bool": 1,
    "Short": 2,
    "Half": 2,
    "BFloat16": 2,
    "Int": 4,
    "Float": 4,
    "Long": 8,
    "Double": 8,
    "ComplexHalf": 4,
    "ComplexFloat": 8,
    "ComplexDouble": 16,
}


def collective(name: str) -> str | None:
    """Which collective a label is of: `all_reduce` of `nccl:all_reduce`."""
    match = _LABEL.match(name)
    return match["name"] if match else None


def is_coalesced(name: str) -> bool:
    """The label around the launch of several calls as one: `nccl:coalesced`."""
    return collective(name) == "coalesced"


def moves_data(word: str) -> bool:
    """Whether torch's word for a call is of a collective, and not of waiting for one."""
    return bool(word) and word != "wait"


def is_communication(name: str) -> bool:
    """A call that communicates, on the host: a label, an operator, or what Python calls of torch."""
    return _CALL.match(name) is not None


def is_group_call(name: str) -> bool:
    """The operator of c10d that hands a collective to a process group."""
    return name.startswith("c10d::")


def is_of_fsdp(name: str) -> bool:
    """A label of what FSDP2 does around a module: `FSDP::pre_forward (layers.3)`."""
    return name.startswith("FSDP::")


def is_host_collective(name: str) -> bool:
    """A label of a back end that moves data on threads of the host, for as long as that takes."""
    return _HOST_LABEL.match(name) is not None


def operation_of(text: str) -> Operation:
    """What a collective does: of torch's word ("_allgather_base"), a label or the name of a kernel."""
    plain = text.lower().replace("_", "")
    return next((operation for part, operation in _OPERATIONS if part in plain), "other")


def element_bytes(dtype: str) -> int | None:
    """Size of a scalar by torch's name of its type; None for one that is not known."""
    return 1 if dtype.startswith("Float8") else _ELEMENT_BYTES.get(dtype)


def message_bytes(operation: Operation, in_bytes: int, out_bytes: int) -> int:
    """The message as nccl-tests counts it: what is gathered or scattered as a whole, of others what one rank gives."""
    if operation in ("all_gather", "gather"):
        return out_bytes
    return max(in_bytes, out_bytes) if operation in ("all_to_all", "recv") else in_bytes


def bus_factor(operation: Operation, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth, as nccl-tests defines it."""
    if operation == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if operation in ("all_gather", "reduce_scatter", "all_to_all") else 1.0
