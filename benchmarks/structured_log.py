"""`python -m benchmarks.structured_log`: read a large TORCH_TRACE log with this project's reader and with tlparse.

The log repeats recorded ones, with new compile ids each time and matching checksums. tlparse is a binary:
`pip install tlparse==0.4.3` anywhere, and put it on the PATH or name it with --tlparse.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from benchmarks.measure import measure

_DATA = Path(__file__).parent.parent / "tests" / "data"
_OURS = """
import sys
from tb_torchcompile_plugin.reader.torch_trace.structured_log import read_log
summary = read_log(sys.argv[1])
print(len(summary.compilations), "compilations,", len(summary.artifacts), "artifacts,",
      sum(summary.records.by_kind.values()), "records", dict(summary.records.unreadable))
"""
_FRAME_ID = re.compile(rb'"frame_id": (\d+)')
_COMPILE_ID = re.compile(rb'"compile_id": "(\d+)/(\d+)"')
_MD5 = re.compile(rb'"has_payload": "[0-9a-f]{32}"')


def main() -> int:
    """Print one row for this reader and one for tlparse."""
    options = _options()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        log = Path(folder) / "dedicated_log_torch_trace_bench.log"
        size = write_log(log, options.megabytes << 20)
        print(f"{size / 1e6:.0f} MB")
        _report("ours", [sys.executable, "-c", _OURS, str(log)])
        if options.tlparse:
            out = ["-o", str(Path(folder) / "out"), "--overwrite", "--no-browser"]
            _report("tlparse", [options.tlparse, str(log), *out])
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=250)
    parser.add_argument("--folder", help="where to put the log, and what tlparse writes")
    parser.add_argument("--tlparse", default=shutil.which("tlparse"), help="the binary to compare with")
    return parser.parse_args()


def _report(name: str, command: list[str]) -> None:
    cost = measure(command)
    lines = cost.output.strip().splitlines()
    print(
        f"{name:8} {cost.cpu_s:6.2f} CPU s {cost.wall_s:6.2f} s {cost.peak_mb:6.0f} MB  "
        f"{'FAILED ' if cost.failed else ''}{lines[-1][:160] if lines else ''}"
    )


def write_log(path: Path, size: int) -> int:
    """Write at least `size` bytes of log; return how many. Needs one copy of all logs in memory."""
    logs = [list(_records(log)) for log in _logs()]
    written = 0
    with path.open("wb") as file:
        for copy, records in ((copy, records) for copy in count() for records in logs):
            if written >= size:
                break
            written += sum(file.write(_renumbered(record, copy)) for record in records)
    return written


def _logs() -> Iterator[bytes]:
    """Yield the logs of the recordings of the tests, and of the larger ones if they are there."""
    larger = os.environ.get("TB_TORCHCOMPILE_RECORDINGS")
    folders = [_DATA, *([Path(larger)] if larger else [])]
    for archive in sorted(
        {path.name: path for folder in folders for path in folder.rglob("*.tar.xz")}.values()
    ):
        with tarfile.open(archive) as opened:
            for member in opened:
                name = Path(member.name).name
                if name.startswith("dedicated_log_torch_trace_") and (file := opened.extractfile(member)):
                    yield file.read()


def _records(log: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield (first line, payload lines) of each record."""
    for record in re.split(rb"\n(?=V)", log.rstrip(b"\n")):
        head, _, payload = record.partition(b"\n")
        yield head, payload


def _renumbered(record: tuple[bytes, bytes], copy: int) -> bytes:
    head, payload = record
    shift = copy * 1000
    head = _FRAME_ID.sub(lambda match: b'"frame_id": %d' % (int(match[1]) + shift), head)
    head, payload = (
        _COMPILE_ID.sub(lambda match: b'"compile_id": "%d/%s"' % (int(match[1]) + shift, match[2]), text)
        for text in (head, payload)
    )
    if payload:
        text = b"\n".join(line[1:] for line in payload.split(b"\n"))
        md5 = hashlib.md5(text, usedforsecurity=False).hexdigest().encode()
        head = _MD5.sub(b'"has_payload": "%s"' % md5, head)
    return head + b"\n" + (payload + b"\n" if payload else b"")


if __name__ == "__main__":
    sys.exit(main())
