"""What a kernel does, by its name: the one table of rules, first match wins.

The trace says nothing else about a kernel. Inductor's own prefixes come first, then what libraries for
NVIDIA and AMD cards call their kernels. A user's own Triton kernel has any name it likes: only its launch tells,
so the analysis decides `triton_user`, and no rule here gives it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, get_args

Category = Literal[
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
    "normalization",
    "communication",
    "memcpy",
    "memset",
    "aten",
    "other",
]
CATEGORIES: tuple[Category, ...] = get_args(Category)

_BY_CAT: dict[str, Category] = {"gpu_memcpy": "memcpy", "gpu_memset": "memset"}

# Copies and fills that AMD's runtime does by kernels of its own, and up to ROCm 7.1 every copy, are traced as kernels.
_COPIES: tuple[tuple[Category, re.Pattern[str]], ...] = (
    ("memcpy", re.compile(r"__amd_rocclr_copy\w+$|MEMORY_COPY_\w+$")),
    ("memset", re.compile(r"__amd_rocclr_fill\w+$")),
)

# torch/_inductor/codegen/triton.py builds names as triton_{poi|red|per|spl|for|tem|unk}_fused_….
_TRITON_PREFIXES: dict[str, Category] = {
    "triton_poi_": "triton_pointwise",
    "triton_red_": "triton_reduction",
    "triton_per_": "triton_persistent_reduction",
    "triton_spl_": "triton_split_scan",
    "triton_for_": "triton_foreach",
    "triton_tem_": "triton_template",
}

# (category, pattern, where such names come from). Searched in this order in the whole name, demangled or not.
_NAME_RULES: tuple[tuple[Category, str, str], ...] = (
    (
        "cpp",
        r"(^|_)cpp_fused_",
        "inductor's C++ kernels, with CPP_ENABLE_KERNEL_PROFILE also graph_N_cpp_fused_",
    ),
    (
        "communication",
        r"^nccl(Dev)?Kernel|^rccl|ncclKernel|ncclDevFunc|mscclKernel|nvshmem|deep_ep::|"
        r"multimem_|one_shot_all_reduce|two_shot_all_reduce|cross_device_reduce|quick_?reduce",
        "NCCL, RCCL, symmetric memory, custom all-reduce",
    ),
    (
        "attention",
        r"flash|fmha|Fmha(Fwd|Bwd)|sdpa|attention|attn_(fwd|bwd)|(^|_)attn_|\bck_tile::Fmha|aiter::.*fmha|"
        r"cudnn::fusion::(compute_dot_do_o|convert_dq|lean_reduction)",
        "FlashAttention, memory-efficient attention, cuDNN SDPA with its helpers, AMD CK and AITER",
    ),
    (
        "normalization",
        r"(batch|layer|group|instance|rms)_?norm(?!al)|(Batch|Layer|Group|Instance|RMS|Rms)Norm|cudnn::(detail::)?bn_|"
        r"RowwiseMoments|GammaBeta|Compute(Internal|BackwardFused|Fused)(Gradients|Params)CUDAKernel|\bln_[fb]wd_",
        "batch, layer, group, instance and RMS norm of cuDNN, MIOpen, ATen, apex, FlashAttention",
    ),
    (
        "convolution",
        r"fprop|dgrad(?!_combine)|wgrad|implicit_?gemm|ImplicitGemm|[Cc]onv(olution)?[123]?[dD](?![a-z])|convolve|"
        r"winograd|cudnn::engines_precompiled|cudnn::cnn::|cudnn::detail::|s\d+cudnn_|nhwcAddPadding|nch?w[Tt]oN|"
        r"nhwcToN|(To|to|f)FoldedN|foldedN|tensorTransformGeneric|flip_filter|^void DSE::|fft2d_\w2\w_\d+x|"
        r"_[sh]cudnn_|grouped_conv_|5x_cudnn.*ReduceSplitK|naive_conv|SubTensorOp|Im2[dD]?Col|im2col|col2im|"
        r"igemm_(fwd|bwd|wrw)|GridwiseConv|DeviceGroupedConv|depthwise|^miopen|"
        r"MIOpen(?!Pool|Softmax|LRN|Neuron|Dropout|RNN|LSTM|GRU|CTC)",
        "cuDNN, CUTLASS and CASK convolutions, by FFT too, their layout changes, MIOpen and Composable Kernel on AMD",
    ),
    (
        "gemm",
        r"gemm|GEMM|Gemm|gemv|Gemv|^nvjet|cublas|Cublas|^(Custom_)?Cijk_|Tensile|hipblas|rocblas|"
        r"cutlass|wgmma|splitKreduce|gemmk1|dot_kernel|_mm_kernel|marlin|DeepGemm|deep_gemm|region_transform_ABC|"
        r"wvSplitK|fmoe|ck_moe_stage|_matmul_ogs",
        "cuBLAS(Lt) with nvjet, CUTLASS, rocBLAS, hipBLASLt and Tensile (Cijk_), CK, AITER and vLLM on AMD",
    ),
    (
        "aten",
        r"at::native|at::cuda|at::hip|at_cuda_detail|2at6native|at::mps|c10::cuda|caffe2::|"
        r"softmax_warp_(for|back)ward|elementwise_kernel_with_index|\bindexing_backward_kernel|compute_cuda_kernel|"
        r"multi_tensor_apply_kernel|^\w+_(vectorized\d+|kernel)_kernel$|^reduction_(nansum|prod)_kernel$",
        "PyTorch's own kernels, those that it compiles when it first needs them among them",
    ),
    (
        "aten",
        r"(^|[^a-z])cub::|3cub|hipcub|rocprim::|thrust::|6thrust|vision::ops|torchaudio|fbgemm|"
        r"cudnn|MIOpen|mlo[A-Z]|RNNcell|^void (RNN|LSTM|GRU|GENERIC)_|"  # what is left of cuDNN: pooling, RNN, CTC …
        r"[cC]ufft|rocfft|(regular|vector|bluestein)_fft|[sd]pRadix|packR2C|real_complex_args_t|"
        r"cusparse|rocsparse|CooToCsr|cusolver|rocsolver|magma|pegasus|"
        r"\b(ge|po|sy|he|or|un)(qr|trf|trs|tri|svd|ev|gqr|mqr|brd|trd)|\b(svd_)?(row|column)_rotate_batch|\bsvd_col|"
        r"offA_stage|\bbatch_(eye|FnrmA|symmetrize)_|\blar(ft|fb)_|\bla(scl|cpy)_kernel|kernel_trsm_|colperm_kernel|"
        r"copy_info_kernel|xxtrf4_",
        "libraries that do an operator's work: sorts, scans, recurrent layers, FFT, sparse and linear algebra, vision",
    ),
)
# AMD's profiler names the descriptor of a kernel, which has its name and this behind it.
_DESCRIPTOR = re.compile(r"(?:\.kd| \[clone \.kd\])$")
_NUMBER = re.compile(r"(?<=\D)_\d+$")
_CALL = re.compile(r":\d+$")
_FUSED = re.compile(r"(?:graph_\d+_)?(?:triton_[a-z]+|cpp)_fused_+(.+)$")
_GRADIENT = re.compile(r"dgrad|wgrad", re.IGNORECASE)
_COMPILED = tuple((category, re.compile(pattern)) for category, pattern, _ in _NAME_RULES)
_ATEN = "at::native::"
_SYMBOL = re.compile(r"(?:void )?((?:\(anonymous namespace\)|[\w:$])+)")
_FUNCTOR = re.compile(r"(?:at::native::|::)(\w*(?:[Ff]unctor|_kernel_cuda)\w*)")


def is_anonymous(name: str) -> bool:
    """What inductor calls every Triton kernel with `unique_kernel_names` off; Triton 2 adds a signature."""
    return re.fullmatch(r"triton_(?:_[\dcde]*)?", name) is not None


@lru_cache(maxsize=65536)
def category_of(name: str, cat: str = "kernel") -> Category:
    """The category of one GPU or CPU kernel: a member of CATEGORIES.

    cat is the trace event's `cat`; it decides for copies and fills, whatever they are called.
    """
    by_cat = _BY_CAT.get(cat)
    if by_cat:
        return by_cat
    for copy, pattern in _COPIES:
        if pattern.match(name):
            return copy
    if name.startswith("triton_"):
        return _TRITON_PREFIXES.get(name[:11], "triton_other")
    for category, pattern in _COMPILED:
        if pattern.search(name):
            return category
    return "other"


def without_descriptor(symbol: str) -> str:
    """A kernel's own name, as code and operators have it: "triton_poi_fused_add_0" of "triton_poi_fused_add_0.kd"."""
    return _DESCRIPTOR.sub("", symbol)


