"""Frames of libraries and of torch's own, which no user wrote: named with the line of the user's behind them."""

from __future__ import annotations

from collections.abc import Sequence

from tb_torchcompile_plugin.analysis.words import at_line, function_at
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary, Frame
from tb_torchcompile_plugin.torch_names.python_frames import is_users_file


def called_at(stack: Sequence[Frame]) -> str:
    """Of the frame at the end of a stack the line of the user's that led to it; "" where it is the user's own, as torch
    puts some around a module or a hook."""
    if not stack or is_users_file(stack[-1].file):
        return ""
    users = [frame for frame in stack if is_users_file(frame.file)]
    return at_line(users[-1].file, users[-1].line) if users else ""


def frame_called_at(summary: CompileSummary | None, epoch: int, compile_id: str) -> str:
    """The same of a compiled frame, by its first compilation that has a stack: one that torch gave up has none."""
    frame = compile_id.partition("/")[0]
    stacks = (
        row.stack
        for row in (summary.compilations if summary else ())
        if row.stack and row.key.epoch == epoch and row.key.compile_id.partition("/")[0] == frame
    )
    return called_at(next(stacks, ()))


def break_called_at(summary: CompileSummary | None, epoch: int, compile_id: str) -> str:
    """The user's line that led to the break in a library for which a frame was given up; "" where it is another's."""
    for row in summary.graph_breaks if summary else ():
        if (row.key.epoch, row.key.compile_id) == (epoch, compile_id):
            users = [frame for frame in row.stack if is_users_file(frame.file)]
            return "" if is_users_file(row.file) or not users else at_line(users[-1].file, users[-1].line)
    return ""


def named_with_caller(function: str, file: str, line: int | None, caller: str) -> str:
    """ "step (train.py:12)", "inner (external_utils.py:67), called at train.py:12," """
    named = function_at(function, file, line)
    return f"{named}, called at {caller}," if caller else named
