"""Two spans, named and compared, with the verdict in a sentence: what `tb-torchcompile compare` prints."""

from __future__ import annotations

import msgspec

from tb_torchcompile_plugin.analysis.compare import Comparison, compare
from tb_torchcompile_plugin.analysis.kernel_matching import KernelDifference
from tb_torchcompile_plugin.analysis.profile import Profile

__all__ = ["CompareReport", "KernelDifference", "SpanName", "compare_report"]


class SpanName(msgspec.Struct, frozen=True):
    run: str
    worker: str
    span: str
    trace_file: str

    @property
    def ids(self) -> tuple[str, str, str]:
        return self.run, self.worker, self.span


class CompareReport(msgspec.Struct, frozen=True):
    """`verdict` is one sentence; the numbers in it are those of `comparison`."""

    a: SpanName
    b: SpanName
    verdict: str
    comparison: Comparison


def compare_report(a: SpanName, before: Profile, b: SpanName, after: Profile) -> CompareReport:
    found = compare(before, after)
    return CompareReport(a, b, _verdict(found), found)


def _verdict(found: Comparison) -> str:
    figures = {figure.name: figure for figure in found.figures}
    gpu = figures["gpu_busy_us"]
    work = ""
    if gpu.a is not None and gpu.b is not None:
        work = f" The GPUs are busy for {_change(gpu.a, gpu.b)} of it."
    times = found.step_time
    if times is None:
        return f"One side has no profiled steps: whole spans are compared.{work}"
    told = f"A step takes {_change(times.a.mean_us, times.b.mean_us)}"
    if times.within_noise:
        return f"{told}: within the noise of {times.a.steps} and {times.b.steps} steps (± {_us(times.noise_us)}).{work}"
    if times.within_noise is None:
        return f"{told}; with one step on a side nobody knows the noise.{work}"
    return f"{told}, more than the noise of ± {_us(times.noise_us)}.{work}"


def _change(a: float, b: float) -> str:
    percent = f" ({100 * (b - a) / a:+.1f} %)" if a else ""
    return f"{_us(b)} instead of {_us(a)}{percent}"


def _us(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value / 1000:.3g} ms" if value >= 1000 else f"{value:.3g} µs"
