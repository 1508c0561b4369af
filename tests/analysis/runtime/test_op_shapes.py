"""What one call moves and computes by its shapes, by hand and as torch counts it."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles import profile_with
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import Kernel
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_table
from tb_torchcompile_plugin.analysis.runtime.operators import flops_of
from tb_torchcompile_plugin.analysis.runtime.roofline import operator_work, shapes_in
from tb_torchcompile_plugin.torch_names.kernels import uses_tensor_cores
from tb_torchcompile_plugin.torch_names.operators import family_of
from traces import Event, launch, slice_

HALF = "c10::Half"
CUDNN = ["", "", "", "", "", "", "512", "512", "True", "0.", "False", "False", ""]


def work(
    name: str, dims: Any, types: list[str], values: list[str] | None = None
) -> tuple[float | None, float | None]:
    return operator_work(f"aten::{name}", json.dumps(dims), json.dumps(types), values)


@pytest.mark.parametrize(
    ("name", "dims", "types", "moved"),
    [
        ("add", [[8, 1], [4], []], ["float", "float", "Scalar"], 4 * (8 + 4 + 32)),
        ("add_", [[8, 4], [4], []], ["c10::Half", "float", "Scalar"], 2 * 32 + 4 * 4 + 2 * 32),
        ("div", [[6], []], ["float", "long int"], 4 * 6 + 8 + 4 * 6),
        ("copy_", [[6], [6], []], ["c10::Half", "float", "Scalar"], 6 * 6),
        ("fill_", [[6], []], ["float", "Scalar"], 24),
        ("where", [[6], [6], [6]], ["bool", "float", "float"], 6 + 24 + 24 + 24),
        ("sum", [[6, 7], [], [], []], ["float", "ScalarList", "Scalar", ""], 4 * 42),
        (
            "native_layer_norm",
            [[5, 8], [], [8], [8], []],
            ["float", "ScalarList", "float", "float", "Scalar"],
            4 * (40 + 8 + 8 + 40),
        ),
        ("_foreach_add_", [[[6], [7]], [], []], ["TensorList", "TensorList", "Scalar"], None),
        ("index_put_", [[6], [], [2], []], ["float", "", "float", "Scalar"], None),
        ("relu", [[6]], ["a new type"], None),
        ("mul", [], [], None),
    ],
)
def test_aten_reads_its_arguments_and_writes_its_result(
    name: str, dims: Any, types: list[str], moved: float | None
) -> None:
    assert work(name, dims, types) == (moved, None)


def test_either_gradient_of_a_convolution_touches_all_three() -> None:
    """2 images of 3 x 9 x 9, 4 filters of 3 x 3 x 3 without padding: results of 7 x 7."""
    dims = [[2, 4, 7, 7], [2, 3, 9, 9], [4, 3, 3, 3]]
    moved = 4 * (2 * 4 * 49 + 2 * 3 * 81 + 4 * 27)
    assert work("convolution_backward", dims, ["float"] * 3) == (moved, 2 * (2 * 4 * 49) * 27)


def test_attention_is_two_products_and_five_in_its_gradient() -> None:
    """2 images, 3 heads, 16 queries and 32 keys of 8 numbers, values of 4."""
    q, k, v = [2, 3, 16, 8], [2, 3, 32, 8], [2, 3, 32, 4]
    pairs = 2 * 3 * 16 * 32
    tensors = 2 * (2 * 3) * (16 * 8 + 32 * 8 + 32 * 4 + 16 * 4)
    assert work("_cudnn_attention_forward", [q, k, v], [HALF] * 3, CUDNN) == (tensors, 2 * pairs * (8 + 4))
    causal = [*CUDNN[:10], "True", *CUDNN[11:]]
    assert work("_cudnn_attention_forward", [q, k, v], [HALF] * 3, causal)[1] == pairs * (8 + 4)
    backward = [""] * 11 + ["16", "32", "0.", "False", ""]
    out = [2, 3, 16, 4]
    assert work("_cudnn_attention_backward", [out, q, k, v], [HALF] * 4, backward) == (
        2 * tensors,
        2 * pairs * (3 * 8 + 2 * 4),
    )
    swapped = [[s[0], s[2], s[1], s[3]] for s in (q, k, v)]
    flash = [""] * 8 + ["False", "False", ""]
    assert work("_flash_attention_forward", swapped, [HALF] * 3, flash)[1] == 2 * pairs * 12
    packed = [[32, 3, 8]] * 3
    assert work("_flash_attention_forward", packed, [HALF] * 3, flash) == (None, None)
    assert work("_flash_attention_forward", swapped, [HALF] * 3) == (None, None), "nothing tells of the mask"


@pytest.mark.torch
@given(st.tuples(*[st.integers(1, 64)] * 6))
def test_attention_is_counted_as_torch_counts_it(sizes: tuple[int, ...]) -> None:
    """Without a mask: torch's own counter does not know of masks."""
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    batch, heads, queries, keys, inner, outer = sizes
    q, k, v = [batch, heads, queries, inner], [batch, heads, keys, inner], [batch, heads, keys, outer]
    assert work("_cudnn_attention_forward", [q, k, v], [HALF] * 3, CUDNN)[1] == sdpa_flop_count(q, k, v)
    out = [batch, heads, queries, outer]
    flop = work("_cudnn_attention_backward", [out, q, k, v], [HALF] * 4, [*[""] * 14, "False"])[1]
    assert flop == sdpa_backward_flop_count(out, q, k, v)


