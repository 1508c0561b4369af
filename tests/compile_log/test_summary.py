"""The summary on disk: whole or not there, and honest about what it cannot read."""

from __future__ import annotations

import errno
import hashlib
import lzma
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

from tb_torchcompile_plugin.compile_log import summary as summary_file
from tb_torchcompile_plugin.compile_log import summary_pb2
from tb_torchcompile_plugin.compile_log.summary import DAMAGED, load, payload_text, save
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary, Payload
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.logdir import filesystem

PROTO = Path(summary_file.__file__).with_name("summary.proto")


def a_summary(torch_version: str = "2.13.0") -> CompileSummary:
    summary = CompileSummary()
    summary.environment.torch_version = torch_version
    summary.compilations.add(function="forward", duration_ns=5)
    return summary


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = str(tmp_path / "w.1.pt.compile.pb")
    save(a_summary(), path)
    loaded = load(path)
    assert loaded.format_version == summary_file.FORMAT_VERSION
    assert loaded.compilations[0].function == "forward"
    assert [entry.name for entry in tmp_path.iterdir()] == ["w.1.pt.compile.pb"]


def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "w.1.pt.compile.pb")
    save(a_summary("old"), path)

    class Full:
        def __init__(self, name: str, mode: str) -> None:
            self.file = open(name, mode)  # noqa: SIM115 - closed in __exit__

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def write(self, data: bytes) -> None:
            self.file.write(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(filesystem, "open", Full, raising=False)
    with pytest.raises(OSError, match="No space left"):
        save(a_summary("new"), path)
    monkeypatch.undo()
    assert load(path).environment.torch_version == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["w.1.pt.compile.pb"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"hello, world; this is no protobuf", "is not a compile summary"),
        (CompileSummary().SerializeToString() + b"\x12\x00", "is not a compile summary"),
        (CompileSummary(format_version=2, rows=b"no zlib").SerializeToString(), "cut off"),
        (CompileSummary(format_version=99).SerializeToString(), "format version 99.*pip install --upgrade"),
    ],
    ids=["empty", "text", "another message", "damaged rows", "newer"],
)
def test_what_cannot_be_read_is_said_in_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "x.pt.compile.pb"
    path.write_bytes(content)
    with pytest.raises(UserError, match=words) as caught:
        load(str(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "w.pb")
    save(a_summary(), path)
    Path(path).write_bytes(Path(path).read_bytes()[:-3])
    with pytest.raises(UserError, match="cut off"):
        load(path)


def test_a_missing_file_and_a_folder_are_user_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        load(str(tmp_path / "none.pb"))
    with pytest.raises(UserError, match="cannot be read"):
        load(str(tmp_path))


def test_the_gencode_was_made_from_the_proto_file() -> None:
    """Field names and numbers of each message, read from the text of summary.proto; see tools/make_gencode.sh."""
    written = {name: _fields(body) for name, body in _messages(PROTO.read_text())}
    made: dict[str, Any] = {}
    for name, message in summary_pb2.DESCRIPTOR.message_types_by_name.items():
        made[name] = {field.name: field.number for field in message.fields}
    assert made == written


def _messages(text: str) -> list[tuple[str, str]]:
    return re.findall(r"^message (\w+) \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL)


def _fields(body: str) -> dict[str, int]:
    plain = re.sub(r"enum \w+ \{[^}]*\}", "", re.sub(r"//[^\n]*", "", body))
    return {name: int(number) for name, number in re.findall(r"(\w+) = (\d+);", plain)}


def test_the_gencode_loads_on_tensorboards_whole_range_of_protobuf() -> None:
    assert "Protobuf Python Version: 6.31.1" in Path(str(summary_pb2.__file__)).read_text()[:600]


def test_payloads_lie_together_on_disk_and_read_back(tmp_path):
    """A graph and its next pass are nearly the same text: one stream takes a fraction of one for each."""
    call = "call_function[target=torch.ops.aten.relu.default]"
    lines = [f"%relu_{n} = {call}(args = (%x_{n * 7919 % 1000},))" for n in range(3000)]
    texts = ["\n".join([f"pass {number}", *lines, "é"]) for number in range(5)]
    summary = CompileSummary()
    for text in texts:
        data = zlib.compress(text.encode())
        summary.payloads.add(sha256=hashlib.sha256(text.encode()).digest(), codec=Payload.ZLIB, data=data)
    summary.payloads.add(sha256=b"x", codec=Payload.RAW, data=b"short")
    save(summary, str(tmp_path / "w.1.pt.compile.pb"))
    read = load(str(tmp_path / "w.1.pt.compile.pb"))
    assert [payload_text(read, index) for index in range(6)] == [*texts, "short"]
    assert read.ByteSize() < summary.ByteSize() / 3 and not summary.payload_block
    save(read, str(tmp_path / "w.2.pt.compile.pb"))
    assert payload_text(load(str(tmp_path / "w.2.pt.compile.pb")), 5) == "short"


def test_on_disk_rows_are_packed_where_there_are_texts_and_plain_where_there_are_none(tmp_path):
    path = tmp_path / "w.1.pt.compile.pb"
    summary = a_summary()
    save(summary, str(path))
    assert b"forward" in path.read_bytes()
    summary.warnings.append("a warning")
    summary.payloads.add(sha256=b"x", codec=Payload.RAW, data=b"short")
    save(summary, str(path))
    assert b"forward" not in path.read_bytes() and b"a warning" in path.read_bytes()
    read = load(str(path))
    assert payload_text(read, 0) == "short"
    for name in ("payloads", "payload_block"):
        read.ClearField(name)
        summary.ClearField(name)
    assert read == summary


def test_a_summary_of_format_1_is_read(tmp_path):
    path = tmp_path / "w.1.pt.compile.pb"
    path.write_bytes(CompileSummary(format_version=1, warnings=["old"]).SerializeToString())
    assert list(load(str(path)).warnings) == ["old"]


@pytest.mark.parametrize("block", [b"", b"no xz", lzma.compress(b"short")])
def test_a_damaged_block_is_an_error_of_its_texts(block):
    summary = CompileSummary(payload_block=block)
    summary.payloads.add(codec=Payload.BLOCK, size=100)
    with pytest.raises(DAMAGED):
        payload_text(summary, 0)


def test_without_lzma_each_payload_stays_on_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(summary_file, "lzma", None)
    summary = CompileSummary()
    summary.payloads.add(sha256=b"x", codec=Payload.RAW, data=b"short")
    save(summary, str(tmp_path / "w.1.pt.compile.pb"))
    assert payload_text(load(str(tmp_path / "w.1.pt.compile.pb")), 0) == "short"
