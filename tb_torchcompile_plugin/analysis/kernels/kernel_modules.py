"""In which modules of the model was a kernel launched? As Python stacks tell, where they were recorded."""

from __future__ import annotations

import numpy as np

from tb_torchcompile_plugin.profile.columns import mask_of
from tb_torchcompile_plugin.profile.gpu.launches import Launches
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.nest import climb
from tb_torchcompile_plugin.torch_names.python_frames import is_module_call, module_of


def module_names(trace: Trace, rows: Launches, groups: list[Int64s]) -> list[list[str]]:
    """For each group of launches the innermost modules around them, most launches first.

    torch numbers the instances of a class: `Linear_3` is the fourth Linear that ran.
    """
    around = _innermost(trace, rows)
    named = []
    for places in groups:
        codes, counts = np.unique(around[places], return_counts=True)
        order = np.argsort(-counts, kind="stable")
        named.append([module_of(trace.names[codes[i]]) or "" for i in order if codes[i] >= 0])
    return named


def _innermost(trace: Trace, rows: Launches) -> Int64s:
    """The code (into trace.names) of the innermost module's frame around each launch; -1 without one."""
    is_module = mask_of(trace.names, is_module_call)
    if not is_module.any():
        return np.full(len(rows.op), -1, np.int64)
    frame = climb(trace.parent, rows.op, is_module[trace.name])
    return np.where(frame >= 0, trace.name[frame], -1)
