"""Test op_shapes.py and operators.py: FLOPs and tensor cores, from shapes and names alone."""

import pytest

from tb_torchcompile_plugin.analysis.runtime.op_shapes import operator_work, shapes_in
from tb_torchcompile_plugin.analysis.runtime.operators import flops_of
from tb_torchcompile_plugin.torch_names.kernels import uses_tensor_cores


@pytest.mark.parametrize(
    ("name", "shapes", "values", "wanted"),
    [
        ("aten::mm", [[4, 8], [8, 16]], [], 2 * 4 * 8 * 16),
        ("aten::addmm", [[16], [4, 8], [8, 16], [], []], [], 2 * 4 * 8 * 16),
        ("aten::bmm", [[3, 4, 8], [3, 8, 16]], [], 3 * 2 * 4 * 8 * 16),
        ("aten::add", [[4, 8], [8]], [], 32),
        ("aten::add", [[], []], [], 1),
        ("aten::mm", [], [], 0),
        ("aten::mm", [[0, 0], [0, 4]], [], 0),
        (
            "aten::conv2d",
            [[1, 3, 8, 8], [4, 3, 3, 3]],
            ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "1"],
            2 * 16 * 27 * 4,
        ),
        ("aten::mm", [[2**62, 2**62], [2**62, 2]], [], 0),
        ("aten::conv2d", [[1, 3, 8, 8], [4, 3, 2**40, 3]], ["", "", "", "1", "1", '["x", "x"]', "1"], 0),
        ("aten::conv2d", [[1, 3, 8, 8], [4, 3, 3, 3]], {"0": 1}, 0),
        ("aten::conv2d", [[1, 3, 8], [4, 3, 3]], ["", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "1"], 0),
        ("aten::conv2d", [[1, 3, 8, 8], [4, 3, 3, 3]], ["", "", "", "[1, 1]", "same", "[1, 1]", "1"], 0),
    ],
)
def test_flops_are_counted_as_torch_counts_them(name, shapes, values, wanted):
    assert flops_of(name, shapes, values) == wanted


@pytest.mark.parametrize(
    ("kernel", "answer"),
    [
        ("nvjet_sm90_tst_128x128_64x6_2x1_v_bz_NNT", True),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x6_nt_align4>", True),
        (
            "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32_warpgroupsize1x1x1_execute_segment_k_off",
            True,
        ),
        (
            "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize32x32x64_stage3_warpsize2x2x1_tensor16x8x8_aligna4",
            True,
        ),
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_32x6_tn", True),
        ("volta_h884gemm_64x64_ldg8_nn", True),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64>>", True),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention)", True),
        ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1_SN_1LDSB0", True),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4", False),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>", False),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3", False),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize32x32x8_stage3", True),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm50(PyTorchMemEffAttention)", False),
        ("void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>", False),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float>", None),
        ("triton_tem_fused_addmm_gelu_t_view_6", None),
        ("void at::native::vectorized_elementwise_kernel<4>", None),
    ],
)
def test_a_kernels_name_tells_of_tensor_cores(kernel, answer):
    assert uses_tensor_cores(kernel) is answer


@pytest.mark.parametrize("shape", ['"x"', "1e300", "null", "{}", str(2**200), "[4]"])
def test_what_is_no_shape_is_not_calculated_with(shape):
    """A text times a number of a trace would fill the memory."""
    dims, types = f"[[{shape}, 1099511627776], [1099511627776, 4]]", '["float", "float"]'
    assert shapes_in(dims) == [[], [2**40, 4]]
    for operator in ("aten::mm", "aten::conv2d", "aten::convolution_backward", "aten::add"):
        operator_work(operator, dims, types, ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"])
    assert flops_of("aten::mm", shapes_in(dims), []) == 0
