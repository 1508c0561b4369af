"""Rules about how the recording was made: what makes its numbers wrong, or hides them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from tb_torchcompile_plugin.analysis.findings import thresholds
from tb_torchcompile_plugin.analysis.findings.context import RuleContext
from tb_torchcompile_plugin.analysis.findings.finding import Finding
from tb_torchcompile_plugin.analysis.findings.rule import Rule
from tb_torchcompile_plugin.analysis.words import percent, plural
from tb_torchcompile_plugin.profile.gpu.launches import launch_calls
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.torch_names.kernels import is_anonymous

_VERSION = re.compile(r"^\d+(?:\.\d+)+$")


class NamesDisabled(Rule):
    id = "names_disabled"
    panel = "kernels"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        if context.profile is None:
            return
        trace, work = context.profile.trace, context.profile.of(gpu_work)
        codes = [code for code, name in enumerate(trace.names) if is_anonymous(name)]
        rows = work.index[np.isin(trace.name[work.index], codes)]
        share = context.gpu_share(float(trace.dur[rows].sum()) / 1000)
        if share is None or share < thresholds.unnamed_percent:
            return
        yield self.finding(
            context,
            f"Kernels without names of their own take {percent(share)} of the GPU time",
            "Let inductor name its kernels: TORCHINDUCTOR_UNIQUE_KERNEL_NAMES=1 (the default since torch 2.6)",
            {"launches": len(rows), "gpu_share_percent": share},
            severity="warning",
            code="TORCHINDUCTOR_UNIQUE_KERNEL_NAMES=1",
        )


class CudaGraphsOldDriver(Rule):
    """Then kernels of graphs that were made before the profiler first ran are missing, or crash it."""

    id = "cudagraphs_old_driver"
    panel = "gpu_utilization"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        if context.profile is None or not context.profile.of(launch_calls).replay.any():
            return
        header = context.profile.trace.metadata
        driver, runtime = header.get("cuda_driver_version"), header.get("cuda_runtime_version")
        if not (_is_old(driver) or _is_old(runtime)):
            return
        yield self.finding(
            context,
            f"CUDA graphs are profiled with CUDA {runtime} and driver {driver}, older than {thresholds.driver_least}: "
            "their kernels may be missing",
            "Call torch.profiler._utils._init_for_cuda_graphs() before the graphs are captured, or update the driver",
            {"replays": int(context.profile.of(launch_calls).replay.sum())},
            severity="critical",
            code="torch.profiler._utils._init_for_cuda_graphs()",
        )


def _is_old(version: object) -> bool:
    """Of CUDA as the header writes it (12020), or of the driver (525.85.12)."""
    if isinstance(version, int):
        return 0 < version < thresholds.cuda_least
    if not (isinstance(version, str) and _VERSION.match(version)):
        return False
    numbers = [int(number) for number in version.split(".")]
    limit = [int(number) for number in thresholds.driver_least.split(".")]
    return numbers < (limit if numbers[0] >= 100 else [thresholds.cuda_least // 1000])


class EmptyProfile(Rule):
    id = "empty_profile"
    panel = "overview"

    def look(self, context: RuleContext) -> Iterator[Finding]:
        if context.profile is None:
            return
        trace = context.profile.trace
        if trace.is_cut_off:  # what is missing may have been there
            return
        if not len(trace):
            yield self.finding(
                context,
                "The trace holds 0 events: the profiler was not active",
                "Let the schedule come to its active steps: call prof.step() at the end of each step, often enough",
                {"events": 0},
                severity="critical",
            )
        elif trace.notices:  # so may what was dropped
            return
        elif trace.metadata.get("deviceProperties") and not len(context.profile.of(gpu_work).index):
            yield self.finding(
                context,
                "The trace holds 0 GPU events, though there is a GPU",
                "Record them: activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]; and run something on it",
                {"gpu_events": 0, "events": trace.events},
                severity="warning",
                code="activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
            )
        elif 0 < context.steps < thresholds.steps_least:
            yield self.finding(
                context,
                f"Only {plural(context.steps, 'step')} was profiled: nothing tells a typical step from an outlier",
                "Profile a few steps: schedule(wait=1, warmup=3, active=3)",
                {"steps": context.steps},
                severity="info",
                code="schedule(wait=1, warmup=3, active=3)",
            )


SETUP_RULES: tuple[Rule, ...] = (NamesDisabled(), CudaGraphsOldDriver(), EmptyProfile())
