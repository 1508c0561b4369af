"""What Triton and inductor call the stages of a compiled kernel, its files, and the lines that tell how it was tuned.

Standard library only: this runs inside training.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# The texts that are kept of a kernel: ending of its file in Triton's cache → name of the artifact.
TEXTS = {"ttir": "triton_ttir", "ttgir": "triton_ttgir", "ptx": "triton_ptx", "amdgcn": "triton_amdgcn"}
METADATA = "json"
TUNING_LOGGER = "torch._inductor.runtime.triton_heuristics"
_BENCHMARK = re.compile(r"Benchmark all input configs for (?P<kernel>\S+), get:")
_MEASURED = re.compile(
    r"(?P<config>\w+: .+): (?P<ms>[\d.]+), nreg (?P<registers>\d+), nspill (?P<spills>\d+), #shared-mem (?P<shared>\d+)"
)
_UNSET = re.compile(
    r"(?:num_ctas=1|maxnreg=None|num_buffers_warp_spec=0|num_consumer_groups=0|reg_\w+_warp_spec=0)"
)


class Measured(NamedTuple):
    """One configuration that an autotuner measured. shared: bytes."""

    config: str
    time_us: float
    registers: int
    spills: int
    shared: int


def tuned_kernel(line: str) -> str | None:
    """The kernel that the lines after this one are about."""
    match = _BENCHMARK.fullmatch(line)
    return match["kernel"] if match else None


def measured(line: str) -> Measured | None:
    """What a line of TUNING_LOGGER tells of one configuration."""
    match = _MEASURED.fullmatch(line)
    if match is None:
        return None
    numbers = (int(match[name]) for name in ("registers", "spills", "shared"))
    return Measured(config_text(match["config"]), 1000 * float(match["ms"]), *numbers)


def config_text(text: str) -> str:
    """A configuration as torch's records have it: `XBLOCK=128, num_warps=4, num_stages=1`."""
    parts = text.replace(": ", "=").split(", ")
    return ", ".join(part for part in parts if not _UNSET.fullmatch(part))
