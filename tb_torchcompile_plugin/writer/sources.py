"""The text of the lines that torch leaves out of its stacks: the first one of each compiled frame."""

from __future__ import annotations

import linecache

from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary


def fill_sources(summary: CompileSummary) -> None:
    """Each file is read once in a process. A line whose file is gone, or that was never in one, stays without."""
    for row in summary.compilations:
        if not row.stack or row.stack[-1].HasField("source"):
            continue
        frame = row.stack[-1]
        if text := linecache.getline(frame.file, frame.line).strip():
            frame.source = text
