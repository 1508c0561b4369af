"""How much of each transfer could take place beside compute? A transfer is over on all of its ranks at once."""

from __future__ import annotations

import numpy as np

from tb_torchcompile_plugin.job.coupled import by_place, tied
from tb_torchcompile_plugin.job.job import TracedJob
from tb_torchcompile_plugin.profile.columns import Floats
from tb_torchcompile_plugin.profile.model.gpu_queue import beside_compute


def hideable(job: TracedJob) -> Floats:
    """By tied call the share of its transfer, the least among the ranks of its instance."""
    held = job.of(tied)
    share, least = np.ones(len(held.place)), np.ones(int(held.instance.max(initial=-1)) + 1)
    for one, mine in zip(job.ranks, by_place(held.place, len(job.ranks))):
        share[mine] = beside_compute(one.profile, held.work[mine], np.maximum(held.transfer[mine], 0))
    np.minimum.at(least, held.instance, share)
    return least[held.instance]