# What prepares a product or finishes it: layout changes, transforms of Winograd's, sums of parts.
_HELPER = re.compile(
    r"winograd\w*(?:Data|Filter|Output|Transform)|reduce_wgrad|split_?K_?reduce|ReduceSplitK|nch?w[Tt]oN|nhwcTo|"
    r"Padding|[fF]oldedN|tensorTransform|flip_filter|[Ii]m2[dD]?[cC]ol|col2im|compute_dot_do_o|convert_dq|lean_reduction",
    re.IGNORECASE,
)
PRODUCTS: frozenset[Category] = frozenset({"gemm", "convolution", "attention", "triton_template"})


def multiplies(name: str, category: Category) -> bool:
    """Whether it may do the operations of a product. Inductor counts those of a convolution for the pointwise kernel
    next to it, too; what it fuses by loops multiplies no matrices."""
    if is_triton(category):
        return category in ("triton_template", "triton_user", "triton_other")
    return category in PRODUCTS and not _HELPER.search(name)


def is_triton(category: Category) -> bool:
    """Whether inductor generated it, or the user wrote it in Triton."""
    return category.startswith("triton_")


def is_certain(category: Category) -> bool:
    """Whether the kind of event, or inductor's own prefix, leaves no doubt."""
    return category in ("memcpy", "memset", *_TRITON_PREFIXES.values())


