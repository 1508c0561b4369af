"""What a kernel does, by its name: the one table of rules, first match wins.

The trace says nothing else about a kernel. Inductor's own prefixes come first, then what libraries for
NVIDIA and AMD cards call their kernels. A user's own Triton kernel has any name it likes: only its launch tells,
so the analysis decides `triton_user`, and no rule here gives it.
"""

from __future__ import annotations

import re
from functools import lru_cache

CATEGORIES: tuple[str, ...] = (
    "triton_pointwise",
    "triton_reduction",
    "triton_persistent_reduction",
    "triton_split_scan",
    "triton_foreach",
    "triton_template",
    "triton_other",
    "triton_user",
    "cpp",
    "gemm",
    "convolution",
    "attention",
    "communication",
    "memcpy",
    "memset",
    "aten",
    "other",
)

_BY_CAT = {"gpu_memcpy": "memcpy", "gpu_memset": "memset"}

# torch/_inductor/codegen/triton.py builds names as triton_{poi|red|per|spl|for|tem|unk}_fused_….
_TRITON_PREFIXES = {
    "triton_poi_": "triton_pointwise",
    "triton_red_": "triton_reduction",
    "triton_per_": "triton_persistent_reduction",
    "triton_spl_": "triton_split_scan",
    "triton_for_": "triton_foreach",
    "triton_tem_": "triton_template",
}

# (category, pattern, where such names come from). Searched in this order in the whole name, demangled or not.
_NAME_RULES: tuple[tuple[str, str, str], ...] = (
    (
        "cpp",
        r"(^|_)cpp_fused_",
        "inductor's C++ kernels, with CPP_ENABLE_KERNEL_PROFILE also graph_N_cpp_fused_",
    ),
    (
        "communication",
        r"^nccl(Dev)?Kernel|^rccl|ncclKernel|ncclDevFunc|mscclKernel|nvshmem|deep_ep::|"
        r"multimem_|one_shot_all_reduce|two_shot_all_reduce|cross_device_reduce",
        "NCCL, RCCL, symmetric memory, custom all-reduce",
    ),
    (
        "attention",
        r"flash|fmha|Fmha(Fwd|Bwd)|sdpa|attention|attn_(fwd|bwd)|(^|_)attn_|\bck_tile::Fmha|aiter::.*fmha|"
        r"cudnn::fusion::(compute_dot_do_o|convert_dq)",
        "FlashAttention, memory-efficient attention, cuDNN SDPA with its helpers, AMD CK and AITER",
    ),
    (
        "convolution",
        r"fprop|dgrad|wgrad|implicit_?gemm|ImplicitGemm|[Cc]onv(olution)?[123]?d(?![a-z])|convolve|winograd|"
        r"cudnn::engines_precompiled|cudnn::cnn::|cudnn::detail::(?!bn_)|s\d+cudnn_|nhwcAddPadding|nch?w[Tt]oN|nhwcToNchw|"
        r"^miopen|MIOpen(?!BatchNorm)|_[sh]cudnn_|grouped_conv_|5x_cudnn.*ReduceSplitK|naive_conv|SubTensorOp|Im2[dD]?Col|im2col|col2im|igemm_(fwd|bwd|wrw)|"
        r"GridwiseConv|DeviceGroupedConv|depthwise",
        "cuDNN, CUTLASS and CASK convolutions, their layout changes, MIOpen and Composable Kernel on AMD",
    ),
    (
        "gemm",
        r"gemm|GEMM|Gemm|gemv|Gemv|^nvjet|cublas|Cublas|^Cijk_|Tensile|hipblas|rocblas|"
        r"cutlass|wgmma|splitKreduce|gemmk1|dot_kernel|_mm_kernel|marlin|DeepGemm|deep_gemm",
        "cuBLAS(Lt) with nvjet, CUTLASS, rocBLAS, hipBLASLt and Tensile (Cijk_) on AMD",
    ),
    (
        "aten",
        r"at::native|at::cuda|at::hip|at_cuda_detail|2at6native|at::mps|(^|[^a-z])cub::|3cub|hipcub|rocprim::|"
        r"c10::cuda|caffe2::|softmax_warp_(for|back)ward|elementwise_kernel_with_index",
        "PyTorch's own kernels, and the sorting and scanning libraries that they call",
    ),
)
_COMPILED = tuple((category, re.compile(pattern)) for category, pattern, _ in _NAME_RULES)


def is_anonymous(name: str) -> bool:
    """What inductor calls every Triton kernel with `unique_kernel_names` off; Triton 2 adds a signature."""
    return re.fullmatch(r"triton_(?:_[\dcde]*)?", name) is not None


@lru_cache(maxsize=65536)
def category_of(name: str, cat: str = "kernel") -> str:
    """The category of one GPU or CPU kernel: a member of CATEGORIES.

    cat is the trace event's `cat`; it decides for copies and fills, whatever they are called.
    """
    by_cat = _BY_CAT.get(cat)
    if by_cat:
        return by_cat
    if name.startswith("triton_"):
        return _TRITON_PREFIXES.get(name[:11], "triton_other")
    for category, pattern in _COMPILED:
        if pattern.search(name):
            return category
    return "other"
