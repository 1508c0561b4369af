"""Is it worth to look at kernels one by one?"""

from __future__ import annotations

import numpy as np

from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, is_triton

# Generated code that mostly moves data: templates multiply matrices.
MOVERS = tuple(name for name in CATEGORIES if is_triton(name) and name != "triton_template")
_CODES = [CATEGORIES.index(name) for name in MOVERS]


def one_dominates(profile: Profile, share_percent: float) -> bool:
    """Whether one kernel that mostly moves data takes such a share of the summed GPU event time."""
    whole = int(profile.trace.dur[profile.of(gpu_work).index].sum())
    for rows in profile.of(kernel_launches):
        mine = np.isin(rows.category, _CODES)
        if 100 * np.bincount(rows.name[mine], rows.dur[mine], 1).max() >= share_percent * max(whole, 1):
            return True
    return False
