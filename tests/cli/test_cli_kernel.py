"""`tb-torchcompile kernel`: one kernel in a terminal."""

import pytest

from recordings import Recording
from terminal import Run, command_line

KERNEL = "triton_poi_fused_addmm_relu_threshold_backward_1"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return command_line(capsys, "kernel")


def test_a_kernel_is_printed_with_its_numbers_and_source(run: Run, recording: Recording) -> None:
    status, out, err = run(recording("resnet18"), "triton_poi_fused_0")
    assert status == 0 and not err
    for text in (
        "  Launches: 3\n  Mean: ",
        "  GB/s: ",
        "  Bytes from: inductor\n",
        "  Compile id: 0/0\n",
        "  Graph key: ",
        "x = self.conv1(x)",
        "def triton_poi_fused_0(in_ptr0, out_ptr0, ynumel, xnumel, YBLOCK : tl.constexpr",
    ):
        assert text in out
    row = out.partition("launch configurations\n")[2].splitlines()[1]
    assert " ".join(row.split()).startswith("2, 6, 1 128, 1, 1 4 28 4.10 kB ")


def test_a_log_alone_has_the_source(run: Run, recording: Recording) -> None:
    (log,) = recording("breaks").glob("dedicated_log*")
    status, out, _ = run(log, KERNEL)
    assert status == 0 and f"def {KERNEL}(" in out and "launches" not in out


def test_a_librarys_kernel_has_no_source(run: Run, recording: Recording) -> None:
    name = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma"
    name += "_aligna4_alignc4_execute_kernel__5x_cublas"
    status, out, _ = run(recording("breaks"), name)
    assert status == 0 and "no source: a library kernel" in out


def test_a_missing_name_is_reported_with_similar_ones(run: Run, recording: Recording) -> None:
    status, _, err = run(recording("breaks"), "triton_poi_fused_addmm_relu_9")
    assert status == 1 and err.count("\n") == 1
    assert "there is no kernel" in err and "triton_poi_fused_addmm_relu_0" in err


def test_a_part_of_a_name_is_enough_where_one_kernel_has_it(run: Run, recording: Recording) -> None:
    status, out, _ = run(recording("breaks"), "Fused_ADDMM_relu_0")
    assert status == 0 and "triton_poi_fused_addmm_relu_0" in out
    status, _, err = run(recording("breaks"), "fused")
    assert (
        status == 1
        and "there is no kernel 'fused'. Kernels that contain this name: triton_" in err
        and " more" in err
    )
