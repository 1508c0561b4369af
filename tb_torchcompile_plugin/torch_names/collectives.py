"""Names of collectives in torch and its back ends, and the data that each one moves."""

from collections.abc import Callable
from typing import Literal, get_args

from tb_torchcompile_plugin.torch_names.patterns import begins, equals, first_group, first_match

# No rank finishes before all ranks have started; one rank gives or takes all; two ranks.
_OfAll = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"]
_OfPair = Literal["send", "recv"]
Operation = Literal[_OfAll, "broadcast", "reduce", "gather", "scatter", _OfPair, "other"]
HOLD_ALL: tuple[Operation, ...] = get_args(_OfAll)
ALL_TO_ALL: Operation = "all_to_all"  # of which each rank may send more or less than another
PAIRED: tuple[Operation, ...] = get_args(_OfPair)
# Of parameters and gradients, of which several may be put together.
MERGEABLE: tuple[Operation, ...] = ("all_reduce", "reduce_scatter", "all_gather", "broadcast")
# What a collective does, from torch's word ("_allgather_base"), a label or the name of a kernel.
operation_of: Callable[[str], Operation] = first_match(
    ("all_reduce", "(?i)all_?reduce"),
    ("all_gather", "(?i)all_?gather"),
    ("reduce_scatter", "(?i)reduce_?scatter"),
    ("all_to_all", "(?i)all_?to_?all"),
    ("barrier", "(?i)barrier"),
    ("broadcast", "(?i)broadcast"),
    ("other", "(?i)send_?recv"),  # a kernel of both: torch's word shows which
    ("scatter", "(?i)scatter"),
    ("gather", "(?i)gather"),
    ("reduce", "(?i)reduce"),
    ("recv", "(?i)recv"),
    ("send", "(?i)send"),
    default="other",
)
GPU_BACKENDS = ("nccl", "rccl", "ucc", "xccl", "hccl")
PARAM_COMMS = "record_param_comms"  # what c10d records of each collective, where it is called
_BACKENDS = "|".join((*GPU_BACKENDS, "gloo", "mpi"))
# Which collective a label is of: `nccl:all_reduce`, `nccl:send 0->1`.
collective = first_group(rf"(?:{_BACKENDS}):(\w+)(?: .*)?\n?")
# A call that communicates, on the host: a label, an operator, or what Python calls of torch.
is_communication = begins(
    rf"(?:{_BACKENDS}):|_?c10d(?:_functional)?::|{PARAM_COMMS}$|.*torch\._C\._distributed_c10d"
)
is_coalesced = equals(rf"(?:{_BACKENDS}):coalesced(?: .*)?\n?")  # around the launch of several calls as one
is_group_call = begins(r"c10d::")  # the operator that hands a collective to a process group
is_of_fsdp = begins(r"FSDP::")  # a label of what FSDP2 does around a module: `FSDP::pre_forward (layers.3)`
# A label of a back end that moves data on threads of the host, for as long as that takes.
is_host_collective = begins(r"(?:gloo|mpi):\w+")


def moves_data(word: str) -> bool:
    """Whether torch's word for a call is of a collective, and not of waiting for one."""
    return bool(word) and word != "wait"


_DTYPES = {
    1: ("Byte", "Char", "Bool"),
    2: ("Short", "Half", "BFloat16"),
    4: ("Int", "Float", "ComplexHalf"),
    8: ("Long", "Double", "ComplexFloat"),
    16: ("ComplexDouble",),
}
_ELEMENT_BYTES = {dtype: size for size, dtypes in _DTYPES.items() for dtype in dtypes}


def element_bytes(dtype: str) -> int | None:
    """Return the size of a scalar by torch's name of its type; None for an unknown one."""
    return 1 if dtype.startswith("Float8") else _ELEMENT_BYTES.get(dtype)


def message_bytes(operation: Operation, in_bytes: int, out_bytes: int) -> int:
    """Return the size of a message as nccl-tests counts it.

    That is what is gathered or scattered as a whole, and for other operations what one rank gives.
    """
    if operation in ("all_gather", "gather"):
        return out_bytes
    return max(in_bytes, out_bytes) if operation in ("all_to_all", "recv") else in_bytes


def bus_factor(operation: Operation, ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth, as nccl-tests defines it."""
    if operation == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if operation in ("all_gather", "reduce_scatter", "all_to_all") else 1.0
