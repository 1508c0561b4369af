"""Which operator launched each piece of GPU work, and which tensors was it given?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from tb_torchcompile_plugin.analysis.kernels.op_shapes import Shape, tensors_in
from tb_torchcompile_plugin.profile.columns import codes_of, mask_of
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.nest import climb
from tb_torchcompile_plugin.torch_names.slices import OPERATOR


def launching(profile: Profile) -> Int64s:
    """By work of the queue the innermost operator, or generated kernel, around its launch, as a slice; -1 for none."""
    queue, lane, trace = profile.of(gpu_queue), profile.of(host_lane), profile.trace
    is_operator = mask_of(trace.cats, OPERATOR.__eq__)[trace.cat]
    return np.asarray(climb(trace.parent, lane.row[queue.point].astype(np.int64), is_operator))


def tensors_of(profile: Profile, rows: Int64s) -> dict[int, list[Shape]]:
    """By slice the shapes of its tensors, those of lists among them."""
    return {row: tensors_in(text) for row, text in texts_of(profile, "input_dims", rows)}


def texts_of(
    profile: Profile, column: Literal["input_dims", "input_types"], rows: Int64s
) -> Iterator[tuple[int, str]]:
    """What was recorded of each slice's arguments, "" where nothing was."""
    texts = profile.trace.texts[column]
    for row, code in zip(rows.tolist(), codes_of(profile.trace, column, rows).tolist()):
        yield row, texts[code] if code >= 0 else ""
