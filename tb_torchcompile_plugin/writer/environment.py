"""What the process runs on: versions, devices, ranks, and the settings that change what torch compiles."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import socket
import sys
from collections.abc import Mapping
from typing import Any

from tb_torchcompile_plugin.compile_log.record import readable
from tb_torchcompile_plugin.compile_log.summary_pb2 import Environment
from tb_torchcompile_plugin.torch_names.caches import SETTINGS
from tb_torchcompile_plugin.writer.process_start import process_start_ns

# A list of names, not a pattern: an environment holds secrets.
_NAMES = """AOT_FX_GRAPHS AOT_PARTITIONER_DEBUG CPP_MIN_CHUNK_SIZE CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING
    CUDA_VISIBLE_DEVICES CXX HIP_VISIBLE_DEVICES INDUCTOR_CPP_ENABLE_KERNEL_PROFILE INDUCTOR_WRITE_MISSING_OPS
    MKL_NUM_THREADS NVIDIA_TF32_OVERRIDE OMP_NUM_THREADS PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF
    PYTORCH_HIP_ALLOC_CONF PYTORCH_JIT PYTORCH_NO_CUDA_MEMORY_CACHING PYTORCH_TUNABLEOP_ENABLED
    ROCR_VISIBLE_DEVICES TORCHDYNAMO_AUTOMATIC_DYNAMIC_LOCAL_PGO TORCHDYNAMO_AUTOMATIC_DYNAMIC_SHAPES
    TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS TORCHDYNAMO_DISABLE TORCHDYNAMO_DYNAMIC_SHAPES
    TORCHDYNAMO_INLINE_INBUILT_NN_MODULES TORCHDYNAMO_SUPPRESS_ERRORS TORCHDYNAMO_VERBOSE
    TORCHINDUCTOR_AUTOGRAD_CACHE TORCHINDUCTOR_AUTOTUNE_IN_SUBPROC TORCHINDUCTOR_BENCHMARK_FUSION
    TORCHINDUCTOR_BENCHMARK_KERNEL TORCHINDUCTOR_CACHE_DIR TORCHINDUCTOR_COMBO_KERNELS
    TORCHINDUCTOR_COMPILE_THREADS TORCHINDUCTOR_COORDINATE_DESCENT_TUNING
    TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE TORCHINDUCTOR_CPP_WRAPPER TORCHINDUCTOR_CUDAGRAPHS
    TORCHINDUCTOR_CUDAGRAPH_TREES TORCHINDUCTOR_FORCE_DISABLE_CACHES TORCHINDUCTOR_FREEZING
    TORCHINDUCTOR_FX_GRAPH_CACHE TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE TORCHINDUCTOR_GRAPH_PARTITION
    TORCHINDUCTOR_LAYOUT_OPTIMIZATION TORCHINDUCTOR_MAX_AUTOTUNE TORCHINDUCTOR_MAX_AUTOTUNE_CONV_BACKENDS
    TORCHINDUCTOR_MAX_AUTOTUNE_GEMM TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS
    TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE TORCHINDUCTOR_MIX_ORDER_REDUCTION TORCHINDUCTOR_PERSISTENT_REDUCTIONS
    TORCHINDUCTOR_PROFILE TORCHINDUCTOR_PROFILE_WITH_DO_BENCH_USING_PROFILING TORCHINDUCTOR_PROVENANCE
    TORCHINDUCTOR_SPLIT_REDUCTIONS TORCHINDUCTOR_UNIQUE_KERNEL_NAMES TORCHINDUCTOR_WORKER_START
    TORCH_ALLOW_TF32_CUBLAS_OVERRIDE TORCH_COMPILE_DEBUG TORCH_COMPILE_DISABLE
    TORCH_COMPILE_FORCE_DISABLE_CACHES TORCH_LOGS TORCH_NCCL_ASYNC_ERROR_HANDLING
    TORCH_NCCL_AVOID_RECORD_STREAMS TORCH_TRACE TRITON_CACHE_DIR TRITON_DISABLE_LINE_INFO TRITON_INTERPRET
    TRITON_PTXAS_PATH"""
VARIABLES: tuple[str, ...] = (*_NAMES.split(),)


def default_worker() -> str:
    """torch's default worker name."""
    return f"{socket.gethostname()}_{os.getpid()}"


def fill_environment(target: Environment) -> None:
    """Writes what can be known without side effects. Each part may fail by itself; it is absent then."""
    target.python_version = platform.python_version()
    target.hostname, target.pid = socket.gethostname(), os.getpid()
    if (start_ns := process_start_ns()) is not None:
        target.process_start_ns = start_ns
    target.imported_ns = sys.modules["tb_torchcompile_plugin"].IMPORTED_NS
    target.program = _program()
    for name in VARIABLES:
        if name in os.environ:
            target.variables[name] = readable(os.environ[name])
    target.plugin_version = _version_of("tb-torchcompile-plugin") or _own_version()
    if triton := _version_of("triton"):
        target.triton_version = triton
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return
    for part in (_fill_torch, _fill_devices, _fill_ranks, _fill_backends, _fill_settings):
        with contextlib.suppress(Exception):
            part(target, torch)


def _program() -> str:
    """The path of what Python runs, without its arguments, which may hold secrets; "" where it runs no file."""
    path = sys.argv[0] if sys.argv else ""
    return readable(os.path.abspath(path)) if os.path.isfile(path) else ""


def _version_of(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _own_version() -> str:
    """Of a checkout that is on the path without being installed."""
    return str(getattr(sys.modules.get("tb_torchcompile_plugin"), "__version__", ""))


def _fill_torch(target: Environment, torch: Any) -> None:
    target.torch_version = str(torch.__version__)
    if torch.version.cuda:
        target.cuda_version = str(torch.version.cuda)
    if torch.version.hip:
        target.hip_version = str(torch.version.hip)


def _fill_devices(target: Environment, torch: Any) -> None:
    """Asking for a name would start CUDA in a process that does not use it, so only where it runs already."""
    if torch.cuda.is_initialized():
        target.device_names.extend(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))


def _fill_ranks(target: Environment, torch: Any) -> None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        target.rank, target.world_size = distributed.get_rank(), distributed.get_world_size()


def _fill_backends(target: Environment, torch: Any) -> None:
    frames: Any = sys.modules.get("torch._dynamo.eval_frame")
    backends: Mapping[int, Any] = getattr(frames, "cached_backends", {})
    names = {_backend_name(backend) for backend in list(backends.values()) if backend is not None}
    target.backends.extend(sorted(name for name in names if name))


def _fill_settings(target: Environment, torch: Any) -> None:
    """Of modules that are there: importing one could change what the program does."""
    for setting in SETTINGS:
        module, _, name = setting.rpartition(".")
        value = getattr(sys.modules.get(module), name, None)
        if value is not None:
            target.settings[setting] = readable(str(value))


def _backend_name(backend: object) -> str:
    name = getattr(backend, "compiler_name", None) or getattr(backend, "__name__", None)
    return str(name or type(backend).__name__)
