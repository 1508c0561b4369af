"""What a device can do at most, by the name that the profiler writes: memory bandwidth and arithmetic.

Figures are from data sheets, dense (no sparsity), per device as the driver counts them: one MI250X die is one device.
docs/guides/kernels.md lists the same table with the source of each row. It holds nothing that no vendor has published,
and no part of a device (MIG). TB_TORCHCOMPILE_PEAKS adds to it or replaces rows of it.
"""

import os
import re

import msgspec

VARIABLE = "TB_TORCHCOMPILE_PEAKS"


class Peak(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a device can do at most; None where it cannot, or where its data sheet does not give a figure."""

    bandwidth_gb_s: float | None = None
    fp32_tflop_s: float | None = None  # outside of tensor cores; on AMD's matrix cores
    tf32_tflop_s: float | None = None
    bf16_tflop_s: float | None = None  # bfloat16 and float16


# (pattern for the whole name, GB/s, FP32, TF32, BF16 or FP16). First match wins, so variants stand above their family.
_ROWS: tuple[tuple[str, float, float | None, float | None, float | None], ...] = (
    (r"NVIDIA GB200( .*)?", 8000, 80, 1250, 2500),
    (r"NVIDIA B200( .*)?", 8000, 75, 1125, 2250),
    (r"NVIDIA H200 NVL", 4800, 60, 417, 835),
    (r"NVIDIA H200( .*)?", 4800, 67, 494, 989),
    (r"NVIDIA GH200 144G.*", 4900, 67, 494, 989),
    (r"NVIDIA GH200( .*)?", 4000, 67, 494, 989),
    (r"NVIDIA H100 NVL", 3900, 60, 417, 835),
    (r"NVIDIA H100 PCIe", 2000, 51, 378, 756),
    (r"NVIDIA H100( 80GB HBM3)?", 3350, 67, 494, 989),
    (r"(NVIDIA )?A100-SXM4-80GB", 2039, 19.5, 156, 312),
    (r"(NVIDIA )?A100(-PCIE-80GB| 80GB PCIe)", 1935, 19.5, 156, 312),
    (r"(NVIDIA )?A100-(SXM4|PCIE)-40GB", 1555, 19.5, 156, 312),
    (r"NVIDIA L40S", 864, 91.6, 183, 362),
    (r"NVIDIA L40", 864, 90.5, 90.5, 181),
    (r"NVIDIA L4", 300, 30.3, 60, 121),
    (r"NVIDIA A10", 600, 31.2, 62.5, 125),
    (r"(NVIDIA )?RTX A6000", 768, 38.7, 77.4, 154.8),
    (r"(Tesla|NVIDIA) T4", 320, 8.1, None, 65),
    (r"(Tesla )?V100-SXM2-\d+GB.*", 900, 15.7, None, 125),
    (r"(Tesla )?V100S-PCIE-32GB", 1134, 16.4, None, 130),
    (r"(Tesla )?V100-PCIE-\d+GB", 900, 14, None, 112),
    (r"NVIDIA GeForce RTX 5090", 1792, 104.8, 104.8, 209.5),
    (r"NVIDIA GeForce RTX 4090", 1008, 82.6, 82.6, 165.2),
    (r"NVIDIA GeForce RTX 3090", 936, 35.6, 35.6, 71),
    (r"(AMD )?(Instinct )?MI355X.*", 8000, 157.3, None, 2516.6),
    (r"(AMD )?(Instinct )?MI350X.*", 8000, 144.2, None, 2309.6),
    (r"(AMD )?(Instinct )?MI325X.*", 6000, 163.4, 653.7, 1307.4),
    (r"(AMD )?(Instinct )?MI300X.*", 5300, 163.4, 653.7, 1307.4),
    (r"(AMD )?(Instinct )?MI300A.*", 5300, 122.6, 490.3, 980.6),
    (r"(AMD )?(Instinct )?MI250X.*", 1638, 47.9, None, 191.5),
    (r"(AMD )?(Instinct )?MI250", 1638, 45.3, None, 181),
    (r"(AMD )?(Instinct )?MI210.*", 1638, 45.3, None, 181),
)
# Pairs of a pattern and its peaks, in the order in which they are tried.
TABLE = [(pattern, Peak(*(figure and float(figure) for figure in figures))) for pattern, *figures in _ROWS]


def peak_of(name: str | None) -> Peak | None:
    """Return the peaks of a device, the user's own figures first; None for an unknown device.

    Raises ValueError where TB_TORCHCOMPILE_PEAKS cannot be read.
    """
    if name is None:
        return None
    try:
        own_peaks = msgspec.json.decode(os.environ.get(VARIABLE, "").strip() or "{}", type=dict[str, Peak])
    except msgspec.DecodeError as error:
        example = '{"NVIDIA H200": {"bandwidth_gb_s": 4800, "bf16_tflop_s": 989}}'
        raise ValueError(f"{VARIABLE} is invalid ({error}); example: {example}") from error
    if name in own_peaks:
        return own_peaks[name]
    if " MIG " in name:
        return None
    matches = (peak for pattern, peak in TABLE if re.fullmatch(pattern, name.strip(), re.IGNORECASE))
    return next(matches, None)
