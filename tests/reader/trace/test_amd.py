"""A trace of a GPU of AMD: other names of calls, kernels and copies, fewer figures of each launch."""

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from profiles import profile_with
from tb_torchcompile_plugin.analysis.causes.findings import findings
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import gpu_utilization, gpus
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_table
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.torch_names.kernels import without_descriptor
from traces import Event, kernel, slice_, step

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
    add, gemm = without_descriptor(ADD), without_descriptor(GEMM)
    assert [rows[name].category for name in (add, gemm, "CopyDeviceToHost")] == ["aten", "gemm", "memcpy"]
    achieved = rows[add]
    gb_s = 3 * 8192 * 8192 * 4 / 430e3
    assert achieved.bandwidth_from == "shapes"
    assert achieved.bandwidth_gb_s == pytest.approx(gb_s, rel=1e-3)
    assert achieved.bandwidth_percent == pytest.approx(100 * gb_s / 5300, abs=0.1)


def test_waiting_for_the_gpu_is_told_from_launching(profile: Profile) -> None:
    gaps = gpu_utilization(profile).longest_gaps
    assert sum(gap.idle_us for gap in gaps) == 100 + 50
    # until the first wait ends, and all the while the copy is waited for
    assert sum(gap.idle["waiting_for_gpu_us"] for gap in gaps) == 90 + 50
    assert sum(gap.idle["eager_operators_us"] for gap in gaps) == 6
    assert sum(gap.idle["kernel_launches_us"] for gap in gaps) == 4


STEP = 1000.0
POINTWISE = "triton_poi_fused_relu_0"
SQUARES: dict[str, Any] = {"Input Dims": [[2048, 2048], [2048, 2048]], "Input type": ["float"] * 2}
numbers = count(100)


def hip(name: str, start: float, dur: float, of: str = "hipLaunchKernel", cat: str = "kernel") -> list[Event]:
    """A launch 5 µs before its kernel, with what roctracer tells of it."""
    correlation = next(numbers)
    grid: dict[str, Any] = {"grid": [4096, 1, 1], "block": [256, 1, 1]}
    launched = call(of, start - 5, 2, correlation)
    launched["args"] |= {"kernel": name, "cid": 123, "shared memory": 0, "stream": "0x0", **grid}
    return [
        launched,
        kernel(name, start, dur, cat=cat, correlation=correlation, kind="Dispatch Kernel", **grid),
    ]


def compiled_step(number: int) -> list[Event]:
    """Of a compiled training loop on an MI300X, ROCm 7.1: copies and fills are kernels of the runtime."""
    at = number * STEP
    return [
        step(number, at, STEP),
        *hip("MEMORY_COPY_HOST_TO_DEVICE", at + 10, 40, "hipMemcpyAsync"),
        *hip("__amd_rocclr_fillBufferAligned.kd", at + 60, 5, "hipMemsetAsync"),
        slice_("Torch-Compiled Region: 0/0", at + 80, 200),
        slice_(POINTWISE, at + 90, 30),
        *hip(f"{POINTWISE}.kd", at + 100, 300, "hipModuleLaunchKernel"),
        slice_("aten::mm", at + 390, 10, **SQUARES),
        *hip(
            "Cijk_Ailk_Bljk_S_B_Bias_HA_S_SAV_UserArgs_MT128x128x16_MI16x16x1_SN.kd",
            at + 400,
            450,
            "hipExtModuleLaunchKernel",
        ),
        slice_("mine", at + 300, 30, "user_annotation"),
        *hip("_rmsnorm_kernel.kd", at + 855, 20, "hipModuleLaunchKernel"),
        *hip(
            "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", at + 880, 100, "hipExtLaunchKernel"
        ),
    ]


@pytest.fixture
def compiled(tmp_path: Path) -> Profile:
    events = [event for number in (1, 2, 3) for event in compiled_step(number)]
    header: dict[str, Any] = {
        "roctracer_version": 4.1,
        "hip_runtime_version": 70051831,
        "hip_driver_version": 70051831,
    }
    return profile_with(tmp_path, events, deviceProperties=MI300X, **header)


def test_a_kernel_has_the_name_that_its_code_and_its_operator_have(compiled: Profile) -> None:
    rows = {row.name: row for row in kernel_table(compiled).rows}
    assert {name: row.category for name, row in rows.items()} == {
        POINTWISE: "triton_pointwise",
        "Cijk_Ailk_Bljk_S_B_Bias_HA_S_SAV_UserArgs_MT128x128x16_MI16x16x1_SN": "gemm",
        "_rmsnorm_kernel": "triton_user",
        "MEMORY_COPY_HOST_TO_DEVICE": "memcpy",
        "__amd_rocclr_fillBufferAligned": "memset",
        "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)": "communication",
    }
    assert rows[POINTWISE].compile_id == "0/0"


def test_copies_by_kernels_are_memory_and_no_computing(compiled: Profile) -> None:
    (gpu,) = gpus(compiled)
    assert (gpu.exposed_memory_us, gpu.exposed_communication_us) == (3 * 45, 3 * 100)


def test_matrix_cores_multiply_float32_in_single_precision(compiled: Profile) -> None:
    """The share is of the peak in float32, not in TF32."""
    (row,) = [row for row in kernel_table(compiled).rows if row.category == "gemm"]
    reached = 2 * 2048**3 / 450e-6 / 1e12
    assert row.tflop_s == pytest.approx(reached, rel=1e-3)
    assert row.tflop_percent == pytest.approx(100 * reached / 163.4, rel=1e-3)


def test_advice_that_only_helps_on_other_cards_is_not_given(compiled: Profile) -> None:
    report = compiled.of(findings)
    assert not [one for one in report.findings if one.rule in ("tensor_cores", "layout")]
    assert "NVIDIA" not in str(report) and "TF32" not in str(report)
