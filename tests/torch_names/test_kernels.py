"""Categories of kernels, on names that real traces hold."""

import json
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordings import Recording
from tb_torchcompile_plugin.torch_names.kernels import (
    CATEGORIES,
    category_of,
    is_plain_fp32_product,
    short_kernel,
)

REAL = [
    ("triton_poi_fused_addmm_relu_0", "triton_pointwise"),
    ("triton_red_fused_sum_threshold_backward_0", "triton_reduction"),
    ("triton_per_fused_embedding_native_layer_norm_0", "triton_persistent_reduction"),
    ("triton_spl_fused_cumsum_0", "triton_split_scan"),
    ("triton_for_fused_0", "triton_foreach"),
    ("triton_tem_fused_mm_3", "triton_template"),
    ("triton_unk_fused_sum_0", "triton_other"),
    ("triton_", "triton_other"),
    ("cpp_fused_relu_threshold_backward_0", "cpp"),
    ("graph_3_cpp_fused_relu_threshold_backward_0", "cpp"),
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication"),
    ("ncclKernel_SendRecv(ncclDevComm*, unsigned long, ncclWork*)", "communication"),
    (
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1",
        "attention",
    ),
    ("void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(void const*, void const*)", "attention"),
    ("void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64> >", "attention"),
    ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)", "attention"),
    ("aiter::fmha_bwd_hd64_bf16_a32_psskddv", "attention"),
    ("sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x64x32", "convolution"),
    ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_256x64_16x4>", "convolution"),
    (
        "_ZN17cutlass__5x_cudnn6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_11threadblock",
        "convolution",
    ),
    ("void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float, false, true>", "convolution"),
    ("void cudnn::winograd_nonfused::winogradWgradData4x4<float, float>", "convolution"),
    ("void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<1, float, int>", "convolution"),
    ("miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1", "convolution"),
    ("igemm_fwd_gtcx3_nhwc_fp16_bx0_ex0_bt256x128x32", "convolution"),
    ("nvjet_sm90_tst_64x64_64x13_2x1_v_bz_NNT", "gemm"),
    ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>", "gemm"),
    ("sm80_xmma_gemm_f32f32_f32f32_f32_nt_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma", "gemm"),
    ("void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float>", "gemm"),
    ("void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false>", "gemm"),
    ("Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT128x128x64_MI16x16x1", "gemm"),
    ("Custom_Cijk_Ailk_Bljk_S_MX_B_BIAS_HA_S_SAV_NTD_SK3_UserArgs_MT256x256x32_MI16x16x1", "gemm"),
    ("_matmul_ogs_NNT_bf16xbf16xmxfp4_32x256x128x1_swiglu", "gemm"),
    ("void wvSplitK_hf_sml_<__half, 64, 2, 16, 8, 2, 1>(int, int, __half const*)", "gemm"),
    ("fmoe_fp8_blockscale_g1u1_kernel<BF16, BF16, float, FP8, 2, 128, 128>", "gemm"),
    ("kernel_unified_attention_3d", "attention"),
    ("attn_fwd", "attention"),
    ("miopenSp3AsmConv_v21_1_3_gfx94_fp32_f2x3_stride1_group", "convolution"),
    ("MIOpenBatchNormFwdTrainSpatialNorm", "normalization"),
    ("__amd_rocclr_copyBuffer", "memcpy"),
    ("__amd_rocclr_copyBufferRectAligned", "memcpy"),
    ("MEMORY_COPY_HOST_TO_DEVICE", "memcpy"),
    ("__amd_rocclr_fillBufferAligned", "memset"),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int> >", "aten"),
    ("void at_cuda_detail::cub::DeviceReduceSingleTileKernel<>", "aten"),
    ("void cudnn::bn_fw_tr_1C11_singleread<float, 512, true, 1, 2, 0>", "normalization"),
    ("my_add_kernel", "other"),
    ("", "other"),
    ("triton_tem_fused_flex_attention_backward_1", "triton_template"),
    ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "communication"),
    ("ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)", "communication"),
    ("mscclKernel_Sum_float_Simple_false(ncclDevComm*, mscclAlgo*)", "communication"),
    ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>", "communication"),
    (
        "fmha_cutlassB_f32_aligned_64x64_k64_sm80(PyTorchMemEffAttention::AttentionBackwardKernel<",
        "attention",
    ),
    ("void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90", "attention"),
    ("_ZN7ck_tile6kentryILi256ELi2ENS_13FmhaFwdKernelI", "attention"),
    ("void ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<", "attention"),
    ("attn_fwd.kd", "attention"),
    ("volta_scudnn_128x64_relu_interior_nn_v1", "convolution"),
    ("turing_fp16_s1688cudnn_fp16_256x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1", "convolution"),
    ("volta_fp16_s884cudnn_fp16_256x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1", "convolution"),
    ("void cudnn::detail::bn_fw_tr_1C11_kernel_new<float, float, 512, true, 1>", "normalization"),
    ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 4, true, false>", "aten"),
    ("maxwell_scudnn_winograd_128x128_ldg1_ldg4_tile148n_nt_v1", "convolution"),
    (
        "_ZN2ck16tensor_operation6device12_GLOBAL__N_137kernel_grouped_conv_fwd_multiple_abd_xdl",
        "convolution",
    ),
    ("naive_conv_nonpacked_fwd_nchw_float_double_float.kd", "convolution"),
    ("void cutlass__5x_cudnn::Kernel<cutlass__5x_cudnn::reduction::kernel::ReduceSplitK<", "convolution"),
    ("MIOpenBatchNormFwdTrainSpatialNorm", "normalization"),
    ("void cuApplyLayerNorm<c10::BFloat16, float>(c10::BFloat16*, float*, float*)", "normalization"),
    ("void layer_norm::ln_fwd_kernel<layer_norm::Kernel_traits<__nv_bfloat16> >", "normalization"),
    ("void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*, c10::BFloat16 const*)", "normalization"),
    (
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::NormTwoOps<float> > >",
        "aten",
    ),
    ("void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<normal>", "aten"),
    ("MIOpenPoolingForward", "aten"),
    ("abs_kernel_vectorized2_kernel", "aten"),
    ("selective_scan_fwd_kernel", "other"),
    ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn", "gemm"),
    ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x1_tn_align2>", "gemm"),
    ("void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>", "gemm"),
    ("rocblas_dot_kernel_inc1", "gemm"),
    ("void scal_kernel<float, float, 1, true, 6, 5, 5, 3>(cublasTransposeParams<float>, float", "gemm"),
    ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<", "aten"),
    ("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEE", "aten"),
]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ampere_sgemm_128x64_tn", True),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>", True),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_ffma_execute_kernel__51_cublas", True),
        ("void gemmSN_NN_kernel<float, 256, 4, 2, 8, 4, 4, false>", True),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32_warpgroupsize1x1x1", False),
        (
            "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nchw_tilesize128x64x8_ffma__5x_cudnn",
            False,
        ),
        ("void implicit_convolve_sgemm<float, float, 128, 6, 7, 3, 3, 5, 1, false, false, true>", False),
        ("cutlass_simt_sgemm_fprop_optimized_128x128", False),
        ("void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, false>", False),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64", False),
        ("maxwell_fp16_sgemm_fp16_32x128_nn", False),
        ("void gemv2N_kernel<__nv_bfloat16, float>", False),
    ],
)
def test_products_that_could_be_in_tf32(name: str, expected: bool) -> None:
    assert is_plain_fp32_product(name) == expected


