"""Read what the process runs on and what torch counts: versions, devices, ranks, settings, times, counters.

Modules are looked up among the loaded ones: reading must not be what imports torch._dynamo.
"""

import contextlib
import importlib.metadata
import inspect
import os
import platform
import socket
import sys
import time
from types import FrameType
from typing import Any

from tb_torchcompile_plugin.compile_log.record import readable
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary, Environment
from tb_torchcompile_plugin.torch_names.caches import SETTINGS
from tb_torchcompile_plugin.torch_names.graph_breaks import CUDAGRAPH_SKIPS
from tb_torchcompile_plugin.torch_names.records import ID_FIELDS, MODULE_CLASS, MODULE_COUNT

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
    TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE TORCHINDUCTOR_MIX_ORDER_REDUCTION TORCHINDUCTOR_NUMERICS
    TORCHINDUCTOR_PERSISTENT_REDUCTIONS
    TORCHINDUCTOR_PROFILE TORCHINDUCTOR_PROFILE_WITH_DO_BENCH_USING_PROFILING TORCHINDUCTOR_PROVENANCE
    TORCHINDUCTOR_SPLIT_REDUCTIONS TORCHINDUCTOR_UNIQUE_KERNEL_NAMES TORCHINDUCTOR_WORKER_START
    TORCH_ALLOW_TF32_CUBLAS_OVERRIDE TORCH_COMPILE_DEBUG TORCH_COMPILE_DISABLE
    TORCH_COMPILE_FORCE_DISABLE_CACHES TORCH_COMPILE_WORKER_MODE TORCH_LOGS TORCH_NCCL_ASYNC_ERROR_HANDLING
    TORCH_NCCL_AVOID_RECORD_STREAMS TORCH_TRACE TRITON_CACHE_DIR TRITON_DISABLE_LINE_INFO TRITON_INTERPRET
    TRITON_PTXAS_PATH"""
VARIABLES = tuple(_NAMES.split())

_STAT, _START_FIELD = "/proc/self/stat", 19  # counted from behind the name, which may contain anything


def loaded(module: str, name: str, default: Any = None) -> Any:
    """Return an attribute of a module if it is loaded. Never raises, warns, prints or imports.

    It is read from the module's dictionary: a `__getattr__` of the module's own may do any of these.
    """
    return getattr(sys.modules.get(module), "__dict__", {}).get(name, default)


def setting(name: str) -> Any:
    """Return a setting of torch, such as "torch._inductor.config.triton.cudagraphs"; None if it is unknown.

    Reading a deprecated setting would warn in the training process. Its value is also that of its new name.
    """
    module, _, key = name.partition(".config.")
    entry = loaded(f"{module}.config", "_config", {}).get(key)
    if entry is None or getattr(entry, "deprecated", False):
        return None
    with contextlib.suppress(Exception):
        return getattr(sys.modules[f"{module}.config"], key)
    return None


def process_start_ns() -> int | None:
    """Return when the process began (Unix time, to a hundredth of a second); None if it is not Linux."""
    try:
        with open(_STAT, "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[_START_FIELD])
        since_boot_ns = ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        age_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - since_boot_ns
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    return time.time_ns() - age_ns if ticks > 0 and age_ns >= 0 else None


class Times:
    """torch's `compilation_time_metrics`, kept across torch._dynamo.reset(), which empties the dict, not the lists."""

    def __init__(self) -> None:
        # Name and seconds of each list until now, by identity.
        self._lists: dict[int, tuple[str, list[float]]] = {}
        self._latest: dict[str, list[float]] = {}  # in torch's dict
        self._complete = True
        # In the child of a fork: how many times of a list are the parent's.
        self._inherited: dict[int, int] = {}

    def collect(self, *, after_pause: bool = False) -> None:
        """Keep the current lists. Takes a few µs.

        after_pause: nothing was collected for a while. If torch was reset meanwhile, what was compiled between two
        resets may be lost.
        """
        current = loaded("torch._dynamo.utils", "compilation_time_metrics", {})
        if after_pause and any(current.get(name) is not seconds for name, seconds in self._latest.items()):
            self._complete = False
        self._latest = dict(current)
        self._lists.update({id(seconds): (name, seconds) for name, seconds in self._latest.items()})

    def forget_parent(self) -> None:
        """Leave out the times that the child of a fork inherits."""
        self.collect()
        self._inherited = {key: len(seconds) for key, (_, seconds) in self._lists.items()}

    def put(self, summary: CompileSummary) -> None:
        """Replace the times from the records by torch's own: every function, every run."""
        self.collect()
        del summary.compile_times[:]
        totals: dict[str, list[float]] = {}
        for key, (name, seconds) in self._lists.items():
            totals.setdefault(name, []).extend(seconds[self._inherited.get(key, 0) :])
        for name, seconds in totals.items():
            if seconds:
                summary.compile_times.add(function=name, seconds=seconds)
        summary.compile_times_complete = self._complete