def is_generated_name(kernel: str) -> bool:
    """Whether inductor calls its own Triton kernels so."""
    return kernel.startswith("triton_")


def is_users_triton(kernel: str, through_driver: bool, operator: str, category: Category) -> bool:
    """Whether a launch tells that the user wrote the kernel in Triton. operator: around the launch. category: by name.

    Compiled: inductor launches it in an operator with a number behind its name. Eager: Triton launches it through the
    driver, under a plain name that no library uses; what it normalizes does not make it a library's.
    """
    if operator != kernel and launches(operator, kernel):
        return True
    if category not in ("other", "triton_other", "normalization") or not through_driver:
        return False
    plain = re.fullmatch(r"(?!_Z)[A-Za-z_]\w*", kernel) is not None
    return plain and not (category == "triton_other" and operator == kernel)


def launches(operator: str, kernel: str) -> bool:
    """Inductor launches a kernel inside an operator of its name; one that the user wrote gets a number there."""
    return operator == kernel or without_number(operator) == kernel


def without_number(kernel: str) -> str:
    """Inductor numbers the kernels of a graph, and what it makes of a user's kernel."""
    return _NUMBER.sub("", kernel)


def kind_of(kernel: str) -> str:
    """Its name in another run, too: inductor numbers graphs and kernels anew. "graph_0_cpp_fused_add_1"."""
    if is_generated_name(kernel) or _FUSED.match(kernel):
        return without_number(defined_name(kernel))
    return kernel


def without_call(key: str) -> str:
    """Of a kernel's name in provenance records, which counts its calls: `triton_poi_fused_0:3`."""
    return _CALL.sub("", key)


def short_kernel(name: str) -> str:
    """A C++ name as a sentence can hold it, without template arguments and parameters: what it does, then how:
    "CUDAFunctor_add · vectorized_elementwise_kernel". Other names stay as they are."""
    symbol = _SYMBOL.match(name)
    rest = name[symbol.end() :] if symbol else ""
    if symbol is None or not rest.startswith(("<", "(")):
        return name
    does = _FUNCTOR.search(rest) if _ATEN in name else None
    how = symbol[1].removeprefix(_ATEN)
    return f"{does[1]} · {how}" if does else how