@pytest.mark.parametrize(("name", "category"), REAL)
def test_names_of_real_kernels(name: str, category: str) -> None:
    assert category_of(name) == category


def test_copies_and_fills_go_by_the_event_and_not_by_the_name() -> None:
    assert category_of("Memcpy DtoH (Device -> Pageable)", "gpu_memcpy") == "memcpy"
    assert category_of("Memset (Device)", "gpu_memset") == "memset"
    assert category_of("triton_poi_fused_0", "gpu_memcpy") == "memcpy"


@given(st.text(max_size=80), st.sampled_from(["kernel", "gpu_memcpy", "gpu_memset", "cpu_op", ""]))
def test_every_name_has_a_category(name: str, cat: str) -> None:
    assert category_of(name, cat) in CATEGORIES


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTT", "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTT"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        (
            "void cudnn::engines_precompiled::nhwcToNchwKernel<__half, __half, float, true>(__half const*)",
            "cudnn::engines_precompiled::nhwcToNchwKernel",
        ),
        (
            "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
            "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}>(int)",
            "direct_copy_kernel_cuda · elementwise_kernel",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>()",
            "CUDAFunctor_add · vectorized_elementwise_kernel",
        ),
        ("void (anonymous namespace)::softmax_warp<float, 8>(float*)", "(anonymous namespace)::softmax_warp"),
    ],
)
def test_a_name_that_a_sentence_can_hold(name: str, short: str) -> None:
    assert short_kernel(name) == short


