"""A few kB that inflate to gigabytes: told, and never held."""

import lzma
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tb_torchcompile_plugin.compile_log import summary as payloads
from tb_torchcompile_plugin.compile_log.summary import load
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary, Payload
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload

pytestmark = pytest.mark.slow

MB = 1 << 20
HEAD = (
    b'V1121 03:04:07.471000 1027 torch/a.py:1] {"dynamo_start": {}, "frame_id": 0, "frame_compile_id": 0}\n'
)
READ = """
import resource, sys
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.reader.trace.kineto import read_trace
from tb_torchcompile_plugin.reader.torch_trace.structured_log import read_log
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read = read_log(sys.argv[1]) if ".log" in sys.argv[1] else read_trace(sys.argv[1], workers=1)
    print([notice.problem for notice in read.notices] if ".json" in sys.argv[1] else dict(read.records.unreadable))
except UserError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def packed(path: Path, head: bytes, filling: bytes, megabytes: int) -> Path:
    """A gz that begins with `head` and goes on with so much of the same."""
    stream, block = zlib.compressobj(1, zlib.DEFLATED, 31), filling * (MB // len(filling))
    with path.open("wb") as file:
        file.write(stream.compress(head))
        for _ in range(megabytes):
            file.write(stream.compress(block))
        file.write(stream.flush())
    return path


def read(path: Path) -> tuple[str, int]:
    """What is said, and by how many MB the process grew."""
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    said, grown = done.stdout.splitlines()
    return said, int(grown)


@pytest.mark.parametrize(
    ("head", "filling"),
    [(b'{"x": "', b" "), (b'{"traceEvents": [{"ph": "X", "name": "', b"a"), (b'{"traceEvents": [', b" ")],
)
def test_a_trace(tmp_path: Path, head: bytes, filling: bytes) -> None:
    said, grown = read(packed(tmp_path / "w.1.pt.trace.json.gz", head, filling, 40))
    assert "no traceEvents" in said or "cut off" in said or "hold" in said
    assert grown < 400


def test_a_log(tmp_path: Path) -> None:
    """One record without an end, and what comes before it."""
    said, grown = read(packed(tmp_path / "dedicated_log_torch_trace_a.log.gz", HEAD, b"\0", 150))
    assert "too large" in said and "no record of" not in said and grown < 600


def test_a_log_of_damage_alone(tmp_path: Path) -> None:
    said, grown = read(packed(tmp_path / "dedicated_log_torch_trace_a.log.gz", HEAD, b"\nV", 5))
    assert "skipped after" in said and grown < 100


def test_a_log_that_inflates_to_more_than_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TB_TORCHCOMPILE_MAX_INFLATED_BYTES", str(20 * MB))
    said, grown = read(packed(tmp_path / "dedicated_log_torch_trace_a.log.gz", HEAD, b"\n", 30))
    assert "decompresses to more" in said and grown < 100


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No process needs gigabytes to see whether a limit holds."""
    monkeypatch.setattr(payloads, "MOST_ROWS", MB)
    monkeypatch.setattr(payloads, "MOST_TEXT", MB)
    payloads._inflated.cache_clear()
    yield
    payloads._inflated.cache_clear()


def test_rows_of_a_summary(tmp_path: Path, small: None) -> None:
    path = tmp_path / "w.1.pt.compile.pb"
    path.write_bytes(CompileSummary(format_version=1, rows=zlib.compress(bytes(3 * MB))).SerializeToString())
    with pytest.raises(UserError, match="too large"):
        load(str(path))


@pytest.mark.parametrize("codec", [Payload.ZLIB, Payload.BLOCK])
def test_texts_of_a_summary(small: None, codec: Payload.Codec) -> None:
    summary = CompileSummary(payload_block=lzma.compress(bytes(3 * MB)))
    summary.payloads.add(codec=codec, size=5, data=zlib.compress(bytes(3 * MB)))
    summary.artifacts.add(payload=0)
    with pytest.raises(UserError, match="damaged"):
        read_payload(CompileData(summary, "summary", "w.1.pt.compile.pb"), 0)


def test_a_summary_that_no_process_writes(tmp_path: Path) -> None:
    path = tmp_path / "w.1.pt.compile.pb"
    with path.open("wb") as file:
        file.truncate(20 << 30)
    with pytest.raises(UserError, match="larger than any"):
        load(str(path))
