"""How was a kernel launched: grid, block, registers, shared memory, occupancy? One kernel may have several ways."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.kernels.op_shapes import decoded, is_shape
from tb_torchcompile_plugin.profile.columns import Floats, alike, codes_of, distinct
from tb_torchcompile_plugin.profile.gpu.launches import Launches
from tb_torchcompile_plugin.profile.gpu_work import device_properties
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.units import us
from tb_torchcompile_plugin.reader.trace.kineto import Trace

_COLUMNS = ("grid", "block", "registers", "shared_memory", "occupancy")


class LaunchConfig(msgspec.Struct, frozen=True):
    """`warps` of a block. `occupancy_percent` is CUPTI's estimate. What the trace does not tell is None, and so is an
    occupancy of zero where every multiprocessor had a warp: CUPTI could not tell."""

    grid: list[int]
    block: list[int]
    warps: int | None
    registers: int | None
    shared_memory_bytes: int | None
    occupancy_percent: int | None
    launches: int
    time_us: float


class LaunchConfigs:
    """The configurations of the launches of one device."""

    def __init__(self, trace: Trace, rows: Launches) -> None:
        self._trace = trace
        self._dur = rows.dur
        self._columns = [codes_of(trace, name, rows.index) for name in _COLUMNS]
        _, self._same = distinct(*self._columns[::-1])
        self._warp, self._many = _property(trace, "warpSize", 32), _property(trace, "numSms", 1)

    def of(self, places: Int64s) -> list[LaunchConfig]:
        """Those of these launches, most time first; [] on the CPU and for copies."""
        launched = places[self._columns[0][places] >= 0]
        configs = [self._config(same) for same in alike(launched, self._same)]
        return sorted(configs, key=lambda row: -row.time_us)

    def _config(self, places: Int64s) -> LaunchConfig:
        codes = [int(column[places[0]]) for column in self._columns]
        registers, shared_memory, occupancy = (code if code >= 0 else None for code in codes[2:])
        grid, block = _sizes(self._trace, "grid", codes[0]), _sizes(self._trace, "block", codes[1])
        warps = math.ceil(math.prod(block) / self._warp) if block else None
        if occupancy == 0 and math.prod(grid) * (warps or 0) >= self._many:
            occupancy = None
        return LaunchConfig(
            grid=grid,
            block=block,
            warps=warps,
            registers=registers,
            shared_memory_bytes=shared_memory,
            occupancy_percent=occupancy,
            launches=len(places),
            time_us=us(self._dur[places].sum()),
        )


def share_of_gpu(trace: Trace, index: Int64s) -> Floats:
    """What share of a GPU the blocks of each kernel keep busy: 1 if they are as many as multiprocessors, or unknown."""
    code, many = codes_of(trace, "grid", index), _property(trace, "numSms", 0)
    grids = [_whole(text) for text in trace.texts.get("grid") or ()]
    shares = [math.prod(grid) / many if many and all(grid) and grid else 1.0 for grid in grids]
    return np.where(code >= 0, np.minimum([*shares, 1.0], 1.0)[code], 1.0)


def _sizes(trace: Trace, column: str, code: int) -> list[int]:
    return [*_whole(trace.texts[column][code])] if code >= 0 else []


@lru_cache(maxsize=4096)
def _whole(text: str) -> Sequence[int]:
    """A list of sizes; [] where they are no numbers."""
    sizes = decoded(text)
    whole = [int(size) if isinstance(size, float) and math.isfinite(size) else size for size in sizes]
    return whole if is_shape(whole) else []


def _property(trace: Trace, name: str, otherwise: int) -> int:
    """Of the first device. A warp has 64 threads on AMD's data center cards."""
    value = next((row.get(name) for row in device_properties(trace)), None)
    return value if isinstance(value, int) and value > 0 else otherwise
