"""How much of each device's memory does torch hold at most? What its allocator keeps counts: that fails to grow."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tb_torchcompile_plugin.analysis.memory.memory import capacities
from tb_torchcompile_plugin.analysis.words import percent, significant
from tb_torchcompile_plugin.profile.host.operator_calls import DEVICE_TYPES
from tb_torchcompile_plugin.profile.profile import Profile


class HeldMemory(NamedTuple):
    """In bytes. held: None where no memory was recorded. capacity: None where the header does not tell."""

    device: int
    held: int | None
    capacity: int | None

    @property
    def share_percent(self) -> float | None:
        return 100 * self.held / self.capacity if self.held is not None and self.capacity else None

    def sentence(self) -> str:
        """ "torch holds 12 GB of GPU 0, 8.0 % of its memory" """
        if self.held is None:
            return f"GPU {self.device} has {_gb(self.capacity)}; profile_memory=True records how much of it is held"
        of_it = "" if self.share_percent is None else f", {percent(self.share_percent)} of its memory"
        return f"torch holds {_gb(self.held)} of GPU {self.device}{of_it}"


def held_memory(profile: Profile) -> list[HeldMemory]:
    """By device, of those whose memory was recorded; where none was, of those that the header tells."""
    events, sizes = profile.trace.memory(), capacities(profile.trace)
    on_gpus = np.isin(events["device_type"], DEVICE_TYPES)
    devices = np.unique(events["device_id"][on_gpus]).tolist()
    if not devices:
        return [HeldMemory(device, None, size) for device, size in sorted(sizes.items())]
    mine = {device: on_gpus & (events["device_id"] == device) for device in devices}
    most = {
        device: max(int(events[column][rows].max()) for column in ("total_reserved", "total_allocated"))
        for device, rows in mine.items()
    }
    return [HeldMemory(device, most[device], sizes.get(device)) for device in devices]


def _gb(size: int | None) -> str:
    return f"{significant((size or 0) / 1e9)} GB"
