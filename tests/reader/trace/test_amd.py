"""A trace of a GPU of AMD: other names of calls, kernels and copies, fewer figures of each launch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from profiles import profile_with
from tb_torchcompile_plugin.analysis.gpu_utilization.gpu_utilization import gpu_utilization
from tb_torchcompile_plugin.analysis.kernels.kernels import kernel_table
from tb_torchcompile_plugin.logdir.discovery import File, SpanFile
from tb_torchcompile_plugin.profile.profile import Profile
from traces import Event, kernel, slice_

SPAN = SpanFile("1", File("w.1.pt.trace.json", 0, 0, ""))
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int) [clone .kd]"
GEMM = "Cijk_Ailk_Bljk_SB_MT128x128x16_MI32x32x2x1_SN.kd"
MI300X = [{"id": 0, "name": "AMD Instinct MI300X", "numSms": 304, "warpSize": 64}]
SHAPES: dict[str, Any] = {
    "Input Dims": [[8192, 8192], [8192, 8192], []],
    "Input type": ["float", "float", "Scalar"],
}


def call(name: str, ts: float, dur: float, correlation: int) -> Event:
    return slice_(name, ts, dur, "cuda_runtime", correlation=correlation)


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    """Two kernels and a copy, with a pause of 100 µs in which the host waits for the first."""
    events = [
        slice_("ProfilerStep#1", 0, 1100, "user_annotation"),
        slice_("aten::add", 5, 10, **SHAPES),
        call("hipLaunchKernel", 10, 4, 1),
        kernel(ADD, 20, 430, correlation=1, grid=[16384, 1, 1], block=[256, 1, 1], kind="<unknown>"),
        call("hipDeviceSynchronize", 20, 520, 2),
        slice_("aten::mm", 540, 10),
        call("hipExtModuleLaunchKernel", 541, 4, 3),
        kernel(GEMM, 550, 300, correlation=3, grid=[64, 1, 1], block=[256, 1, 1]),
        call("hipMemcpyWithStream", 560, 400, 4),
        kernel("CopyDeviceToHost", 900, 50, cat="gpu_memcpy", correlation=4, bytes=4096),
    ]
    return profile_with(tmp_path, events, deviceProperties=MI300X)


def test_kernels_have_their_category_and_bandwidth(profile: Profile) -> None:
    rows = {row.name: row for row in kernel_table(profile).rows}
    assert [rows[name].category for name in (ADD, GEMM, "CopyDeviceToHost")] == ["aten", "gemm", "memcpy"]
    achieved = rows[ADD].achieved
    gb_s = 3 * 8192 * 8192 * 4 / 430e3
    assert achieved.bandwidth_from == "shapes"
    assert achieved.bandwidth_gb_s == pytest.approx(gb_s, rel=1e-3)
    assert achieved.bandwidth_percent == pytest.approx(100 * gb_s / 5300, abs=0.1)


def test_waiting_for_the_gpu_is_told_from_launching(profile: Profile) -> None:
    (gpu,) = gpu_utilization(profile).idle
    assert gpu.idle_us == 100 + 50
    assert (
        gpu.causes.synchronise_us == 90 + 50
    )  # until the first wait ends, and all the while the copy is waited for
    assert gpu.causes.break_eager_us == 10
