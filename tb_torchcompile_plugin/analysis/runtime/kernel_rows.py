"""Describe one row of the kernels panel, and what each category of kernels takes of the span."""

from hashlib import blake2s
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.runtime.kernel_code import LaunchConfig
from tb_torchcompile_plugin.analysis.runtime.roofline import Precision, WorkFrom
from tb_torchcompile_plugin.analysis.sheet import column_head
from tb_torchcompile_plugin.compile_log.record import Direction
from tb_torchcompile_plugin.generated_code.artifacts import Frame
from tb_torchcompile_plugin.generated_code.generated_code import LineOrigin
from tb_torchcompile_plugin.profile.columns import Mask, groups_of_equal
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership
from tb_torchcompile_plugin.profile.gpu.launches import Device, Launches, kernel_launches
from tb_torchcompile_plugin.profile.intervals import Int64s, share_percent, us
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, launching, steady_steps
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, Category, has_triton_prefix

_KEY_NAME, _KEY_GRAPH = 100, 12  # characters of name and graph in a key, which stands in addresses
# Generated code that mostly moves data: templates multiply matrices.
DATA_MOVING_CATEGORIES = tuple(
    name for name in CATEGORIES if has_triton_prefix(name) and name != "triton_template"
)


class KernelCategory(msgspec.Struct, frozen=True):
    """The kernels of one category on one device."""

    device: Device
    category: Category
    launches: int
    distinct_kernels: int
    time_us: float
    gpu_time_percent: float | None  # of the device's summed GPU event time; None on the CPU
    wall_time_percent: float | None  # of the whole span


class Kernel(msgspec.Struct, frozen=True):
    """One row per (device, name, compile id, graph key), with all that is known of it."""

    key: str  # identifies the row
    name: Annotated[str, column_head("Kernel", grow=True)]
    time_us: Annotated[float, column_head(total=True)]
    # of the device's summed time
    share_percent: Annotated[float, column_head("Share", bar=True, total=True)]
    launches: Annotated[int, column_head(total=True)]
    mean_us: float
    # How much longer the launches took than they need at the peak of what bounds them; None where that is unknown.
    above_floor_us: Annotated[float | None, column_head("More than at peak", total=True)]
    bandwidth_gb_s: Annotated[float | None, column_head("GB/s", hidden=True)]
    bandwidth_percent: Annotated[float | None, column_head("Share of peak GB/s", bar=True)]
    source_lines: Annotated[list[str], column_head("Your lines")]  # `lines` as "file:line"
    compile_id: Annotated[str | None, column_head(hidden=True)]
    device: Annotated[Device, column_head(hidden=True)]
    category: Annotated[Category, column_head(hidden=True)]
    direction: Annotated[Direction | None, column_head(hidden=True)]
    min_us: Annotated[float, column_head("Shortest", hidden=True)]
    max_us: Annotated[float, column_head("Longest", hidden=True)]
    # of the span, where concurrent work counts twice
    wall_percent: Annotated[float | None, column_head("Share of the span", hidden=True)]
    # inductor computed it, estimated from recorded shapes, or what a copy records
    bandwidth_from: Annotated[WorkFrom | None, column_head("Bytes from", hidden=True)]
    bytes_per_launch: Annotated[float | None, column_head("Bytes per launch", hidden=True)]  # the mean
    tflop_s: Annotated[float | None, column_head("TFLOP/s", hidden=True)]
    tflop_percent: Annotated[float | None, column_head("Share of peak TFLOP/s, %", hidden=True)]
    tflop_from: Annotated[WorkFrom | None, column_head("Operations from", hidden=True)]
    # whose peak `tflop_percent` refers to; bf16 stands for float16, too
    precision: Annotated[Precision | None, column_head(hidden=True)]
    # of launches where both are known
    flop_per_byte: Annotated[float | None, column_head("FLOP per byte", hidden=True)]
    # in the steps, while nothing else ran on the device
    alone_us: Annotated[float | None, column_head("Running alone", hidden=True)]
    # What a step gains at most if the kernel takes half its time: half of `alone_us`, of the wall time of the steps, or
    # of the work that they launched if that takes longer.
    twice_as_fast_percent: Annotated[float | None, column_head("Gain if twice as fast", hidden=True)]
    aten_ops: Annotated[list[str], column_head("Fused operators", hidden=True)]
    modules: Annotated[list[str], column_head(hidden=True)]
    lines: list[Frame]  # the user's lines that it computes
    lines_from: Annotated[LineOrigin | None, column_head(hidden=True)]  # None where there are none
    graph_key: Annotated[str | None, column_head(hidden=True)]
    # this and the next two: where inductor defined it
    output_code_file: Annotated[str | None, column_head("Output code", hidden=True)]
    artifact: Annotated[int | None, column_head(unseen=True)]
    code_line: Annotated[int | None, column_head(unseen=True)]
    config: LaunchConfig | None  # the one that took most time, of `configs`
    configs: Annotated[int, column_head(unseen=True)]


