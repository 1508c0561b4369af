"""Other readers of traces, each in an environment of its own; their programs get the traces as arguments."""

from __future__ import annotations

import argparse

_PROGRAMS = {
    "hta": """
import sys
from hta.common.trace import Trace
trace = Trace(trace_files=dict(enumerate(sys.argv[1:])), trace_dir="")
trace.parse_traces(use_multiprocessing=False)
trace.decode_symbol_ids()
print(sum(map(len, trace.get_all_traces().values())), "rows")
""",
    "torch-tb-profiler": """
import sys, tempfile
from torch_tb_profiler.profiler.data import RunProfileData
from torch_tb_profiler import io
events = 0
for number, path in enumerate(sys.argv[1:]):
    profile = RunProfileData.parse(f"worker{number}", 1, path, io.Cache(tempfile.mkdtemp()))
    profile.process()
    events += len(profile.events)
print(events, "events")
""",
}


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the readers to measure as well."""
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        type=_peer,
        metavar="NAME=PYTHON",
        help=f"another reader ({', '.join(_PROGRAMS)}) and the interpreter of an environment that has it",
    )


def _peer(text: str) -> tuple[str, list[str]]:
    """Return a reader's name, and the command that reads the traces that are appended to it."""
    name, _, python = text.partition("=")
    if name not in _PROGRAMS or not python:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PYTHON of {', '.join(_PROGRAMS)}")
    return name, [python, "-c", _PROGRAMS[name]]
