"""What ran eager in the profiled steps, by operator and by the function of the user's that called it?

See `eager_roots` for what counts as eager. Where the trace has no steps, the span is the window.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.compile.compilations import Problem, problems
from tb_torchcompile_plugin.analysis.formatting import duration
from tb_torchcompile_plugin.analysis.formatting import percent as in_percent
from tb_torchcompile_plugin.profile.columns import Cover, distinct, host_slices, mask_of
from tb_torchcompile_plugin.profile.compiled.eager_roots import EagerRoots, Roots
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.intervals import Int64s, covered_ns
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.profile.steps import StepWindows, profiled_time
from tb_torchcompile_plugin.profile.units import share_percent, us
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.reader.trace.nest import climb
from tb_torchcompile_plugin.torch_names.operators import is_backward, node
from tb_torchcompile_plugin.torch_names.python_frames import frame_of, is_profiler_hook, is_users
from tb_torchcompile_plugin.torch_names.slices import PYTHON_FUNCTION, is_data_loading, is_optimizer

EagerKind = Literal["op", "backward", "optimizer", "dataloader", "in_region"]
EagerReason = Literal["graph_break", "recompile_limit", "skipped", "failed", "profiler_hook", "not_compiled"]
_GIVEN_UP: dict[str, EagerReason] = {"limit": "recompile_limit", "skipped": "skipped", "failed": "failed"}


class EagerOp(msgspec.Struct, frozen=True):
    """One outermost operator called from one function. `device_us` sums the GPU events that it launched, None without
    GPU.

    kind: "backward" for a node of autograd, "optimizer" and "dataloader" for what ran under their annotations,
    "in_region" for what ran in a compiled region between its graphs. file, line, function: the innermost function of
    the user's around it, by its first line; null without Python stacks. why: "not_compiled" where torch.compile never
    got that function, null where nothing tells."""

    name: str
    kind: EagerKind
    file: str | None
    line: int | None
    function: str | None
    why: EagerReason | None
    calls: int
    host_us: float
    device_us: float | None


class EagerInStep(msgspec.Struct, frozen=True):
    step: str
    host_us: float
    device_us: float | None
    share_percent: float | None


class EagerTime(msgspec.Struct, frozen=True):
    """`window`: the profiled steps, or the whole span without any. `host_us` sums over threads, `share_percent` is that
    part of the window in which any thread ran eager operators. All without `in_region_us`, which breaks cost.
    `headline`: "" where nothing ran eager."""

    headline: str
    window: Literal["steps", "span"]
    window_us: float
    calls: int
    host_us: float
    share_percent: float | None
    device_us: float | None
    device_share_percent: float | None
    in_region_us: float
    stacks: bool
    steps: list[EagerInStep]
    ops: list[EagerOp]


def eager_time(profile: Profile) -> EagerTime:
    """Rows: most host time first, those in regions last."""
    trace, roots, steps = profile.trace, profile.of(EagerRoots), profile.of(StepWindows)
    outside, inside = (_in_window(steps, part) for part in (roots.outside, roots.in_regions))
    windows = profile.of(profiled_time)
    running = covered_ns(roots.running, *windows)
    window = windows.total_ns
    device = int(outside.device_ns.sum())
    gpu = len(profile.of(gpu_work).index) > 0
    host, share = us(outside.host_ns.sum()), share_percent(running.sum(), window)
    device_share = share_percent(device, roots.launched_ns(steps)) if gpu else None
    return EagerTime(
        headline=_headline(host, share, device_share, len(steps)) if len(outside.row) else "",
        window="steps" if len(steps) else "span",
        window_us=us(window),
        calls=len(outside.row),
        host_us=host,
        share_percent=share,
        device_us=us(device) if gpu else None,
        device_share_percent=device_share,
        in_region_us=us(inside.host_ns.sum()),
        stacks=len(trace.select(cat=PYTHON_FUNCTION)) > 0,
        steps=_by_step(steps, outside, running, gpu),
        ops=[*_ops(profile, outside, gpu), *_ops(profile, inside, gpu, "in_region")],
    )


def _headline(host_us: float, share: float | None, device_share: float | None, steps: int) -> str:
    """ "486 µs a step of host time, 8.08 % of the steps, and 12.7 % of the GPU time" """
    host = f"{duration(host_us / steps)} a step" if steps else duration(host_us)
    part = "" if share is None else f", {in_percent(share)} of the {'steps' if steps else 'span'}"
    gpu = "" if device_share is None else f", and {in_percent(device_share)} of the GPU time"
    return f"{host} of host time{part}{gpu}"


def _in_window(steps: StepWindows, roots: Roots) -> Roots:
    return roots.where(steps.of(roots.start) >= 0) if len(steps) else roots


def _by_step(steps: StepWindows, roots: Roots, running: Int64s, gpu: bool) -> list[EagerInStep]:
    of = steps.of(roots.start)
    host, device = np.zeros((2, len(steps)), np.int64)
    np.add.at(host, of[of >= 0], roots.host_ns[of >= 0])
    np.add.at(device, of[of >= 0], roots.device_ns[of >= 0])
    return [
        EagerInStep(
            step=name,
            host_us=us(host[step]),
            device_us=us(device[step]) if gpu else None,
            share_percent=share_percent(running[step], steps.ends[step] - steps.starts[step]),
        )
        for step, name in enumerate(steps.names)
    ]


def _ops(profile: Profile, roots: Roots, gpu: bool, kind: EagerKind | None = None) -> list[EagerOp]:
    """One row for each operator, kind and calling function."""
    trace, given_up = profile.trace, profile.of(_given_up)
    keys, row = distinct(trace.name[roots.row], _kinds(trace, roots.row), _callers(trace, roots.row))
    host, device = np.zeros((2, keys.shape[1]), np.int64)
    np.add.at(host, row, roots.host_ns)
    np.add.at(device, row, roots.device_ns)
    calls = np.bincount(row, minlength=keys.shape[1])
    rows = [
        EagerOp(
            node(trace.names[name]),
            kind or _KINDS[code],
            *(place := _place(trace.names[caller] if caller >= 0 else "")),
            why="graph_break" if kind else _why(given_up, *place),
            calls=int(calls[at]),
            host_us=us(host[at]),
            device_us=us(device[at]) if gpu else None,
        )
        for at, (name, code, caller) in enumerate(keys.T.tolist())
    ]
    return sorted(rows, key=lambda op: (-op.host_us, op.name))


def _given_up(profile: Profile) -> dict[str, list[Problem]]:
    """Where torch gave functions up, by their names."""
    known = profile.data.of(problems) if profile.data else []
    return grouped((row for row in known if row.ran_eager), lambda row: row.function)


def _why(
    given_up: Mapping[str, list[Problem]],
    file: str | None,
    _: int | None,
    function: str | None,
) -> EagerReason | None:
    if file is None or function is None:
        return None
    if is_profiler_hook(function):
        return "profiler_hook"
    here = (_GIVEN_UP[row.kind] for row in given_up.get(function, ()) if row.file.endswith(file))
    return next(here, "not_compiled")


_KINDS: tuple[EagerKind, ...] = ("op", "backward", "optimizer", "dataloader")


def _kinds(trace: Trace, rows: Int64s) -> Int64s:
    """Codes into `_KINDS`."""
    backward = [code for code, name in enumerate(trace.names) if is_backward(name)]
    conditions = [
        Cover(trace, host_slices(trace, is_optimizer)).holds(rows),
        Cover(trace, host_slices(trace, is_data_loading)).holds(rows),
        np.isin(trace.name[rows], backward),
    ]
    return np.select(conditions, [2, 3, 1], 0)


def _callers(trace: Trace, rows: Int64s) -> Int64s:
    """The name code of the innermost function of the user's around each slice, -1 where no stack tells."""
    stacks = mask_of(trace.cats, PYTHON_FUNCTION.__eq__)
    if not stacks.any():
        return np.full(len(rows), -1, np.int64)
    wanted = stacks[trace.cat] & mask_of(trace.names, is_users)[trace.name]
    caller = climb(trace.parent, trace.parent[rows].astype(np.int64), wanted)
    return np.where(caller >= 0, trace.name[caller], -1)


def _place(frame: str) -> tuple[str | None, int | None, str | None]:
    return frame_of(frame) or (None, None, None)
