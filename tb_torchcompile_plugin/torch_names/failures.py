"""What torch says when it does not compile, or gives something up. Standard library only."""

from __future__ import annotations

import re

UNSUPPORTED = "Unsupported"  # what dynamo cannot trace, by the name of its exception
ERROR = "dynamo_error"  # the text of a compilation that failed
CUDAGRAPH_SKIPS = ("inductor", "cudagraph_skips")  # the counter, by group and name
# Why CUDA graphs are not used torch tells a logger alone, in words, and no record.
CUDAGRAPH_LOGGER = "torch._inductor.cudagraph_utils.__cudagraphs"
_LIMIT = re.compile("RecompileLimit|CacheLimitExceeded|recompile.limit|cache_size_limit|cache size limit")
# A break in a loop or a with block that cannot be resumed: dynamo then leaves the whole frame alone.
_SKIPPED = re.compile(
    r"graph break in loop|frame skipped:|Skipping the frame and falling back to eager", re.I
)
_LAST_SILENT = (2, 8)
_CLASS = re.compile(r"<class '(?:.*\.)?(\w+)'>")
_SKIPS = ("skipping cudagraph", "disabling cudagraph")  # of a function or of a graph
_SKIPS_DUE_TO = re.compile(r"^(?:skipping cudagraphs? due to )+")  # torch may say it twice


def is_limit(kind: str, reason: str) -> bool:
    """Whether a frame was compiled too often, and not wrongly. kind: the exception."""
    return bool(_LIMIT.search(kind) or _LIMIT.search(reason))


def skips_frame(reason: str) -> bool:
    """Whether dynamo left the frame alone after a graph break: no error, whatever `suppress_errors` is."""
    return bool(_SKIPPED.search(reason))


def tells_skipped_frames(torch_version: str) -> bool:
    """Whether that torch writes a record of a frame that it leaves alone: 2.8 and older write none. "" is unknown."""
    numbers = re.match(r"(\d+)\.(\d+)", torch_version)
    return not numbers or (int(numbers[1]), int(numbers[2])) > _LAST_SILENT


def exception_name(text: str) -> str:
    """torch 2.4 writes "<class 'torch._dynamo.exc.Unsupported'>", later ones "Unsupported"."""
    named = _CLASS.fullmatch(text)
    return named[1] if named else text


def says_trace_is_saved(text: str) -> bool:
    """Whether torch refuses to export a trace because it has done so: it exports each once."""
    return "already saved" in text


def says_cudagraphs_are_skipped(text: str) -> bool:
    """Of a line of that logger."""
    return text.startswith(_SKIPS)


def skip_reason(text: str) -> str:
    """Why CUDA graphs are skipped, in one line, without where."""
    reason = _SKIPS_DUE_TO.sub("", text.strip().splitlines()[0].partition(" Found from")[0].rstrip(". "))
    return reason.removesuffix(" (1 instances)")
