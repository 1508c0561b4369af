"""Which kernels ran, of which category, and how long? One row for each kernel and graph."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2s
from typing import NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.kernels.launch_config import LaunchConfig
from tb_torchcompile_plugin.analysis.kernels.roofline import Achieved
from tb_torchcompile_plugin.compile_log.record import Direction
from tb_torchcompile_plugin.generated_code.artifacts import Frame
from tb_torchcompile_plugin.generated_code.generated_code import LinesFrom
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu.launches import Device, Launches, kernel_launches
from tb_torchcompile_plugin.profile.intervals import Int64s
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.units import share_percent, us
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, Category, is_anonymous

_NAME, _GRAPH = 100, 12  # characters of a key


class KernelCategory(msgspec.Struct, frozen=True):
    """`gpu_time_percent` is of the device's summed GPU event time, None on the CPU; wall is the whole span."""

    device: Device
    category: Category
    launches: int
    distinct_kernels: int
    time_us: float
    gpu_time_percent: float | None
    wall_time_percent: float | None


class Kernel(msgspec.Struct, frozen=True):
    """One row per (device, name, compile id, graph key), with all that is known of it. `key` tells it from the others.

    share_percent: of the device's summed time; wall_percent: of the span, where work side by side counts twice.
    lines: the user's lines that it computes, `source_lines` the same as "file:line"; lines_from: None where there are
    none. aten_ops: fused operators. output_code_file, artifact, code_line: where inductor defined it. config: the
    launch configuration that took most time, of `configs`. achieved: see `roofline.Achieved`. alone_us: time of its
    launches in the steps in which nothing else ran on the device. `twice_as_fast_percent`: half of that, of the wall
    time of the steps, or of what they launched if that takes longer: what a step gains at most from a kernel that
    takes half its time.
    """

    key: str
    device: Device
    name: str
    category: Category
    launches: int
    time_us: float
    mean_us: float
    min_us: float
    max_us: float
    share_percent: float
    wall_percent: float | None
    compile_id: str | None
    graph_key: str | None
    direction: Direction | None
    aten_ops: list[str]
    source_lines: list[str]
    lines: list[Frame]
    lines_from: LinesFrom | None
    output_code_file: str | None
    artifact: int | None
    code_line: int | None
    modules: list[str]
    config: LaunchConfig | None
    configs: int
    bandwidth_gb_s: float | None
    bandwidth_percent: float | None
    achieved: Achieved
    alone_us: float | None
    twice_as_fast_percent: float | None


class KernelName(NamedTuple):
    """What tells a row of kernels from the others."""

    device: Device
    name: str
    compile_id: str | None
    graph_key: str | None

    @property
    def key(self) -> str:
        """Short enough for an address: names of templates have a thousand characters."""
        name, graph = brief(self.name), (self.graph_key or "")[:_GRAPH]
        return f"{self.device},{name},{self.compile_id or ''},{graph}"


def brief(name: str) -> str:
    """A name that fits into a key: of a long one its begin, and what tells it from others with the same."""
    return name if len(name) <= _NAME else f"{name[:40]}~{blake2s(name.encode(), digest_size=5).hexdigest()}"


def kernel_categories(profile: Profile) -> list[KernelCategory]:
    """One row per device and category that occurs, most time first."""
    first, last = profile.trace.window()
    answer = [row for launched in profile.of(kernel_launches) for row in _categories(launched, last - first)]
    return sorted(answer, key=lambda row: (str(row.device), -row.time_us))


def distinct_kernels(profile: Profile) -> int:
    """How many there are by device and name: a name has one row for each graph that launches it."""
    return sum(len(np.unique(launched.name)) for launched in profile.of(kernel_launches))


def kernel_name(profile: Profile, rows: Launches, places: Int64s) -> KernelName:
    """Of one of `groups`."""
    ownership, one = profile.of(Ownership), places[0]
    return KernelName(
        rows.device,
        profile.trace.names[rows.name[one]],
        ownership.name(int(rows.compile_id[one])),
        ownership.name(int(rows.graph_key[one])),
    )


def _categories(rows: Launches, wall_ns: int) -> Iterator[KernelCategory]:
    whole = int(rows.dur.sum())
    for code in np.unique(rows.category):
        here = rows.category == code
        time = int(rows.dur[here].sum())
        yield KernelCategory(
            device=rows.device,
            category=CATEGORIES[code],
            launches=int(here.sum()),
            distinct_kernels=len(np.unique(rows.name[here])),
            time_us=us(time),
            gpu_time_percent=None if rows.device == "cpu" else share_percent(time, whole),
            wall_time_percent=share_percent(time, wall_ns),
        )


class UnnamedTriton(NamedTuple):
    """Time of kernels called `triton_`, and the part of it whose launch has a name."""

    all_ns: int
    named_ns: int


def unnamed_triton(profile: Profile) -> UnnamedTriton:
    """What torch was told not to name."""
    codes = [code for code, name in enumerate(profile.trace.names) if is_anonymous(name)]
    unnamed = named = 0
    for rows in profile.of(kernel_launches):
        mine = np.isin(profile.trace.name[rows.index], codes)
        unnamed += int(rows.dur[mine].sum())
        named += int(rows.dur[mine & ~np.isin(rows.name, codes)].sum())
    return UnnamedTriton(unnamed, named)
