"""Where the tab shows a row: the fragment that follows TensorBoard's address, as the tab itself writes it."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, get_args
from urllib.parse import quote

import msgspec

from tb_torchcompile_plugin.analysis.finding import Panel
from tb_torchcompile_plugin.api.answers.address import Address

_PLUGIN = "torch_compile"
_PLAIN = "!~*'()/:,"  # as the tab leaves it
_PANELS = frozenset(get_args(Panel))
# The panel and the table of a section whose name is another one.
_ELSEWHERE: dict[str, tuple[Panel, str]] = {
    "graph_break_sites": ("graph_breaks", "graph_breaks"),
    "reported_sites": ("graph_breaks", "graph_breaks"),
    "compilations": ("compilations", "compilation"),
    "steps": ("step_breakdown", "steps"),
}
_OTHERS: dict[str, Panel] = {
    "gpu": "gpu_utilization",
    "collectives": "gpu_utilization",
    "graph_break_costs": "graph_breaks",
    "break_chain": "graph_breaks",
    "frame_times": "compiled_regions",
    "eager": "compiled_regions",
    "recompile_moments": "recompiles",
    "guard_scans": "recompiles",
    "frame_versions": "recompiles",
    "recompiled_frames": "recompiles",
    "kernel_categories": "kernels",
    "generated_kernels": "kernels",
    "problems": "compilations",
    "autotune": "compile_time",
    "export_issues": "exports",
    "triton_kernels": "triton",
    "triton_candidates": "triton",
    "compile_functions": "compile_time",
    "all_runs": "runs",
}
# How the tab names the rows of its tables, where that is known.
_KEYS: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys(
        ("kernels", "source", "graph_break_sites", "reported_sites", "compilations"), attrgetter("key")
    ),
    "steps": attrgetter("name"),
    "compiled_regions": attrgetter("compile_id"),
    "recompiles": lambda row: f"{row.compile_id},{row.epoch}",
    "by_rank": lambda row: str(row.rank),
}


def fragment(place: Address, row: msgspec.Struct | None = None) -> str:
    """`#torch_compile&p.torch_compile.run=…`: the panel of a section, with the row open where the tab can."""
    panel, key = seen_at(place, row)
    said = {"run": place.run, "worker": place.worker, "span": place.span, "panel": panel, "row": key}
    parts = (f"p.{_PLUGIN}.{name}={quote(text, _PLAIN)}" for name, text in said.items() if text)
    return "&".join((f"#{_PLUGIN}", *parts))


def seen_at(place: Address, row: msgspec.Struct | None) -> tuple[str, str]:
    """The panel of the tab and the row of it, "TABLE:KEY"; "" for the first panel, and for none."""
    if place.section == "findings" and row is not None:
        return str(getattr(row, "panel", "")), str(getattr(row, "row", None) or "")
    name = place.section.partition(".")[0]
    panel, table = _ELSEWHERE.get(place.section, (_OTHERS.get(name, name if name in _PANELS else ""), name))
    if not place.worker:
        return "ranks", f"ranks:{_KEYS[name](row)}" if name == "by_rank" and row is not None else ""
    key = _KEYS.get(place.section)
    return panel, f"{table}:{key(row)}" if key and row is not None else ""
