"""Names of slices as torch 2.4 to 2.14 write them, and what is asked about each."""

from collections.abc import Callable

import pytest

from tb_torchcompile_plugin.torch_names import collectives, operators, slices
from tb_torchcompile_plugin.torch_names.collectives import HOLD_ALL, Operation
from tb_torchcompile_plugin.torch_names.records import PHASES, compiles_templates, phase_of, tuned_operator

KEY = "f2j64ce562aj7jizftighhewf3dbzu3aqmfcvydvs27webq3kcpo"
CALL = f"## Call CompiledFxGraph {KEY} ##"
CALLS = [CALL, "## Call CompiledFxGraph None ##"]
DATA = "entire_frame_compile_data: fn_name=_compile.compile_inner, compile_id=0/0"
NODE = "autograd::engine::evaluate_function: "
NODES = [
    f"{NODE}{name}"
    for name in ("MulBackward0", "torch::autograd::AccumulateGrad", "CompiledFunctionBackward")
]
NAMES: dict[Callable[[str], bool], list[str]] = {
    slices.is_step: ["ProfilerStep#3", "ProfilerStep# 12"],
    slices.is_region: [
        "Torch-Compiled Region",
        *(f"Torch-Compiled Region: {id}" for id in ("0/0", "!1/2/0")),
    ],
    slices.is_graph_call: CALLS,
    slices.is_forward_graph: ["CompiledFunction", *CALLS],
    slices.is_graph: ["CompiledFunction", "CompiledFunctionBackward", *CALLS],
    slices.is_compilation: [
        *("_compile.compile_inner (dynamo_timed)", "_compile.compile_inner"),
        *("entire_frame_compile (dynamo_timed)", "entire_frame_compile"),
        *("backward._backward_impl (dynamo_timed)", "entire_backward_compile"),
    ],
    slices.is_autotuning: [
        "CachingAutotuner.benchmark_all_configs (dynamo_timed)",
        "mm_template_autotuning (dynamo_timed)",
    ],
    slices.is_garbage_collection: [
        "Python GC",
        "<built-in function collect>",
        "<built-in method collect of module object at 0x7f>",
        "gc (dynamo_timed)",
    ],
    slices.is_optimizer: ["Optimizer.step#AdamW.step", "Optimizer.zero_grad#SGD.zero_grad"],
    slices.is_optimizer_step: ["Optimizer.step#AdamW.step"],
    slices.is_data_loading: [
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
        "torch/utils/data/dataloader.py(733): __next__",
        "/venv/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py(50): fetch",
    ],
    slices.is_replay: ["cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch", "cudaGraphLaunch_v10000"],
    slices.is_driver_launch: ["cuLaunchKernel", "cuLaunchKernelEx", "hipModuleLaunchKernel"],
    slices.is_synchronisation: [
        *("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize"),
        *("cuStreamSynchronize", "hipDeviceSynchronize", "cudaMemcpy", "hipMemcpyWithStream"),
    ],
    operators.is_backward: [*NODES, "CompiledFunctionBackward", "MulBackward0", "MyFunctionBackward"],
    operators.is_node: NODES,
    operators.is_anomaly_stack: [
        "traceback.py(221): format_stack",
        "/usr/lib/python3.12/traceback.py(213): format_stack",
    ],
    collectives.is_communication: [
        *("nccl:all_reduce", "nccl:send 0->1", "gloo:all_reduce", "c10d::allreduce_"),
        *("_c10d_functional::all_reduce", "record_param_comms"),
        "<built-in method wait of torch._C._distributed_c10d.Work object at 0x7f>",
    ],
}
STRANGERS = [
    *("", "forward", "aten::mm", "aten::convolution_backward", "Backward", "my ProfilerStep#3"),
    *("ProfilerStep*", "TorchDynamo Cache Lookup", "Torch-Compiled Regions", "## my label ##"),
    *("CompiledFunctions", "compile_fx_inner", DATA, "gc"),
    "CachingAutotuner.benchmark_all_configs_data: kernel_name=triton_poi_fused_0, is_backward=True, compile_id=1/0",
    *("Optimizer.state", "cudaMemcpyAsync", "cudaLaunchKernel", "cudaLaunchKernelExC"),
    *("hipExtModuleLaunchKernel", "cudaStreamWaitEvent"),
    *("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "train.py(3): step"),
    "utils/data.py(3): load",
]


QUESTIONS = {
    question: name
    for module in (slices, operators, collectives)
    for name, question in vars(module).items()
    if callable(question)
}


@pytest.mark.parametrize("rule", NAMES, ids=QUESTIONS.__getitem__)
def test_each_rule_knows_its_names_and_no_others(rule: Callable[[str], bool]) -> None:
    assert [name for name in NAMES[rule] if not rule(name)] == []
    others = {name for names in NAMES.values() for name in names if name not in NAMES[rule]}
    assert [name for name in (*others, *STRANGERS) if rule(name)] == []


def test_what_names_tell() -> None:
    assert slices.region_id("Torch-Compiled Region: !1/2/0") == "!1/2/0"
    assert slices.region_id("Torch-Compiled Region") is None and slices.region_id("aten::mm") is None
    assert slices.graph_key(CALL) == KEY and slices.without_key(CALL) == "## Call CompiledFxGraph"
    assert slices.graph_key("## Call CompiledFxGraph None ##") is None
    assert slices.without_key("aten::mm") == "aten::mm"
    assert slices.compilation_id(DATA) == "0/0"
    assert slices.compilation_id(DATA.replace("0/0", "None")) is None
    assert slices.compilation_id("dynamo_data: compile_id=0/0") is None
    assert slices.timed_function("inductor_compile (dynamo_timed)") == "inductor_compile"
    assert slices.timed_function(DATA) is None, "a mark beside it, of no length of its own"
    assert operators.node_name(f"{NODE}MulBackward0") == "MulBackward0"


def test_the_compiler_at_work_is_known_by_all_names_of_a_function() -> None:
    names = [
        "pass.x (dynamo_timed)",
        "pass.x",
        "code_gen_data: fn_name=GraphLowering.compile, compile_id=0/0",
    ]
    names += ["code_gen", "entire_frame_compile", "forward", "aten::mm"]
    assert slices.are_compiling(names) == [True] * 5 + [False] * 2
    # nothing says that these are the compiler's
    assert slices.are_compiling(["pass.x", "code_gen"]) == [False, False]


def test_tuning_is_a_part_of_what_the_compiler_does() -> None:
    tuning = "mm_template_autotuning"
    names = [f"{tuning} (dynamo_timed)", tuning, "pass.x (dynamo_timed)", "aten::mm"]
    assert slices.are_autotuning(names) == [True, True, False, False]
    assert slices.are_autotuning(names[1:2]) == [False], "nothing says that it is the compiler's"
    assert [slices.tuned_operator_of_slice(name) for name in names[:2]] == ["mm", "mm"]
    assert slices.tuned_operator_of_slice("CachingAutotuner.benchmark_all_configs (dynamo_timed)") == ""


def test_labels_that_somebody_chose() -> None:
    names = ("forward", "ProfilerStep#1", CALL, "## 12 ##")
    assert [name for name in names if slices.is_chosen_label(name)] == ["forward"]


def test_kinds_of_slices_do_not_overlap() -> None:
    kinds = [*slices.GPU_CATS, *slices.RUNTIME_CATS, *slices.CALL_CATS, *slices.PROFILER_CATS]
    kinds.append(slices.PYTHON_FUNCTION)
    assert len(kinds) == len(set(kinds)) and set(kinds) - {"Trace"} <= slices.TORCH_CATS


@pytest.mark.parametrize(
    ("function", "phase"),
    [
        ("entire_frame_compile", "dynamo"),
        ("_compile.compile_inner", "dynamo"),
        ("backward._backward_impl", "aot_autograd"),
        ("create_aot_dispatcher_function", "aot_autograd"),
        ("compile_fx.<locals>.fw_compiler_base", "inductor"),
        ("pass.post_grad_passes.stable_sort", "inductor"),
        ("async_compile.wait", "triton"),
        ("CachingAutotuner.precompile", "triton"),
        ("CachingAutotuner.benchmark_all_configs", "autotune"),
        ("mm_template_precompiling", "autotune"),
        ("TritonBundler.collect", "cache"),
        ("cpp_wrapper_compile", "triton"),
        ("gc", "other"),
        ("somebody_timed_this", None),
    ],
)
def test_phases_of_timed_functions(function: str, phase: str | None) -> None:
    assert phase_of(function) == phase
    assert phase is None or phase in PHASES


def test_operators_whose_templates_are_tuned() -> None:
    assert tuned_operator("mm_template_autotuning") == tuned_operator("mm_template_precompiling") == "mm"
    assert tuned_operator("mm") == "mm"
    assert compiles_templates("mm_template_precompiling") and not compiles_templates("mm_template_autotuning")


def test_operators() -> None:
    assert operators.plain_name("aten::add_") == "add" and operators.plain_name("aten::copy_") == "copy_"
    assert operators.landmark_of("aten::cudnn_convolution") == "convolution"
    assert operators.landmark_of("aten::_scaled_dot_product_flash_attention") == "attention"
    assert operators.landmark_of("aten::addmm") == "gemm" and operators.landmark_of("aten::add") is None
    allocates, is_library = operators.only_allocates, operators.is_library_operator
    assert allocates("aten::empty_strided") and not allocates("aten::empty_cache")
    assert is_library("c10d::allreduce_") and not is_library("triton_poi_0")


# torch's own words, labels, and kernels of NCCL and RCCL
WORDS = {
    "all_reduce": (
        *("allreduce", "allreduce_coalesced", "all_reduce_barrier", "nccl:all_reduce", "c10d::allreduce_"),
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
    ),
    "all_gather": (
        *("all_gather", "allgather", "_allgather_base", "all_gather_into_tensor_coalesced"),
        *("gloo:all_gather", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    ),
    "reduce_scatter": (
        *("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced"),
        "nccl:_reduce_scatter_base",
        "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    ),
    "all_to_all": ("all_to_all", "alltoall_base", "all_to_allv", "c10d::alltoall_base_"),
    "broadcast": (
        *("broadcast", "_broadcast_oop", "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    ),
    "reduce": (
        *("reduce", "_reduce_oop", "ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    ),
    "gather": ("gather",),
    "scatter": ("scatter",),
    "send": ("send", "nccl:send 0->1"),
    "recv": ("recv", "recvAnySource", "nccl:recv 0<-1", "c10d::recv_"),
    "barrier": ("barrier", "gloo:barrier"),
    "other": (
        *("coalesced", "wait", "init", "nccl:coalesced"),
        "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclDevKernel_Generic(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)",
        "rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)",
    ),
}
OPERATIONS = {text: operation for operation, texts in WORDS.items() for text in texts}


@pytest.mark.parametrize("text", OPERATIONS)
def test_operation_of(text: str) -> None:
    assert collectives.operation_of(text) == OPERATIONS[text]


LABELS = {
    "nccl:all_reduce": "all_reduce",
    "nccl:_all_gather_base": "_all_gather_base",
    "nccl:send 0->1": "send",
    "c10d::allreduce_": None,
    "aten::all_reduce": None,
    "ncclDevKernel_Generic": None,
}


def test_labels() -> None:
    assert {text: collectives.collective(text) for text in LABELS} == LABELS
    of_host, of_group = collectives.is_host_collective, collectives.is_group_call
    assert of_host("gloo:all_reduce") and not of_host("nccl:all_reduce")
    assert of_group("c10d::allreduce_") and not of_group("_c10d_functional::all_reduce")


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        *(("Byte", 1), ("Char", 1), ("Bool", 1), ("Short", 2), ("Half", 2), ("BFloat16", 2), ("Int", 4)),
        *(("Float", 4), ("Long", 8), ("Double", 8), ("ComplexHalf", 4), ("ComplexFloat", 8)),
        *(("ComplexDouble", 16), ("Float8_e4m3fn", 1), ("Float8_e5m2", 1), ("", None), ("QInt8", None)),
    ],
)
def test_element_bytes(dtype: str, size: int | None) -> None:
    assert collectives.element_bytes(dtype) == size


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
    assert collectives.message_bytes(operation, given, taken) == message
    assert collectives.bus_factor(operation, 4) == factor


def test_who_waits_for_everybody() -> None:
    assert set(HOLD_ALL) == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"}