Ran = list[tuple[str, int, str]]  # kernel, ns, operator


@pytest.fixture(scope="module")
def reference(recording: Recording) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((recording("library_kernels") / "kernels.json").read_text())
    return content


@pytest.fixture(scope="module")
def programs(reference: dict[str, Any]) -> dict[str, Ran]:
    names, operators = reference["names"], [*reference["ops"], ""]
    return {
        program: [(names[name], ns, operators[operator]) for name, ns, operator in rows]
        for program, rows in reference["programs"].items()
    }


def test_every_kernel_has_the_category_that_was_found_right(reference: dict[str, Any]) -> None:
    wrong = [
        (reference["names"][place], wanted, category)
        for wanted, places in reference["categories"].items()
        for place in places
        if (category := category_of(reference["names"][place])) != wanted
    ]
    assert wrong == []
    assert sum(map(len, reference["categories"].values())) == len(reference["names"]) > 1700
    assert reference["categories"].keys() <= set(CATEGORIES)


def test_at_most_two_percent_of_any_program_is_other(programs: dict[str, Ran]) -> None:
    assert len(programs) > 200
    for program, ran in programs.items():
        other = sum(ns for kernel, ns, _ in ran if category_of(kernel) == "other")
        assert other <= 0.02 * sum(ns for _, ns, _ in ran), program


@pytest.mark.parametrize(
    ("operator", "categories"),
    [
        (r"aten::.*(batch|layer|group|rms)_norm(_backward)?", {"normalization"}),
        (r"aten::(addmm|mm|bmm|baddbmm|_scaled_mm|_grouped_mm|_int_mm)", {"gemm"}),
        (r"aten::.*_attention_(forward|backward)", {"attention"}),
        (r"aten::(cudnn_convolution.*|_conv_depthwise2d|convolution_backward)", {"convolution", "gemm"}),
        (r"aten::_(cudnn_rnn|thnn_fused_lstm_cell).*", {"gemm", "aten"}),
        (
            r"aten::_fft_.*|torchvision::.*|aten::(sort|topk|cumsum|embedding.*|_softmax|add|mul|copy_)",
            {"aten"},
        ),
        (r"aten::_?linalg_.*", {"gemm", "aten"}),
    ],
)
def test_categories_say_what_the_operator_did(
    programs: dict[str, Ran], operator: str, categories: set[str]
) -> None:
    """But for a thousandth: what fills a buffer first, or products of sparse matrices."""
    times = Counter[str]()
    for ran in programs.values():
        for kernel, ns, by in ran:
            if re.fullmatch(operator, by):
                times[category_of(kernel)] += ns
    assert times
    assert sum(times[category] for category in categories) >= 0.999 * times.total(), times
