"""Other ways in which torch 2.14 writes a trace: with the stacks of inductor's kernels, or later and by itself."""

from __future__ import annotations

import contextlib
import glob
import importlib.util
import linecache
import os
import re
import shutil
import sys
import tempfile
from typing import Any

from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary

_MODULE = "torch._inductor.profiler"  # of torch 2.14 and later
_NAME = re.compile(r"\.(?P<time_ns>\d+)\.pt\.trace\.json(?:\.gz)?$")


def wanted() -> bool:
    """Whether the user asks torch to write them (TORCH_COMPILE_DEBUG_EXTEND=1) and it can. Not before inductor was
    loaded: then nothing was compiled."""
    config = sys.modules.get("torch._inductor.config")
    asked = getattr(getattr(config, "trace", None), "provenance_tracking_to_timeline", False)
    return bool(asked) and importlib.util.find_spec(_MODULE) is not None


def writes_by_itself(prof: Any) -> bool:
    """Whether this profiler (torch's CUPTI monitor) writes the file under the name that it is given, and may do so
    only after its export has returned."""
    return bool(getattr(prof, "_use_cupti_monitor", False))


def export(prof: Any, folder: str, worker: str | None, use_gzip: bool, kw: dict[str, Any]) -> str:
    """Write the trace with inductor's stacks, by torch's own handler for that; returns its path.

    That handler writes a trace, reads it and writes it again: elsewhere, so that nobody sees half of it.
    """
    handler = importlib.import_module(_MODULE).inductor_trace_handler
    folder, name = os.path.split(os.path.join(folder, worker or ""))
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory() as elsewhere:
        handler(elsewhere, name or None, use_gzip, **kw)(prof)
        (made,) = os.listdir(elsewhere)
        path = os.path.join(folder, made)
        temporary = f"{path.removesuffix('.gz')}.tmp"
        try:
            shutil.copyfile(os.path.join(elsewhere, made), temporary)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    return path


def written_since(time_ns: int, folder: str, worker: str | None) -> str:
    """The newest trace of this worker, where it is newer than that; else "". A profiler saves its trace once, and
    another handler of the same `on_trace_ready` may have been first."""
    stem = glob.escape(os.path.join(folder, worker or ""))
    paths = glob.glob(f"{stem}.*.pt.trace.json*" if worker else f"{stem}*_{os.getpid()}.*.pt.trace.json*")
    times = [(int(match["time_ns"]), path) for path in paths if (match := _NAME.search(path))]
    newest, path = max(times, default=(0, ""))
    return path if newest > time_ns else ""


# The text of the lines that torch leaves out of its stacks: the first one of each compiled frame.


def fill_sources(summary: CompileSummary) -> None:
    """Each file is read once in a process. A line whose file is gone, or that was never in one, stays without."""
    for row in summary.compilations:
        if not row.stack or row.stack[-1].HasField("source"):
            continue
        frame = row.stack[-1]
        if text := linecache.getline(frame.file, frame.line).strip():
            frame.source = text
