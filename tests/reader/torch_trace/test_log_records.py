"""A text of a log, fetched by the place where it lies; and what tlparse 0.4.3 does not get out of the same logs."""

import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest

from compile_records import a_compilation, artifact, envelope, line
from recordings import Recording
from tb_torchcompile_plugin.analysis.compile.compilation_details import compilation
from tb_torchcompile_plugin.analysis.compile.compilations import compilations
from tb_torchcompile_plugin.analysis.compile.recompiles import recompiles
from tb_torchcompile_plugin.analysis.runtime.span_report import compile_report
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.compile_log.record import Record
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.reader.torch_trace.structured_log import payload_at, read_log
from tb_torchcompile_plugin.torch_names.records import CONFIG_FIELDS

NAME = "dedicated_log_torch_trace_abc.log"
TEXTS = ["one line", "two\nlines\n", "\ttabs\n\t\tstay\n\nand empty lines", "ümläut ✓", "V not a record\nV0"]


def md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def texts_of(path: Path) -> list[str]:
    return [
        payload_at(str(path), row.log_offset, row.log_bytes, row.name)
        for row in read_log(str(path)).artifacts
        if row.name not in CONFIG_FIELDS
    ]


@pytest.mark.parametrize("program", ["breaks", "resnet18", "recompiles", "ddp", "resnet18_compile"])
def test_every_text_of_a_recording_has_the_checksum_that_torch_wrote(
    recording: Recording, program: str
) -> None:
    for log in recording(program).glob("*.log"):
        checksums = [
            match[1]
            for head in [text for text in log.read_text().split("\n") if text[:1] == "V"]
            if '{"chromium_event"' not in head and (match := re.search(r'"has_payload": "(\w+)"', head))
        ]
        assert [md5(text) for text in texts_of(log)] == checksums
        assert checksums


def test_settings_are_texts_of_their_own(recording: Recording) -> None:
    (log,) = recording("breaks").glob("*.log")
    settings = [row for row in read_log(str(log)).artifacts if row.name == "inductor_config"]
    assert len(settings) == 5
    text = payload_at(str(log), settings[0].log_offset, settings[0].log_bytes, "inductor_config")
    assert "max_autotune" in json.loads(text)
    assert settings[0].size == len(text)


def test_settings_that_no_file_can_hold_are_told_all_the_same(recording: Recording, tmp_path: Path) -> None:
    (log,) = recording("breaks").glob("*.log")
    path = tmp_path / NAME
    path.write_bytes(log.read_bytes().replace(b'\\"max_autotune\\"', b'\\"max\\ud800autotune\\"'))
    row = next(row for row in read_log(str(path)).artifacts if row.name == "inductor_config")
    text = payload_at(str(path), row.log_offset, row.log_bytes, row.name)
    assert "max?autotune" in json.loads(text.encode())


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_text_comes_back_as_it_was(tmp_path: Path, text: str, end: str, packed: bool) -> None:
    records = [*a_compilation(), artifact("first", "x"), artifact("wanted", text), artifact("last", "y")]
    data = b"".join(map(line, records)).replace(b"\n", end.encode())
    path = tmp_path / (NAME + ".gz" if packed else NAME)
    path.write_bytes(gzip.compress(data) if packed else data)
    assert texts_of(path) == ["x", text, "y"]


