"""One kernel as text: numbers, launch configurations, the user's lines, the source."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator

from tb_torchcompile_plugin.analysis.formatting import device_name
from tb_torchcompile_plugin.analysis.runtime.kernel_code import LaunchConfig
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import Kernel
from tb_torchcompile_plugin.analysis.runtime.kernels import KernelDetails
from tb_torchcompile_plugin.analysis.runtime.roofline import Achieved
from tb_torchcompile_plugin.cli.kernel_search import KernelMatch
from tb_torchcompile_plugin.errors import visible

_FROM = {"inductor": "as inductor computed it", "shapes": "estimated from shapes", "copy": "as the copy says"}


def print_kernel(match: KernelMatch) -> None:
    """Print what is known of a kernel to stdout. What is not known is left out."""
    row, details, code = match.row, match.details, match.generated
    lines = [match.name, f"  {match.where}"]
    if row is not None and details is not None:
        lines += [*_times(row, details), *_achieved(row.achieved), *map(_config, details.configs)]
    lines += list(_origin(match))
    if code is not None:
        lines += ["", code.definition.source.rstrip()]
    elif row is not None:
        lines.append("  no source: a library's kernel, or its code was not recorded")
    sys.stdout.write(visible("\n".join(lines)) + "\n\n")


def _times(row: Kernel, details: KernelDetails) -> Iterator[str]:
    median = statistics.median(details.launches.duration_us) if details.launches.shown_every == 1 else None
    middle = "" if median is None else f", median {median:.3f}"
    yield (
        f"  {device_name(row.device)}, {row.category}: {row.launches} launches, {row.time_us:.3f} µs, "
        f"mean {row.mean_us:.3f}{middle}, min {row.min_us:.3f}, max {row.max_us:.3f} µs"
    )
    if row.twice_as_fast_percent is not None:
        yield f"  twice as fast, a step would gain at most {row.twice_as_fast_percent:.2f} %"


def _achieved(figures: Achieved) -> Iterator[str]:
    if figures.bandwidth_gb_s is not None and figures.bandwidth_from is not None:
        share = _share(figures.bandwidth_percent)
        yield f"  {figures.bandwidth_gb_s:.1f} GB/s{share}, {_FROM[figures.bandwidth_from]}"
    if figures.tflop_s is not None and figures.tflop_from is not None:
        share = _share(figures.tflop_percent, f" ({figures.precision})")
        yield f"  {figures.tflop_s:.2f} TFLOP/s{share}, {_FROM[figures.tflop_from]}"


def _share(percent: float | None, of: str = "") -> str:
    if percent is None:
        return ""
    above = ": more than memory can, so from a cache" if percent > 100 and not of else ""
    return f", {percent:.1f} % of the peak{of}{above}"


def _config(config: LaunchConfig) -> str:
    values = {
        "grid {}": config.grid,
        "block {}": config.block,
        "{} warps": config.warps,
        "{} registers": config.registers,
        "{} B shared": config.shared_memory_bytes,
        "occupancy {} %": config.occupancy_percent,
    }
    parts = (text.format(value) for text, value in values.items() if value is not None)
    return f"  {', '.join(parts)}: {config.launches} launches, {config.time_us:.3f} µs"


def _origin(match: KernelMatch) -> Iterator[str]:
    row, code = match.row, match.generated
    if code is not None:
        graph = code.code
        yield f"  compile id {graph.compile_id}, {graph.direction}, graph {graph.graph_key or 'not told'}"
        yield f"  {graph.file}:{code.definition.line}"
        if config := graph.configs.get(code.definition.name):
            yield f"  chosen configuration: {config}"
        if code.definition.aten_ops:
            yield f"  fuses {', '.join(code.definition.aten_ops)}"
    lines, known_from = (row.lines, row.lines_from) if row is not None else code.lines if code else ([], None)
    for line in lines:
        yield f"  {line.file}:{line.line}  {line.source or ''}".rstrip()
    if known_from == "comments":
        yield "  (these lines are from the comments in the code and the graph after post-grad passes)"
