"""What a kernel does, by its name.

The trace says nothing else about a kernel. A user's own Triton kernel has any name it likes: only its launch shows it,
so the analysis decides `triton_user`, and no table here gives it.
"""

import re
from collections.abc import Callable
from typing import Literal, get_args

from tb_torchcompile_plugin.torch_names.patterns import begins, contains, equals, first_match, without

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
# Of kernels that only inductor generates.
GENERATED = {name for name in CATEGORIES if name.startswith("triton_")} - {"triton_user", "triton_other"}

PRODUCTS: frozenset[Category] = frozenset({"gemm", "convolution", "attention", "triton_template"})

# Copies and fills by the `cat` of their event, whatever they are called.
_COPIES: dict[str, Category] = {"gpu_memcpy": "memcpy", "gpu_memset": "memset"}
_ATEN = "at::native::"
# The first two rows: copies and fills that AMD's runtime does by kernels of its own, and up to ROCm 7.1 every copy.
_BY_NAME: Callable[[str], Category] = first_match(
    ("memcpy", r"^(?:__amd_rocclr_copy\w+|MEMORY_COPY_\w+)$"),
    ("memset", r"^__amd_rocclr_fill\w+$"),
    # torch/_inductor/codegen/triton.py builds names as triton_{poi|red|per|spl|for|tem|unk}_fused_….
    ("triton_pointwise", r"^triton_poi_"),
    ("triton_reduction", r"^triton_red_"),
    ("triton_persistent_reduction", r"^triton_per_"),
    ("triton_split_scan", r"^triton_spl_"),
    ("triton_foreach", r"^triton_for_"),
    ("triton_template", r"^triton_tem_"),
    ("triton_other", r"^triton_"),
    # Inductor's C++ kernels, with CPP_ENABLE_KERNEL_PROFILE also graph_N_cpp_fused_.
    ("cpp", r"(^|_)cpp_fused_"),
    # NCCL, RCCL, symmetric memory, custom all-reduce.
    (
        "communication",
        r"^nccl(Dev)?Kernel|^rccl|ncclKernel|ncclDevFunc|mscclKernel|nvshmem|deep_ep::|"
        r"multimem_|one_shot_all_reduce|two_shot_all_reduce|cross_device_reduce|quick_?reduce",
    ),
    # FlashAttention, memory-efficient attention, cuDNN SDPA with its helpers, AMD CK and AITER.
    (
        "attention",
        r"flash|fmha|Fmha(Fwd|Bwd)|sdpa|attention|attn_(fwd|bwd)|(^|_)attn_|\bck_tile::Fmha|aiter::.*fmha|"
        r"cudnn::fusion::(compute_dot_do_o|convert_dq|lean_reduction)",
    ),
    # Batch, layer, group, instance and RMS norm of cuDNN, MIOpen, ATen, apex, FlashAttention.
    (
        "normalization",
        r"(batch|layer|group|instance|rms)_?norm(?!al)|(Batch|Layer|Group|Instance|RMS|Rms)Norm|cudnn::(detail::)?bn_|"
        r"RowwiseMoments|GammaBeta|Compute(Internal|BackwardFused|Fused)(Gradients|Params)CUDAKernel|\bln_[fb]wd_",
    ),
    # cuDNN, CUTLASS and CASK convolutions, by FFT too, their layout changes, MIOpen and Composable Kernel on AMD.
    (
        "convolution",
        r"fprop|dgrad(?!_combine)|wgrad|implicit_?gemm|ImplicitGemm|[Cc]onv(olution)?[123]?[dD](?![a-z])|convolve|"
        r"winograd|cudnn::engines_precompiled|cudnn::cnn::|cudnn::detail::|s\d+cudnn_|nhwcAddPadding|nch?w[Tt]oN|"
        r"nhwcToN|(To|to|f)FoldedN|foldedN|tensorTransformGeneric|flip_filter|^void DSE::|fft2d_\w2\w_\d+x|"
        r"_[sh]cudnn_|grouped_conv_|5x_cudnn.*ReduceSplitK|naive_conv|SubTensorOp|Im2[dD]?Col|im2col|col2im|"
        r"igemm_(fwd|bwd|wrw)|GridwiseConv|DeviceGroupedConv|depthwise|^miopen|"
        r"MIOpen(?!Pool|Softmax|LRN|Neuron|Dropout|RNN|LSTM|GRU|CTC)",
    ),
    # cuBLAS(Lt) with nvjet, CUTLASS, rocBLAS, hipBLASLt and Tensile (Cijk_), CK, AITER and vLLM on AMD.
    (
        "gemm",
        r"gemm|GEMM|Gemm|gemv|Gemv|^nvjet|cublas|Cublas|^(Custom_)?Cijk_|Tensile|hipblas|rocblas|"
        r"cutlass|wgmma|splitKreduce|gemmk1|dot_kernel|_mm_kernel|marlin|DeepGemm|deep_gemm|region_transform_ABC|"
        r"wvSplitK|fmoe|ck_moe_stage|_matmul_ogs",
    ),
    # PyTorch's own kernels, those that it compiles when it first needs them among them.
    (
        "aten",
        r"at::native|at::cuda|at::hip|at_cuda_detail|2at6native|at::mps|c10::cuda|caffe2::|"
        r"softmax_warp_(for|back)ward|elementwise_kernel_with_index|\bindexing_backward_kernel|compute_cuda_kernel|"
        r"multi_tensor_apply_kernel|^\w+_(vectorized\d+|kernel)_kernel$|^reduction_(nansum|prod)_kernel$",
    ),
    # Libraries that do an operator's work: sorts, scans, recurrent layers, FFT, sparse and linear algebra, vision.
    (
        "aten",
        r"(^|[^a-z])cub::|3cub|hipcub|rocprim::|thrust::|6thrust|vision::ops|torchaudio|fbgemm|"
        r"cudnn|MIOpen|mlo[A-Z]|RNNcell|^void (RNN|LSTM|GRU|GENERIC)_|"  # what is left of cuDNN: pooling, RNN, CTC …
        r"[cC]ufft|rocfft|(regular|vector|bluestein)_fft|[sd]pRadix|packR2C|real_complex_args_t|"
        r"cusparse|rocsparse|CooToCsr|cusolver|rocsolver|magma|pegasus|"
        r"\b(ge|po|sy|he|or|un)(qr|trf|trs|tri|svd|ev|gqr|mqr|brd|trd)|\b(svd_)?(row|column)_rotate_batch|\bsvd_col|"
        r"offA_stage|\bbatch_(eye|FnrmA|symmetrize)_|\blar(ft|fb)_|\bla(scl|cpy)_kernel|kernel_trsm_|colperm_kernel|"
        r"copy_info_kernel|xxtrf4_",
    ),
    default="other",
)


