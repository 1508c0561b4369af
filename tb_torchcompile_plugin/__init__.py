"""A TensorBoard plugin for torch.compile.

The names below are loaded on first use: importing this package imports neither torch nor TensorBoard, because
it is imported both inside the training process and inside TensorBoard.
"""

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tb_torchcompile_plugin.dataframes import load
    from tb_torchcompile_plugin.writer.handler import tensorboard_trace_handler
    from tb_torchcompile_plugin.writer.profile_steps import profile_steps
    from tb_torchcompile_plugin.writer.recorded_block import CompileRecorder

__version__ = "0.2.0"
IMPORTED_NS = time.time_ns()  # of the start-up of a process that is recorded, one part ends here

__all__ = ["CompileRecorder", "__version__", "load", "profile_steps", "tensorboard_trace_handler"]

_HOMES = {
    "tensorboard_trace_handler": "tb_torchcompile_plugin.writer.handler",
    "load": "tb_torchcompile_plugin.dataframes",
    "profile_steps": "tb_torchcompile_plugin.writer.profile_steps",
    "CompileRecorder": "tb_torchcompile_plugin.writer.recorded_block",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(home), name)
    globals()[name] = value  # the next access does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
