"""Files of other tools, and of torch itself, that are not read: what they are, and what to record instead.

They are recognised by their names and first bytes; of each kind one sentence is all that is shown.
"""

import re
from typing import NamedTuple

_RECORD = "Record with torch.profiler and tb_torchcompile_plugin.tensorboard_trace_handler"


class OtherFormat(NamedTuple):
    """What a file is, and what to do instead."""

    problem: str
    next_step: str


_BY_NAME = (
    (
        r"\.pftrace(?:\.gz)?$",  # what torch 2.14 and later can write, too
        "this is a Perfetto trace, which is not read yet",
        "Record as .json: the format that export_chrome_trace writes depends on the file extension",
    ),
    (
        r"\.(?:nsys-rep|qdrep|ncu-rep|sqlite)$",
        "this is a report of NVIDIA Nsight, not a trace of torch.profiler",
        _RECORD,
    ),
    (r"\.xplane\.pb$", "this is a profile of JAX / XLA, not of torch.profiler", _RECORD),
)
_BY_HEAD = (
    (
        # the names of its processes
        rb'"name"\s*:\s*"/(?:host:CPU|device:[A-Z]+:\d+)\b',
        "this trace was written by JAX / XLA, not by torch.profiler",
        _RECORD,
    ),
    (
        rb'"name"\s*:\s*"(?:Ascend Hardware|CANN)"',
        "this is a trace of torch_npu (Ascend), whose device rows are not read",
        "Set TORCH_TRACE to a folder, and report that folder: compile data needs no trace",
    ),
    (
        rb"\Aversion https://git-lfs\.github\.com/spec/",
        "this is a Git LFS pointer, not the file itself",
        "Run: git lfs pull",
    ),
    (
        rb'"schema"\s*:\s*"[\d.]+-chakra',
        "this is an execution trace (ExecutionTraceObserver), which contains no times",
        _RECORD,
    ),
    (
        rb"\A(?=[^\n{(]*\(\d+\))[^\n{]* \d+\r?\n",
        "these are the stacks of export_stacks, without times of single calls",
        "Record with with_stack=True and export_chrome_trace, or tensorboard_trace_handler: the trace contains them",
    ),
)
_NAMES = [(re.compile(pattern), OtherFormat(*texts)) for pattern, *texts in _BY_NAME]
_HEADS = [(re.compile(pattern, re.MULTILINE), OtherFormat(*texts)) for pattern, *texts in _BY_HEAD]


def other_format(name: str, head: bytes = b"") -> OtherFormat | None:
    """Return what a file is that is not read, by its name and first bytes; None where it may be read."""
    by_name = (known for pattern, known in _NAMES if pattern.search(name))
    by_head = (known for pattern, known in _HEADS if pattern.search(head))
    return next(by_name, None) or next(by_head, None)