class KernelName(NamedTuple):
    """What identifies a row of kernels."""

    device: Device
    name: str
    compile_id: str | None
    graph_key: str | None

    @property
    def key(self) -> str:
        """Return a key short enough for an address: names of templates have a thousand characters."""
        name, graph = short_name(self.name), (self.graph_key or "")[:_KEY_GRAPH]
        return f"{self.device},{name},{self.compile_id or ''},{graph}"


def short_name(name: str) -> str:
    """Return a name that fits into a key: of a long one the start and a hash."""
    if len(name) <= _KEY_NAME:
        return name
    # 40 characters of _KEY_NAME: enough to recognise a kernel; chosen by eye
    return f"{name[:40]}~{blake2s(name.encode(), digest_size=5).hexdigest()}"


def kernel_name(profile: Profile, rows: Launches, indices: Int64s) -> KernelName:
    """Return what identifies one of `groups`."""
    ownership, first = profile.of(Ownership), indices[0]
    return KernelName(
        rows.device,
        profile.trace.names[rows.name[first]],
        ownership.name(int(rows.compile_id[first])),
        ownership.name(int(rows.graph_key[first])),
    )


def kernel_categories(profile: Profile) -> list[KernelCategory]:
    """Return one row per device and category, most time first."""
    first, last = profile.trace.window()
    categories = []
    for rows in profile.of(kernel_launches):
        total = int(rows.dur.sum())
        for same in groups_of_equal(np.arange(len(rows.dur)), rows.category):
            time = int(rows.dur[same].sum())
            row = KernelCategory(
                device=rows.device,
                category=CATEGORIES[rows.category[same[0]]],
                launches=len(same),
                distinct_kernels=len(np.unique(rows.name[same])),
                time_us=us(time),
                gpu_time_percent=None if rows.device == "cpu" else share_percent(time, total),
                wall_time_percent=share_percent(time, last - first),
            )
            categories.append(row)
    return sorted(categories, key=lambda row: (str(row.device), -row.time_us))


def category_sums(profile: Profile, *, whole: bool = False) -> tuple[int, dict[Category, tuple[int, int]]]:
    """Return how many steady steps there are, and time (ns) and launches of each category in all of them.

    Of the span, which counts as one step, if `whole`, or without steps.
    """
    windows, steady = profile.of(StepWindows), None if whole else profile.of(steady_steps)
    sums = np.zeros((2, len(CATEGORIES)), np.int64)
    for rows in profile.of(kernel_launches):
        if rows.device != "cpu":
            counted = np.ones(len(rows.dur), bool)
            if steady is not None:
                counted = np.isin(launching(windows.windows, profile.trace, rows.launch), steady.rows)
            np.add.at(sums[0], rows.category[counted], rows.dur[counted])
            np.add.at(sums[1], rows.category[counted], 1)
    named = {name: (ns, count) for name, ns, count in zip(CATEGORIES, *sums.tolist()) if count}
    return 1 if steady is None else len(steady.rows), named


def distinct_kernels(profile: Profile) -> int:
    """Return how many kernels there are by device and name: a name has one row for each graph that launches it."""
    return sum(len(np.unique(rows.name)) for rows in profile.of(kernel_launches))


def launched_in_steps(profile: Profile, rows: Launches) -> Mask:
    """Return which launches were made inside a step; all where there are no steps."""
    steps = profile.of(StepWindows)
    if not len(steps):
        return np.ones(len(rows.index), bool)
    return launching(steps.windows, profile.trace, rows.launch) >= 0


def alone_ns(trace: Trace, rows: Launches, groups: list[Int64s], counted: Mask) -> Int64s:
    """Return by how much the device's busy time is shorter without each group, of launches that count."""
    nobody = len(groups)
    owner = np.full(len(rows.index), nobody, np.int64)
    for number, indices in enumerate(groups):
        owner[indices] = number
    owner[~counted] = nobody
    starts = trace.ts[rows.index]
    times = np.concatenate([starts, starts + rows.dur])
    order = np.argsort(times, kind="stable")
    sign = np.concatenate([np.ones(len(owner), np.int64), -np.ones(len(owner), np.int64)])[order]
    owners = np.concatenate([owner, owner])[order]
    running, total, squares = (np.cumsum(sign * weight)[:-1] for weight in (1, owners, owners * owners))
    length = np.diff(times[order])
    # All numbers are the same where the sum of their squares is no larger than their mean requires.
    single = (running > 0) & (running * squares == total * total) & (length > 0)
    return np.bincount(total[single] // running[single], length[single], nobody + 1)[:-1].astype(np.int64)
