"""torch_names/collectives.py: what torch, NCCL, RCCL and Gloo call collectives, and what nccl-tests counts of them."""

from __future__ import annotations

import pytest

from tb_torchcompile_plugin.torch_names.collectives import (
    HOLD_ALL,
    Operation,
    bus_factor,
    collective,
    element_bytes,
    is_group_call,
    is_host_collective,
    message_bytes,
    operation_of,
)

OPERATIONS = {
    # torch's own words
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "all_reduce_barrier": "all_reduce",
    "all_gather": "all_gather",
    "allgather": "all_gather",
    "_allgather_base": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "all_to_all": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_allv": "all_to_all",
    "broadcast": "broadcast",
    "_broadcast_oop": "broadcast",
    "reduce": "reduce",
    "_reduce_oop": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "send": "send",
    "recv": "recv",
    "recvAnySource": "recv",
    "barrier": "barrier",
    "coalesced": "other",
    "wait": "other",
    "init": "other",
    # labels
    "nccl:all_reduce": "all_reduce",
    "nccl:_reduce_scatter_base": "reduce_scatter",
    "nccl:send 0->1": "send",
    "nccl:recv 0<-1": "recv",
    "nccl:coalesced": "other",
    "gloo:all_gather": "all_gather",
    "gloo:barrier": "barrier",
    "c10d::allreduce_": "all_reduce",
    "c10d::alltoall_base_": "all_to_all",
    "c10d::recv_": "recv",
    # kernels of NCCL and RCCL
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_reduce",
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_gather",
    "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "reduce_scatter",
    "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "broadcast",
    "ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "reduce",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)": "other",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)": "other",
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)": "all_reduce",
    "ncclDevKernel_Generic(ncclDevComm*, unsigned long, ncclWork*)": "other",
    "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)": "other",
    "rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)": "other",
}


@pytest.mark.parametrize("text", OPERATIONS)
def test_operation_of(text: str) -> None:
    assert operation_of(text) == OPERATIONS[text]


def test_labels() -> None:
    assert collective("nccl:all_reduce") == "all_reduce" and collective("nccl:send 0->1") == "send"
    assert collective("aten::all_reduce") is None and collective("ncclDevKernel_Generic") is None
    assert is_host_collective("gloo:all_reduce") and not is_host_collective("nccl:all_reduce")
    assert is_group_call("c10d::allreduce_") and not is_group_call("_c10d_functional::all_reduce")


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        *(("Byte", 1), ("Char", 1), ("Bool", 1), ("Short", 2), ("Half", 2), ("BFloat16", 2), ("Int", 4)),
        *(("Float", 4), ("Long", 8), ("Double", 8), ("ComplexHalf", 4), ("ComplexFloat", 8)),
        *(("ComplexDouble", 16), ("Float8_e4m3fn", 1), ("Float8_e5m2", 1), ("", None), ("QInt8", None)),
    ],
)
def test_element_bytes(dtype: str, size: int | None) -> None:
    assert element_bytes(dtype) == size


# Of 4 ranks, of which each has 100 bytes: what one gives and takes, the message and the factor of nccl-tests.
NCCL_TESTS: dict[Operation, tuple[int, int, int, float]] = {
    "all_reduce": (100, 100, 100, 1.5),
    "all_gather": (100, 400, 400, 0.75),
    "reduce_scatter": (400, 100, 400, 0.75),
    "all_to_all": (100, 100, 100, 0.75),
    "broadcast": (100, 100, 100, 1.0),
    "reduce": (100, 100, 100, 1.0),
    "gather": (100, 400, 400, 1.0),
    "scatter": (400, 100, 400, 1.0),
    "send": (100, 100, 100, 1.0),
    "recv": (0, 100, 100, 1.0),
}


@pytest.mark.parametrize("operation", NCCL_TESTS)
def test_messages_and_factors_are_those_of_nccl_tests(operation: Operation) -> None:
    given, taken, message, factor = NCCL_TESTS[operation]
    assert message_bytes(operation, given, taken) == message
    assert bus_factor(operation, 4) == factor


def test_who_waits_for_everybody() -> None:
    assert set(HOLD_ALL) == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"}