def achieved(folder: Path, kernel: str, events: list[Event]) -> Kernel:
    (row,) = (row for row in kernel_table(profile_with(folder, events)).rows if row.name == kernel)
    return row


def is_unknown(row: Kernel) -> bool:
    figures = row.bandwidth_gb_s, row.bytes_per_launch, row.tflop_s, row.flop_per_byte, row.above_floor_us
    return all(figure is None for figure in figures)


def called(
    operator: str, dims: Any, types: list[str], *kernels: tuple[str, float], **args: Any
) -> list[Event]:
    events = [slice_(operator, 0, 50, **{"Input Dims": dims, "Input type": types, **args})]
    for number, (name, duration) in enumerate(kernels):
        events += launch(name, 5 + 5 * number, 100 + 100 * number, duration)
    return events


ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"


def test_a_kernel_of_atens_own_has_the_bytes_of_its_operator(tmp_path: Path) -> None:
    dims, types = [[1000], [1000], []], ["float", "float", "Scalar"]
    figures = achieved(tmp_path, ADD, called("aten::add", dims, types, (ADD, 4)))
    assert figures.bandwidth_gb_s == pytest.approx(12_000 / 4000) and figures.bandwidth_from == "shapes"
    two = called("aten::add", dims, types, (ADD, 4), ("at::native::other", 2))
    assert achieved(tmp_path, ADD, two).bandwidth_gb_s is None, "who moved what is not known"
    other = called("aten::add", dims, types, ("nvjet_tst", 4))
    assert achieved(tmp_path, "nvjet_tst", other).bandwidth_gb_s is None, "no kernel of ATen's own"


def test_the_longest_kernel_of_an_attention_computes_it(tmp_path: Path) -> None:
    main, helper = (
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop",
        "void cudnn::fusion::compute_dot_do_o<1>",
    )
    shape = [2, 4, 128, 64]
    values = {"Concrete Inputs": [*[""] * 14, "False", ""]}
    name, types = "aten::_cudnn_attention_backward", ["c10::BFloat16"] * 6
    events = called(name, [shape] * 6, types, (main, 10), (helper, 3), **values)
    figures = achieved(tmp_path, main, events)
    assert figures.tflop_s == pytest.approx(2 * 2 * 4 * 128 * 128 * 5 * 64 / 10e-6 / 1e12)
    assert (figures.tflop_from, figures.precision) == ("shapes", "bf16")
    assert is_unknown(achieved(tmp_path, helper, events))


@pytest.mark.parametrize(
    ("kernel", "types", "precision"),
    [
        ("nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", ["c10::BFloat16"] * 2, "bf16"),
        ("nvjet_sm90_sss_128x64_gemm", ["float"] * 2, "tf32"),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize32x32x8", ["float"] * 2, "tf32"),
        ("cutlass_80_tensorop_s1688gemm_128x128_32x3_tn_align4", ["float"] * 2, "tf32"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_ffma", ["float"] * 2, "fp32"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>", ["float"] * 2, "fp32"),
        ("void gemmSN_NN_kernel<float, 128, 2, 4, 8>", ["float"] * 2, "fp32"),
        ("some_gemm", ["float"] * 2, None),
        ("nvjet_qqtst_gemm", ["c10::Float8_e4m3fn", "c10::Float8_e4m3fn", "c10::BFloat16"], None),
        ("dgemm_kernel", ["double"] * 2, None),
    ],
)
def test_whose_peak_a_product_is_held_against(
    tmp_path: Path, kernel: str, types: list[str], precision: str | None
) -> None:
    dims = [[64, 64]] * len(types)
    assert achieved(tmp_path, kernel, called("aten::mm", dims, types, (kernel, 4))).precision == precision


def test_attention_in_float32_has_no_peak_of_its_own(tmp_path: Path) -> None:
    """Its kernels are on tensor cores, but multiply three times in TF32."""
    kernel, values = "fmha_cutlassF_f32_aligned_64x64_rf_sm80", {"Concrete Inputs": [*[""] * 9, "0", ""]}
    dims, types = [[2, 128, 4, 64]] * 3, ["float"] * 3
    events = called("aten::_efficient_attention_forward", dims, types, (kernel, 10), **values)
    figures = achieved(tmp_path, kernel, events)
    assert figures.tflop_s and (figures.precision, figures.tflop_percent) == (None, None)


def test_a_users_own_kernel_is_launched_under_its_name_and_a_number(tmp_path: Path) -> None:
    events = called("mine_0", [[500], [500], []], ["float", "float", "Scalar"], ("mine", 2))
    figures = achieved(tmp_path, "mine", events)
    assert (figures.bandwidth_gb_s, figures.bandwidth_from) == (2.0, "shapes")
    assert is_unknown(achieved(tmp_path, "mine", called("minemine_0", [[5]], ["float"], ("mine", 2))))


def test_what_is_known_of_an_operator() -> None:
    names = ("mm", "cudnn_convolution", "_flash_attention_forward", "add_", "index_put_", "embedding")
    rows = [family_of(f"aten::{name}") for name in names]
    assert rows == ["library", "library", "attention", "aten", None, None]


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