def category_of(name: str, cat: str = "kernel") -> Category:
    """Return the category of one GPU or CPU kernel; cat: its event's `cat`."""
    return _COPIES.get(cat) or _BY_NAME(name)


# A category of Triton kernels, whoever wrote them; or the name that inductor gave one of its own.
has_triton_prefix = begins("triton_")
# What inductor calls every Triton kernel with `unique_kernel_names` off; Triton 2 adds a signature.
is_anonymous = equals(r"triton_(?:_[\dcde]*)?")
# A kernel of cuDNN's that only turns images from one layout into the other.
is_layout_change = contains(r"(?i)nchwToNhwc|nhwcToNchw")
# What prepares a product or finishes it: layout changes, transforms of Winograd's, sums of parts.
_prepares_or_finishes = contains(
    r"(?i)winograd\w*(?:Data|Filter|Output|Transform)|reduce_wgrad|split_?K_?reduce|ReduceSplitK|nch?w[Tt]oN|nhwcTo|"
    r"Padding|[fF]oldedN|tensorTransform|flip_filter|[Ii]m2[dD]?[cC]ol|col2im|compute_dot_do_o|convert_dq|lean_reduction"
)
_is_plain_identifier = equals(r"(?!_Z)[A-Za-z_]\w*")


def is_certain(category: Category) -> bool:
    """Whether the kind of event, or inductor's own prefix, leaves no doubt."""
    if has_triton_prefix(category):
        return category not in ("triton_other", "triton_user")
    return category in ("memcpy", "memset")


def may_multiply(name: str, category: Category) -> bool:
    """Whether a kernel may do the operations of a product.

    Inductor counts those of a convolution for the pointwise kernel next to it, too; what it fuses by loops multiplies
    no matrices.
    """
    if has_triton_prefix(category):
        return category in ("triton_template", "triton_user", "triton_other")
    return category in PRODUCTS and not _prepares_or_finishes(name)


def is_user_triton(kernel: str, through_driver: bool, operator: str, category: Category) -> bool:
    """Whether a launch shows that the user wrote the kernel in Triton.

    Compiled: inductor launches it in an operator with a number after its name. Eager: Triton launches it through the
    driver, under a plain name that no library uses; what it normalizes does not make it a library's.

    operator: around the launch. category: by name.
    """
    if operator != kernel and launches(operator, kernel):
        return True
    if category not in ("other", "triton_other", "normalization") or not through_driver:
        return False
    return _is_plain_identifier(kernel) and not (category == "triton_other" and operator == kernel)


def launches(operator: str, kernel: str) -> bool:
    """Whether inductor launches a kernel inside this operator: one of its name, which gets a number for a user's."""
    return operator == kernel or without_number(operator) == kernel


# What follows a kernel's own name: the ending of the descriptor that AMD's profiler names, the number that inductor
# gives the kernels of a graph, and the number of the call in provenance records (`triton_poi_fused_0:3`).
without_descriptor = without(r"(?:\.kd| \[clone \.kd\])$")
without_number = without(r"(?<=\D)_\d+$")
without_call = without(r":\d+$")
_FUSED = re.compile(r"(?:graph_\d+_)?(?:triton_[a-z]+|cpp)_fused_+(.+)$")


