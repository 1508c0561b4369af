"""Read which configurations autotuning chose: torch does not record it.

They are in inductor's autotuners, which are in the modules of generated code that torch keeps loaded. Reading them
takes microseconds per graph, when a summary is written.
"""

from typing import Any

from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.torch_names.kernels import launches
from tb_torchcompile_plugin.writer.environment import loaded


def add_autotune_choices(summary: pb.CompileSummary) -> None:
    """Fill in `config` of kernels that had a choice and have made it, where torch keeps the generated code loaded."""
    cache = loaded("torch._inductor.codecache", "PyCodeCache")
    modules = {getattr(module, "__file__", ""): module for module in list(getattr(cache, "modules", ()))}
    for graph in summary.graphs:
        kernels = [kernel for kernel in graph.kernels if kernel.num_configs > 1 and not kernel.config]
        if kernels and graph.output_code_file in modules:
            _add_choices(kernels, vars(modules[graph.output_code_file]))


def _add_choices(kernels: list[pb.GeneratedKernel], variables: dict[str, Any]) -> None:
    tuners = {name: value for name, value in variables.items() if _is_autotuner(value)}
    for kernel in kernels:
        # The variable of a user's own kernel ends with a number that its name does not have.
        found = [tuner for name, tuner in tuners.items() if launches(name, kernel.name)]
        configs = {_config_in_use(tuner) for tuner in found} - {""}
        if len(configs) == 1:
            kernel.config = configs.pop()


def _is_autotuner(value: object) -> bool:
    """Return whether it launches a Triton kernel of inductor's."""
    return any(kind.__name__ == "CachingAutotuner" for kind in type(value).__mro__)


def _config_in_use(tuner: Any) -> str:
    """Return block sizes, then warps and stages, as torch's own records have it; "" before there is a choice."""
    launchers = list(getattr(tuner, "launchers", ()))
    if len(launchers) != 1:
        return ""
    config = launchers[0].config
    sizes = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    return ", ".join(f"{name}={value}" for name, value in sizes.items())
