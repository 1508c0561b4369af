"""Which configuration won, of kernels tuned when they first run? torch does not record it; its autotuners know.

They lie in the modules of generated code that torch keeps loaded. Reading them costs microseconds for each graph.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary, GeneratedKernel
from tb_torchcompile_plugin.torch_names.kernels import launches


def add_winners(summary: CompileSummary) -> None:
    """Fills in `config` of kernels that had a choice and have made it."""
    open_choices = [
        (graph.output_code_file, kernel)
        for graph in summary.graphs
        for kernel in graph.kernels
        if kernel.num_configs > 1 and not kernel.config
    ]
    if not open_choices:
        return
    modules = {getattr(module, "__file__", ""): module for module in generated_modules()}
    for file, kernel in open_choices:
        if file in modules:
            kernel.config = _winner(vars(modules[file]), kernel)


def generated_modules() -> Iterable[Any]:
    """The modules of generated code that torch keeps loaded."""
    cache = getattr(sys.modules.get("torch._inductor.codecache"), "PyCodeCache", None)
    return list(getattr(cache, "modules", ()))


def _winner(names: dict[str, Any], kernel: GeneratedKernel) -> str:
    """The variable of a user's own kernel ends with a number that its name has not."""
    configs = {
        _text(value.launchers[0].config)
        for name, value in names.items()
        if launches(name, kernel.name) and is_autotuner(value) and len(value.launchers) == 1
    }
    return configs.pop() if len(configs) == 1 else ""


def config_of(tuner: Any) -> str:
    """The configuration in use; "" before there is one."""
    launchers = list(getattr(tuner, "launchers", ()))
    return _text(launchers[0].config) if len(launchers) == 1 else ""


def is_autotuner(value: object) -> bool:
    """Whether it is what launches a Triton kernel of inductor's."""
    return any(kind.__name__ == "CachingAutotuner" for kind in type(value).__mro__)


def _text(config: Any) -> str:
    """As torch's own records have it: block sizes, then warps and stages."""
    sizes = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    return ", ".join(f"{name}={value}" for name, value in sizes.items())