def test_a_log_that_has_changed_is_not_quoted_wrongly(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(b"".join(map(line, [*a_compilation(), artifact("wanted", "text")])))
    (row,) = read_log(str(path)).artifacts
    path.write_bytes(b"x" + path.read_bytes())
    with pytest.raises(UserError, match="has changed since it was read"):
        payload_at(str(path), row.log_offset, row.log_bytes, row.name)
    path.unlink()
    with pytest.raises(UserError, match="cannot be opened"):
        payload_at(str(path), row.log_offset, row.log_bytes, row.name)


@pytest.mark.parametrize("packed", [False, True])
def test_a_log_that_was_cut_is_not_quoted_wrongly(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / NAME
    data = b"".join(map(line, [*a_compilation(), artifact("wanted", "text " * 100)]))
    path.write_bytes(gzip.compress(data) if packed else data)
    (row,) = read_log(str(path)).artifacts
    path.write_bytes(gzip.compress(data[:-100]) if packed else data[:-100])
    with pytest.raises(UserError, match="has changed since it was read"):
        payload_at(str(path), row.log_offset, row.log_bytes, row.name)


def test_a_record_of_an_unknown_kind_is_counted_and_its_text_kept(tmp_path: Path) -> None:
    new = Record(envelope("flux_capacitor", {"jigowatts": 1.21, "who": "<script>"}))
    with_text = Record(envelope("hoverboard", {}), "pitbull")
    path = tmp_path / NAME
    path.write_bytes(b"".join(map(line, [*a_compilation(), new, with_text])))
    summary = read_log(str(path))
    assert dict(summary.records.unknown) == {"flux_capacitor": 1, "hoverboard": 1}
    assert [row.name for row in summary.artifacts] == ["flux_capacitor", "hoverboard"]
    assert texts_of(path) == ['{"jigowatts": 1.21, "who": "<script>"}', "pitbull"]


# -- what tlparse 0.4.3 does not show of the same logs; directions and shapes: see test_artifacts.py and
#    test_symbolic_shapes.py --------------------------------------------


def session_of(folder: Path) -> tuple[Session, list[tuple[str, str]]]:
    session = Session([("", str(folder))])
    return session, [(run.run, worker.worker) for run in session.runs().runs for worker in run.workers]


def test_the_source_of_each_break_is_available(recording: Recording) -> None:
    """tlparse: "not available", though the log has it."""
    session, (ids,) = session_of(recording("breaks"))
    breaks = session.compile_data(*ids).of(compile_report).graph_breaks
    assert len(breaks) == 4
    assert all(row.source for row in breaks)
    assert sorted(row.line or 0 for row in breaks) == [26, 27, 28, 29]


def test_a_break_is_one_row_however_often_it_was_met(recording: Recording) -> None:
    """tlparse counts it again for each attempt, caller and recompile."""
    session, (ids,) = session_of(recording("breaks"))
    rows = session.compile_data(*ids).of(compilations)
    assert [row.breaks for row in rows if row.direction == "forward"] == [1, 1, 1, 1, 0]
    assert [row.attempts for row in rows if row.direction == "forward"] == [2, 2, 1, 2, 1]


def test_recompiles_are_shown_with_their_reasons(recording: Recording) -> None:
    """tlparse has no such view."""
    session, (ids,) = session_of(recording("recompiles"))
    rows = {row.compile_id: row.reasons for row in session.compile_data(*ids).of(recompiles)}
    assert list(rows) == ["0/1", "0/2", "0/3"]
    details = compilation(session.compile_data(*ids), 0, "0/1")
    assert details.recompile is not None
    assert details.recompile.reasons == rows["0/1"]


def test_logs_of_several_ranks_are_read_whole(recording: Recording) -> None:
    """tlparse rejects them in strict mode. A folder is enough to name them; tlparse refuses one."""
    session, workers = session_of(recording("ddp"))
    assert len(workers) == 2
    for ids in workers:
        answer = session.compile_data(*ids).of(compile_report)
        assert answer.unreadable_records == 0
        assert not answer.records.unknown
        assert session.compile_data(*ids).of(compilations)


def test_one_bad_byte_costs_one_record(recording: Recording, tmp_path: Path) -> None:
    """tlparse then writes nothing at all."""
    (log,) = recording("breaks").glob("*.log")
    data = bytearray(log.read_bytes())
    at = data.index(b"def forward", len(data) // 2)
    data[at] = 0xFF
    (tmp_path / log.name).write_bytes(data)
    whole, broken = read_log(str(log)), read_log(str(tmp_path / log.name))
    assert sum(broken.records.unreadable.values()) in (1, 2)  # no UTF-8, and not what its checksum says
    assert broken.compilations == whole.compilations
    assert len(broken.artifacts) == len(whole.artifacts)


def test_restart_reasons_are_text(recording: Recording, tmp_path: Path) -> None:
    """tlparse puts them into its HTML as they are."""
    hostile = "<img src=x onerror=alert(1)>"
    (log,) = recording("breaks").glob("*.log")
    reasons = b'"restart_reasons": ["'
    (tmp_path / log.name).write_bytes(log.read_bytes().replace(reasons, reasons + hostile.encode()))
    session, (ids,) = session_of(tmp_path)
    (reason,) = compilation(session.compile_data(*ids), 0, "0/0").rows[0].restart_reasons
    assert reason.startswith(hostile + "Call to `torch._dynamo.graph_break()`")
