"""Rules about the GPU: what it waits for, and what it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from tb_torchcompile_plugin.analysis.findings import thresholds
from tb_torchcompile_plugin.analysis.findings.case import Case
from tb_torchcompile_plugin.analysis.findings.rule import Finding, Rule
from tb_torchcompile_plugin.analysis.findings.words import duration, percent
from tb_torchcompile_plugin.analysis.gpu_utilization import device_properties
from tb_torchcompile_plugin.analysis.kernel_details import kernel_table
from tb_torchcompile_plugin.analysis.kernels import kernels, row_key
from tb_torchcompile_plugin.analysis.launch_side import cudagraph_skip_reasons, cudagraph_skips
from tb_torchcompile_plugin.analysis.profile import Profile
from tb_torchcompile_plugin.analysis.tensor_cores import uses_tensor_cores
from tb_torchcompile_plugin.kernel_names import CATEGORIES

# Matrix products in single precision on the plain cores, as cuBLAS and CUTLASS name them.
_FP32_MATMUL = re.compile(r"sgemm|gemm_f32f32_f32f32_f32|simt_\w*gemm|gemmSN_\w+<float|gemv\w*<\w*, ?float")
# Generated code that mostly moves data: templates multiply matrices.
_MOVERS = [
    CATEGORIES.index(name) for name in CATEGORIES if name.startswith("triton_") and name != "triton_template"
]


class LaunchBound(Rule):
    id = "launch_bound"
    panel = "gpu_utilization"

    def look(self, case: Case) -> Iterator[Finding]:
        found = case.profile.utilization if case.profile else None
        if found is None or case.profile is None or case.profile.launch_calls.replay.any():
            return
        if case.summary and (cudagraph_skips(case.summary) or cudagraph_skip_reasons(case.summary)):
            return  # they were asked for: another rule says what keeps them from being used
        told = found.verdict
        share = told.share_percent
        if told.bound != "launch" or share is None or share < thresholds.launch_percent:
            return
        wall, least = case.each_us(told.wall_us), case.each_us(told.least_us)
        yield self.found(
            case,
            f"The GPU waits for launches {percent(share)} of the time: CUDA graphs could bring {duration(wall)} "
            f"{case.where} down to {duration(least)} at best",
            'Launch whole graphs at once: torch.compile(model, mode="reduce-overhead"), or larger batches',
            {
                "wall_us_per_step": wall,
                "least_us_per_step": least,
                "launch_us_per_step": case.each_us(told.launch_us),
                "share_percent": share,
                "launches_per_step": sum(row.launches for row in found.windows) / max(case.steps, 1),
            },
            saves_us=told.launch_us,
        )


class DataLoading(Rule):
    id = "data_loading"
    panel = "gpu_utilization"

    def look(self, case: Case) -> Iterator[Finding]:
        found = case.profile.utilization if case.profile else None
        share = case.share(found.verdict.input_us) if found else None
        if found is None or share is None or share < thresholds.data_loading_percent:
            return
        us = found.verdict.input_us
        yield self.found(
            case,
            f"The GPU waits for data {case.each(us)}, {percent(share)} of it",
            "Load ahead: DataLoader(..., num_workers=4, pin_memory=True, prefetch_factor=2, persistent_workers=True)",
            {"input_us_per_step": case.each_us(us), "share_percent": share},
            saves_us=us,
        )


class ExposedCommunication(Rule):
    id = "communication"
    panel = "gpu_utilization"

    def look(self, case: Case) -> Iterator[Finding]:
        found = case.profile.utilization if case.profile else None
        share = case.share(found.verdict.communication_us) if found else None
        if found is None or share is None or share < thresholds.communication_percent:
            return
        us = found.verdict.communication_us
        yield self.found(
            case,
            f"Communication that nothing overlaps takes {case.each(us)}, {percent(share)} of it",
            "Let it overlap with backward: smaller DDP buckets (bucket_cap_mb), FSDP prefetching; and compare ranks, "
            "for waiting for a slower one looks the same",
            {"communication_us_per_step": case.each_us(us), "share_percent": share},
            saves_us=us,
        )


class Fp32Matmul(Rule):
    id = "fp32_matmul"
    panel = "kernels"

    def look(self, case: Case) -> Iterator[Finding]:
        if case.profile is None or not _has_tf32(case.profile):
            return
        trace, work = case.profile.trace, case.profile.work
        codes = [
            code
            for code, name in enumerate(trace.names)
            if _FP32_MATMUL.search(name) and not uses_tensor_cores(name)
        ]
        rows = work.index[np.isin(trace.name[work.index], codes)]
        us = float(trace.dur[rows].sum()) / 1000
        share = case.gpu_share(us)
        if share is None or share < thresholds.fp32_matmul_percent:
            return
        yield self.found(
            case,
            f"Matrix products in float32 take {percent(share)} of the GPU time, without tensor cores",
            'Allow TF32: torch.set_float32_matmul_precision("high"), or use torch.autocast with bfloat16',
            {"gpu_us_per_step": case.each_us(us), "gpu_share_percent": share, "kernels": len(rows)},
            saves_us=us,
            row=_longest(case.profile, {trace.names[code] for code in codes}),
        )


def _longest(profile: Profile, names: set[str]) -> str | None:
    """The row of the kernel among these that takes most time."""
    rows = kernels(profile.trace, profile.launches, profile.ownership)
    return next((row_key(row) for row in rows if row.name in names), None)


def _has_tf32(profile: Profile) -> bool:
    """Ampere and later; the header of the trace tells."""
    rows = device_properties(profile.trace)
    majors = [row.get("computeMajor") for row in rows if "NVIDIA" in str(row.get("name"))]
    return any(isinstance(major, int) and major >= 8 for major in majors)


class SlowKernel(Rule):
    """A kernel of generated code that mostly moves data; what multiplies matrices is bound by arithmetic."""

    id = "kernel_low_bandwidth"
    panel = "kernels"

    def look(self, case: Case) -> Iterator[Finding]:
        if case.profile is None or not _one_dominates(case):
            return
        for row in kernel_table(case.profile).rows:
            share, bandwidth = case.gpu_share(row.time_us), row.bandwidth_percent
            if (
                CATEGORIES.index(row.category) not in _MOVERS
                or share is None
                or share < thresholds.kernel_percent
            ):
                continue
            if bandwidth is None or bandwidth >= thresholds.kernel_bandwidth_percent:
                continue
            yield self.found(
                case,
                f"{row.name} takes {percent(share)} of the GPU time at {percent(bandwidth)} of the memory bandwidth",
                'Tune it: torch.compile(model, mode="max-autotune"), or larger tensors; '
                f"tb-torchcompile kernel LOGDIR {row.name} shows its source and launches",
                {"gpu_share_percent": share, "bandwidth_percent": bandwidth, "gpu_us": row.time_us},
                saves_us=(row.alone_us or row.time_us) * (1 - bandwidth / 100),
                row=row_key(row),
            )


def _one_dominates(case: Case) -> bool:
    """Whether it is worth to look at kernels one by one."""
    assert case.profile
    for rows in case.profile.launches:
        mine = np.isin(rows.category, _MOVERS)
        times = np.bincount(rows.name[mine], rows.dur[mine], 1)
        if (case.gpu_share(float(times.max()) / 1000) or 0) >= thresholds.kernel_percent:
            return True
    return False


GPU_RULES: tuple[Rule, ...] = (
    LaunchBound(),
    DataLoading(),
    ExposedCommunication(),
    Fp32Matmul(),
    SlowKernel(),
)