def fused_operators(kernel: str) -> str:
    """The operators in a generated kernel's name; "" for other kernels."""
    match = _FUSED.match(without_number(kernel))
    return match[1] if match else ""


def defined_name(kernel: str) -> str:
    """The name in the output code of a C++ kernel, which is traced as graph_3_<name>."""
    return kernel.split("_", 2)[-1] if kernel.startswith("graph_") else kernel


def gradient_of(kernel: str) -> Literal["dgrad", "wgrad"] | None:
    """Of which of its arguments a convolution's kernel computes the gradient."""
    match = _GRADIENT.search(kernel)
    return None if match is None else "dgrad" if match[0].lower() == "dgrad" else "wgrad"


def is_layout_change(kernel: str) -> bool:
    """Whether a kernel of cuDNN's only turns images from one layout into the other."""
    return _LAYOUT_CHANGE.search(kernel) is not None


_LAYOUT_CHANGE = re.compile(r"nchwToNhwc|nhwcToNchw", re.IGNORECASE)


# Does a kernel multiply matrices, and on tensor cores? By its name, which is all that a trace tells.
# Libraries write into their kernels' names which instruction they were built on. A name that tells neither
# way (a Triton template, a layout change, a reduction of partial results) is None, and counts on neither
# side.


_YES = re.compile(
    r"tensorop|wmma|wgmma|tf32|_tensor\d+x\d+x\d+|warpgroupsize"  # CUTLASS, and cuBLAS and cuDNN that are built on it
    r"|^nvjet_"  # cuBLAS from Hopper on
    r"|[a-z](16816|1688|884|8816|16832)(gemm|cudnn|fprop|dgrad|wgrad|_)"  # shapes of mma instructions: Volta … Ada
    r"|sdpa_sm\d+_flash|flash_(fwd|bwd)_|flash::"  # FlashAttention
    r"|fmha_cutlass[FB]_(b?f16\w*_sm(7[05]|[89]\d)|f32\w*_sm[89]\d)"  # memory-efficient attention
    r"|^(Custom_)?Cijk_\w*_MI\d+x\d+x\d+"  # AMD's matrix cores, by Tensile
    r"|[xX]dl|mfma"  # by Composable Kernel and AITER
)
_NO = re.compile(r"ffma|simt|[sd]gemm|f32f32_f32f32|gemmSN|gemv|wgrad_alg\d|dgrad_engine|fmha_cutlass")

# Tensile's float32 on AMD's matrix cores: in single precision, unless its name says that it rounds to XF32 (`_MX_`).
_SINGLE = re.compile(r"^(?:Custom_)?Cijk_[A-Za-z]+_[A-Za-z]+_SB?_(?!MX_)")

# Matrix products in single precision, as cuBLAS and CUTLASS name them.
_FP32_PRODUCT = re.compile(r"sgemm|gemm_f32f32_f32f32_f32|simt_\w*gemm|gemmSN_\w+<float|gemv\w*<\w*, ?float")

_FP64_PRODUCT = re.compile(r"dgemm|gemm_f64f64|_d(?:884|1684|16816)gemm|gemv\w*<\w*, ?double")


@lru_cache(maxsize=65536)
def uses_tensor_cores(kernel: str) -> bool | None:
    """Whether a kernel multiplies matrices on tensor (AMD: matrix) cores; None where its name is silent."""
    if _YES.search(kernel):
        return True
    return False if _NO.search(kernel) else None


def rounds_to_tf32(kernel: str) -> bool | None:
    """Whether it multiplies float32 in less: tensor cores do, AMD's matrix cores only where the name says so."""
    return False if _SINGLE.search(kernel) else uses_tensor_cores(kernel)


def is_plain_fp32_product(kernel: str) -> bool:
    """A matrix product in float32 on the plain cores."""
    return _FP32_PRODUCT.search(kernel) is not None and not uses_tensor_cores(kernel)


def is_double_product(kernel: str) -> bool:
    """A matrix product in float64."""
    return _FP64_PRODUCT.search(kernel) is not None


def multiplies_three_times(kernel: str) -> bool:
    """Whether it makes each product in float32 of three in TF32: memory-efficient attention does."""
    return "fmha_cutlass" in kernel
