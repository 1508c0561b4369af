"""GPU utilization as text: what bounds the steps, why the GPUs idle, what launching costs."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from rich.console import Console

from tb_torchcompile_plugin.gpu_report import DeviceIdle, GpuUtilization
from tb_torchcompile_plugin.text_table import Plain, plural, table

_GAPS_SHOWN = 5


def print_gpu_utilization(console: Console, found: GpuUtilization) -> None:
    """Nothing without GPU events."""
    for line in (_verdict(found), _launches(found)):
        if line:
            console.print(Plain(f"  {line}"), soft_wrap=True)
    table(
        console,
        "steps by device",
        ("step", "device", ">busy µs", ">busy %", ">idle µs", "bound by", ">launches", ">launch calls µs"),
        (
            (
                step.step or "the span",
                device.device,
                device.busy_us,
                device.busy_percent,
                device.idle_us,
                step.verdict.bound,
                step.launches,
                step.launch_call_us,
            )
            for step in (*found.steps, *([found.window] if found.window else []))
            for device in step.devices
        ),
    )
    table(
        console,
        "why GPUs idle: what the launching thread did",
        ("device", "cause", ">idle µs", ">% of idle"),
        (
            (idle.device, cause, time, 100 * time / idle.idle_us if idle.idle_us else None)
            for idle in found.idle
            for cause, time in _causes(idle)
        ),
    )
    shown = found.longest_gaps[:_GAPS_SHOWN]
    table(
        console,
        f"longest idle gaps, {len(shown)} of {sum(idle.gaps for idle in found.idle)}",
        ("device", ">start µs", ">idle µs", "step", "mostly", "~thread", "~then runs"),
        (
            (gap.device, gap.start_us, gap.idle_us, gap.step, gap.cause, gap.thread, gap.before)
            for gap in shown
        ),
    )


def _verdict(found: GpuUtilization) -> str | None:
    told, launches = found.verdict, found.launch_side
    if not (told and launches):
        return None
    where = plural(len(found.steps), "step") if found.steps else "the span"
    said = f"{told.bound} bound" + (f": {told.share_percent:.1f} % of {where}" if told.share_percent else "")
    if told.bound != "launch":
        return said
    replays = launches.cuda_graphs.replays
    if replays:
        return f"{said}, though CUDA graphs were replayed ({plural(replays, 'time')})"
    each = 1000 * max(len(found.steps), 1)
    what = "a step" if found.steps else "it"
    return (
        f"{said}. With CUDA graphs {what} could drop from {told.wall_us / each:.3f} ms "
        f"to at least {told.least_us / each:.3f} ms"
    )


def _launches(found: GpuUtilization) -> str | None:
    told = found.launch_side
    if told is None:
        return None
    parts = {
        "{:.1f} a step": told.launches_per_step,
        "calls {:.3f} µs in all": told.call_us,
        "median call {:.3f} µs": told.call_median_us,
        "median latency {:.3f} µs": told.latency_median_us,
        "median queue wait {:.3f} µs": told.queue_wait_median_us,
        "{:.1f} % of kernels shorter than their launch call": told.short_percent,
    }
    known = (text.format(value) for text, value in parts.items() if value is not None)
    return "; ".join((f"launches {told.launches}", *known))


def _causes(idle: DeviceIdle) -> Iterator[tuple[str, float]]:
    """Those that occur, in their order."""
    for field, time in msgspec.structs.asdict(idle.causes).items():
        if time:
            yield field.removesuffix("_us").replace("_", " "), time
