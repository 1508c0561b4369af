"""What torch 2.4 does not log: graph breaks and recompiles. What it compiled tells of them all the same."""

from __future__ import annotations

from collections.abc import Sequence

from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.torch_names.artifacts import name_of
from tb_torchcompile_plugin.torch_names.caches import is_ahead
from tb_torchcompile_plugin.torch_names.python_frames import resumed_from
from tb_torchcompile_plugin.torch_names.records import CHROMIUM_EVENT

_NO_REASON = "torch 2.4 does not log the reason"


def add_unlogged(summary: pb.CompileSummary) -> None:
    """To the summary of a log of torch 2.4, which knows neither artifacts nor spans; others stay as they are.

    A function that resumes after a graph break tells where the graph broke, why the frame before it was started over
    tells the reason, and each compilation of a frame but the first is a recompile.
    """
    if any(kind == CHROMIUM_EVENT or name_of(kind) for kind in summary.records.by_kind):
        return
    forwards = (row for row in summary.compilations if row.direction == pb.FORWARD and row.key.compile_id)
    rows = [row for row in forwards if not is_ahead(row.key.compile_id)]
    for place, row in enumerate(rows):
        if row.key.compile_id.rpartition("/")[2] != "0":
            summary.recompiles.append(pb.Recompile(key=row.key, file=row.file, line=row.line))
        elif (broke := resumed_from(row.function)) and (broken := _broken(rows[:place], row)):
            reason = next(iter(broken.restart_reasons), _NO_REASON)
            summary.graph_breaks.append(
                pb.GraphBreak(key=broken.key, reason=reason, file=row.file, line=broke[1], count=1)
            )


def _broken(before: Sequence[pb.Compilation], resumed: pb.Compilation) -> pb.Compilation | None:
    """The frame that called the resumed one when its graph broke: the innermost of its file on the stack."""
    callers = [frame.function for frame in resumed.stack if frame.file == resumed.file]
    same = (row for row in reversed(before) if row.key.epoch == resumed.key.epoch)
    return next((row for row in same if row.function in callers[-1:]), None)