def name_across_runs(kernel: str) -> str:
    """Return the name that a kernel also has in another run: inductor numbers graphs and kernels again."""
    if has_triton_prefix(kernel) or _FUSED.match(kernel):
        return without_number(defined_name(kernel))
    return kernel


def fused_operators(kernel: str) -> str:
    """Return the operators in a generated kernel's name; "" for other kernels."""
    match = _FUSED.match(without_number(kernel))
    return match[1] if match else ""


def defined_name(kernel: str) -> str:
    """Return the name in the output code of a C++ kernel, which is traced as graph_3_<name>."""
    return kernel.split("_", 2)[-1] if kernel.startswith("graph_") else kernel


_SYMBOL = re.compile(r"(?:void )?((?:\(anonymous namespace\)|[\w:$])+)")
_FUNCTOR = re.compile(r"(?:at::native::|::)(\w*(?:[Ff]unctor|_kernel_cuda)\w*)")


def short_kernel(name: str) -> str:
    """Return a C++ name that a sentence can hold: "CUDAFunctor_add · vectorized_elementwise_kernel".

    It has no template arguments and parameters, but what the kernel does, then how. Other names stay as they are.
    """
    symbol = _SYMBOL.match(name)
    rest = name[symbol.end() :] if symbol else ""
    if symbol is None or not rest.startswith(("<", "(")):
        return name
    functor = _FUNCTOR.search(rest) if _ATEN in name else None
    function = symbol[1].removeprefix(_ATEN)
    return f"{functor[1]} · {function}" if functor else function


# Of which of its arguments a convolution's kernel computes the gradient: the one that its name mentions first.
gradient_of: Callable[[str], Literal["dgrad", "wgrad"] | None] = first_match(
    ("dgrad", r"(?i)^(?:(?!wgrad).)*dgrad"), ("wgrad", r"(?i)wgrad"), default=None
)

# Tensor cores. Libraries write into their kernels' names which instruction they were built on; a name that shows
# neither (a Triton template, a layout change, a sum of partial results) counts for neither.
_TENSOR_CORES = (
    r"tensorop|wmma|wgmma|tf32|_tensor\d+x\d+x\d+|warpgroupsize"  # CUTLASS, and what is built on it
    r"|^nvjet_"  # cuBLAS from Hopper on
    r"|[a-z](16816|1688|884|8816|16832)(gemm|cudnn|fprop|dgrad|wgrad|_)"  # shapes of mma instructions: Volta … Ada
    r"|sdpa_sm\d+_flash|flash_(fwd|bwd)_|flash::"  # FlashAttention
    r"|fmha_cutlass[FB]_(b?f16\w*_sm(7[05]|[89]\d)|f32\w*_sm[89]\d)"  # memory-efficient attention
    r"|^(Custom_)?Cijk_\w*_MI\d+x\d+x\d+"  # AMD's matrix cores, by Tensile
    r"|[xX]dl|mfma"  # by Composable Kernel and AITER
)
_PLAIN_CORES = r"ffma|simt|[sd]gemm|f32f32_f32f32|gemmSN|gemv|wgrad_alg\d|dgrad_engine|fmha_cutlass"
# Whether a kernel multiplies matrices on tensor (AMD: matrix) cores; None if its name does not show it.
uses_tensor_cores: Callable[[str], bool | None] = first_match(
    (True, _TENSOR_CORES), (False, _PLAIN_CORES), default=None
)
# Tensile's float32 on AMD's matrix cores: in single precision, unless its name says that it rounds to XF32 (`_MX_`).
_is_tensile_fp32 = begins(r"(?:Custom_)?Cijk_[A-Za-z]+_[A-Za-z]+_SB?_(?!MX_)")
_is_of_half_type = contains(r"(?i)f(?:p|loat)?16|half")
_is_fp32_product = contains(r"sgemm|gemm_f32f32_f32f32_f32|simt_\w*gemm|gemmSN_\w+<float|gemv\w*<\w*, ?float")
is_double_product = contains(r"dgemm|gemm_f64f64|_d(?:884|1684|16816)gemm|gemv\w*<\w*, ?double")
# Makes each product in float32 of three in TF32: memory-efficient attention does.
multiplies_three_times = contains("fmha_cutlass")


def rounds_to_tf32(kernel: str) -> bool | None:
    """Whether it multiplies float32 in less: tensor cores do, AMD's matrix cores only where the name says so."""
    return False if _is_tensile_fp32(kernel) else uses_tensor_cores(kernel)


def is_plain_fp32_product(kernel: str) -> bool:
    """Whether it is a matrix product in float32 on the plain cores; convolutions have a TF32 switch of their own."""
    is_product = category_of(kernel) == "gemm" and _is_fp32_product(kernel)
    return is_product and not _is_of_half_type(kernel) and not uses_tensor_cores(kernel)
