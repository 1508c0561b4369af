"""Does a kernel multiply matrices, and on tensor cores? By its name, which is all that a trace tells.

Libraries write into their kernels' names which instruction they were built on. A name that tells neither way (a Triton
template, a layout change, a reduction of partial results) is None, and counts on neither side.
"""

from __future__ import annotations

import re
from functools import lru_cache

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
