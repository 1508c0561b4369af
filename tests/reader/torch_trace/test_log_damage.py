"""Damaged logs, at random: nothing raises, what was not touched is read, and what is lost is counted and said."""

import gzip
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compile_records import a_compilation, artifact, line
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.logdir.discovery import discover
from tb_torchcompile_plugin.reader.compile_data import read_compile_data
from tb_torchcompile_plugin.reader.merge import join_logs
from tb_torchcompile_plugin.reader.torch_trace.structured_log import log_identity, read_log

NAME = "dedicated_log_torch_trace_rank_3_abc.log"
RECORDS = [
    *a_compilation("0/0"),
    artifact("dynamo_error", "Traceback\n  line\n\n\tV1121 looks like a record", "0/0"),
    *a_compilation("1/0", 5000),
]
LINES = [line(record) for record in RECORDS]
GARBAGE = st.sampled_from(
    [
        b"\n",
        b"\x00" * 50 + b"\n",
        b"V\n",
        b"V1121 no record\n",
        b"\xff\xfe\n",
        b"W1121 03:04:07 1 a.py:1] {}\n",
        b"{}\n",
    ]
)


def read(data: bytes, name: str = NAME) -> CompileSummary:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        log_identity(str(path))
        return read_log(str(path))


def total(summary: CompileSummary) -> int:
    return sum(summary.records.by_kind.values())


@given(st.dictionaries(st.integers(0, len(LINES)), GARBAGE, max_size=4), st.booleans(), st.booleans())
def test_garbage_between_records_costs_none_of_them(
    garbage: dict[int, bytes], windows: bool, packed: bool
) -> None:
    data = b"".join(garbage.get(place, b"") + text for place, text in enumerate([*LINES, b""]))
    if windows:
        data = data.replace(b"\n", b"\r\n")
    summary = read(gzip.compress(data) if packed else data, NAME + (".gz" if packed else ""))
    assert total(summary) == len(LINES)
    assert [row.key.compile_id for row in summary.compilations] == ["0/0", "1/0"]
    assert summary.environment.rank == 3


@given(st.integers(0, len(b"".join(LINES))))
def test_a_log_that_was_cut_keeps_what_was_whole(place: int) -> None:
    data = b"".join(LINES)[:place]
    whole = sum(len(b"".join(LINES[: number + 1])) <= place + 1 for number in range(len(LINES)))
    try:
        summary = read(data)
    except UserError:
        assert whole == 0
        return
    assert total(summary) >= whole
    assert whole == len(LINES) or total(summary) == whole or summary.records.unreadable


@given(
    st.lists(
        st.tuples(st.integers(0, len(b"".join(LINES)) - 1), st.integers(1, 40), st.binary(max_size=40)),
        min_size=1,
        max_size=5,
    )
)
def test_bytes_that_were_overwritten_never_raise_and_cost_a_few_records(
    damages: list[tuple[int, int, bytes]],
) -> None:
    data = bytearray(b"".join(LINES))
    for place, size, replacement in damages:
        data[place : place + size] = replacement
    try:
        summary = read(bytes(data))
    except UserError as error:
        pytest.fail(f"all of it is lost: {error}")
    touched = 3 * len(
        damages
    )  # a damage may hit the line end between two records, and what it makes may be a head
    assert total(summary) >= len(LINES) - touched


def test_a_time_that_lost_its_point_costs_its_record_only() -> None:
    summary = read(re.sub(rb'("ts": \d+)\.', rb"\1", b"".join(LINES), count=1))
    assert total(summary) >= len(LINES) - 3


def test_what_was_lost_is_said_with_the_file_and_a_next_step(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"".join(LINES[:4]) + b"garbage\n" + b"".join(LINES[4:]) + b"V1121 03:04")
    (run,), _ = discover(str(tmp_path))
    (worker,) = join_logs(run)
    data, notices = read_compile_data(worker)
    assert data is not None and worker.rank == 3
    (notice,) = notices
    assert notice.file == str(tmp_path / NAME)
    assert notice.next_step and "could not be read" in notice.problem