def cudagraph_skips() -> int | None:
    """Return how often torch did without CUDA graphs, by its own count; None before it has counted anything."""
    counters = loaded("torch._dynamo.utils", "counters", {})
    group, name = CUDAGRAPH_SKIPS
    return counters.get(group, {}).get(name, 0) if counters else None


def compiling_now() -> dict[str, int]:
    """Return what this thread compiles, as the fields of a record's envelope; empty if nothing."""
    context = loaded("torch._guards", "CompileContext")
    current = None if context is None else context.current_compile_id()
    fields = {name: getattr(current, name, None) for name in ID_FIELDS}
    return {name: value for name, value in fields.items() if value is not None}


def module_compiled_now(function: dict[str, Any]) -> dict[str, Any]:
    """Return the class whose `forward` this thread compiles for a module, and how many modules of its model run it.

    The model is the outermost module that is being called; subclasses that inherit this `forward` share its code.
    function: the last entry of the stack in Dynamo's record. Empty if another function is compiled. Raises IndexError
    where no module is called, and what modules raise.
    """
    call = sys.modules["torch.nn"].Module._wrapped_call_impl.__code__
    called: list[Any] = []  # innermost first
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is call:
            called.append(frame.f_locals["self"])
        frame = frame.f_back
    one, model = called[0], called[-1]
    kind = type(one._modules.get("_orig_mod", one))  # not the wrapper that torch.compile returns
    code = inspect.unwrap(kind.forward).__code__
    if (code.co_name, code.co_firstlineno) != (function["name"], function["line"]):
        return {}
    owner = next(base for base in kind.__mro__ if "forward" in vars(base))
    alike = [module for module in model.modules() if type(module).forward is kind.forward]
    # With `block.compile()` those that are compiled; otherwise nothing is known of single modules.
    count = sum(bool(module._compiled_call_impl) == bool(one._compiled_call_impl) for module in alike)
    return {MODULE_CLASS: readable(owner.__qualname__), MODULE_COUNT: count}


def file_names() -> dict[int, str]:
    """Return torch's numbers for file names. One assigned before recording began is in no record."""
    table: dict[str, int] = loaded("torch._logging.structured", "INTERN_TABLE", {})
    return {number: name for name, number in list(table.items())}


def profiler_runs() -> bool:
    """Return whether a torch profiler is recording now."""
    from torch.autograd import _profiler_enabled  # type: ignore[attr-defined]  # not a public name

    return bool(_profiler_enabled())


def fill_environment(target: Environment) -> None:
    """Fill in what can be read without side effects. A part that fails is absent."""
    target.python_version = platform.python_version()
    target.hostname, target.pid = socket.gethostname(), os.getpid()
    if (start_ns := process_start_ns()) is not None:
        target.process_start_ns = start_ns
    package = sys.modules["tb_torchcompile_plugin"]
    target.imported_ns = package.IMPORTED_NS
    path = sys.argv[0] if sys.argv else ""
    if os.path.isfile(path):  # what Python runs, without its arguments, which may hold secrets
        target.program = readable(os.path.abspath(path))
    for name in VARIABLES:
        if name in os.environ:
            target.variables[name] = readable(os.environ[name])
    target.plugin_version = _version_of("tb-torchcompile-plugin") or package.__version__  # of a checkout
    if triton := _version_of("triton"):
        target.triton_version = triton
    torch: Any = sys.modules.get("torch")
    for part in (_fill_torch, _fill_devices, _fill_ranks, _fill_backends, _fill_settings):
        with contextlib.suppress(Exception):
            part(target, torch)


def _version_of(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _fill_torch(target: Environment, torch: Any) -> None:
    target.torch_version = str(torch.__version__)
    if torch.version.cuda:
        target.cuda_version = str(torch.version.cuda)
    if torch.version.hip:
        target.hip_version = str(torch.version.hip)


def _fill_devices(target: Environment, torch: Any) -> None:
    # Asking for a name would start CUDA in a process that does not use it.
    if torch.cuda.is_initialized():
        target.device_names.extend(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))


def _fill_ranks(target: Environment, torch: Any) -> None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        target.rank, target.world_size = distributed.get_rank(), distributed.get_world_size()


def _fill_backends(target: Environment, torch: Any) -> None:
    backends = list(loaded("torch._dynamo.eval_frame", "cached_backends", {}).values())
    names = {
        str(
            getattr(backend, "compiler_name", None)
            or getattr(backend, "__name__", None)
            or type(backend).__name__
        )
        for backend in backends
        if backend is not None
    }
    target.backends.extend(sorted(names))


def _fill_settings(target: Environment, torch: Any) -> None:
    for name in SETTINGS:
        if (value := setting(name)) is not None:
            target.settings[name] = readable(str(value))
