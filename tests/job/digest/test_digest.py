"""job/digest: what a digest holds is what its trace tells, and a damaged one costs its rank alone."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import recorded_job
from many_ranks import PLANTED, course, digest_of
from recordings import Recording
from tb_torchcompile_plugin.analysis.ranks import job_rows
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.job.digest import digest_pb2 as pb
from tb_torchcompile_plugin.job.digest.file import (
    FORMAT_VERSION,
    MOST_BYTES,
    compressed,
    decompressed,
    load,
    packed,
    save,
    unpacked,
)
from tb_torchcompile_plugin.job.digest.rank_digest import (
    RankDigest,
    columns_from_message,
    compiled_of,
    details_of,
    message_from_columns,
)
from tb_torchcompile_plugin.job.job import DigestFile, Job, TracedJob, job_of_digests
from tb_torchcompile_plugin.logdir.discovery import digest_name
from tb_torchcompile_plugin.logdir.filesystem import File, local_file

pytestmark = pytest.mark.slow

SECTIONS = ("calls", "steps", "host", "kernels", "compiled")
NUMBERS = (
    job_rows.rank_rows,
    job_rows.wait_rows,
    job_rows.collective_rows,
    job_rows.step_rows,
    job_rows.late_ranks,
)


def saved(folder: Path, job: TracedJob) -> list[DigestFile]:
    files = []
    for number, one in enumerate(job.digests):
        path = folder / digest_name(one.worker, str(number))
        save(message_from_columns(one.columns), str(path))
        files.append(DigestFile(one.worker, str(number), local(path)))
    return files


def local(path: Path) -> File:
    file = local_file(str(path))
    assert file
    return file


@pytest.mark.parametrize("name", ["late_loader", "healthy_tp", "accumulated"])
def test_numbers_are_those_of_the_traces(tmp_path: Path, name: str) -> None:
    traced = recorded_job(name, tmp_path / "traces")
    files = saved(tmp_path, traced)
    assert all(one.file.size <= MOST_BYTES for one in files)
    job = job_of_digests(files)
    assert job and not isinstance(job, TracedJob)
    for question in NUMBERS:
        ours, theirs = (msgspec.to_builtins(about.of(question)) for about in (job, traced))
        for rows in (ours, theirs):
            for row in rows:
                row.pop("span", None)  # a name of the file's
        assert ours == theirs
    assert job.missing == traced.missing == [] and job.world_size == traced.world_size


def same(ours: object, theirs: object) -> bool:
    if isinstance(ours, np.ndarray) and isinstance(theirs, np.ndarray):
        return ours.dtype == theirs.dtype and np.array_equal(ours, theirs)
    if isinstance(ours, tuple) and isinstance(theirs, tuple):
        return type(ours) is type(theirs) and len(ours) == len(theirs) and all(map(same, ours, theirs))
    return ours == theirs


@pytest.mark.parametrize("name", ["jobs", "gloo_groups"])
def test_columns_of_traces_are_those_of_their_files(tmp_path: Path, recording: Recording, name: str) -> None:
    """For each job that was recorded: one construction, whatever it is made of."""
    session = Session([("", str(recording(name)))])
    traced = [job for run, _ in session.catalog.look().runs if (job := session.job(run.run))]
    session.close()
    assert traced
    for job in traced:
        for one, file in zip(job.digests, saved(tmp_path, job)):
            columns = columns_from_message(load(file.file))
            columns.header.ClearField("format_version")
            assert same(columns, one.columns)


@given(st.integers(1, 4), st.data())
def test_columns_come_back(count: int, data: st.DataObject) -> None:
    rows = data.draw(st.integers(0, 20))
    numbers = st.lists(st.integers(-(1 << 62), (1 << 62) - 1), min_size=rows, max_size=rows)
    columns = [np.array(data.draw(numbers), np.int64) for _ in range(count)]
    assert all(map(np.array_equal, unpacked(packed(*columns), count), columns))


@pytest.fixture(scope="module")
def one_rank() -> pb.Digest:
    return digest_of(3, 16, course(16, PLANTED), PLANTED)


@given(st.sampled_from(SECTIONS), st.data())
def test_a_damaged_section_is_an_error_that_is_told(
    one_rank: pb.Digest, section: str, data: st.DataObject
) -> None:
    whole = getattr(one_rank, section)
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = data.draw(
        st.sampled_from([whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], b"", b"x"])
    )
    made = pb.Digest()
    made.CopyFrom(one_rank)
    setattr(made, section, changed)
    with suppress(UserError):
        about = RankDigest(3, "w", "1", columns_from_message(made))
        about.of(details_of)
        about.of(compiled_of)


@given(st.data())
def test_tables_that_contradict_each_other_are_refused(one_rank: pb.Digest, data: st.DataObject) -> None:
    """Any number in any table: an answer, or an error that is told."""
    made = pb.Digest()
    made.CopyFrom(one_rank)
    section = pb.CallSection.FromString(decompressed(made.calls))
    columns = unpacked(section.columns, 6)
    column, row = data.draw(st.integers(0, 5)), data.draw(st.integers(0, len(columns[0]) - 1))
    columns[column][row] = data.draw(st.sampled_from([-(1 << 63), -2, -1, 0, 1 << 40, (1 << 63) - 1]))
    section.columns = packed(*columns)
    made.calls = compressed(section.SerializeToString())
    with suppress(UserError):
        assert len(columns_from_message(made).calls.begin) == len(columns[0])


def job_with(folder: Path, damaged: int, damage: Callable[[bytes], bytes]) -> Job:
    """Four ranks of sixteen, of which the digest of one is damaged."""
    ran, files = course(16, PLANTED), []
    for rank in range(4):
        path = folder / digest_name(f"rank{rank}", "1")
        save(digest_of(rank, 16, ran, PLANTED), str(path))
        if rank == damaged:
            path.write_bytes(damage(path.read_bytes()))
        files.append(DigestFile(f"rank{rank}", "1", local(path)))
    job = job_of_digests(files)
    assert job
    return job


def test_a_digest_that_cannot_be_read_costs_its_rank(tmp_path: Path) -> None:
    job = job_with(tmp_path, 2, lambda data: data[:200])
    assert job.numbers == [0, 1, 3]
    (notice,) = job.unread.values()
    assert notice.file.endswith("rank2.1.pt.digest.pb") and "cut off" in notice.problem
    assert job.missing == [2, *range(4, 16)]


def test_a_file_that_is_larger_than_any_digest_is_told(tmp_path: Path) -> None:
    job = job_with(tmp_path, 1, lambda data: data + bytes(2 * MOST_BYTES))
    assert job.numbers == [0, 2, 3]
    assert [notice.problem for notice in job.unread.values()] == ["the file is larger than any digest"]


def test_a_digest_of_a_newer_plugin_says_so(tmp_path: Path, one_rank: pb.Digest) -> None:
    path = tmp_path / "w.1.pt.digest.pb"
    save(one_rank, str(path))
    newer = pb.Digest.FromString(path.read_bytes())
    newer.format_version = FORMAT_VERSION + 1
    path.write_bytes(newer.SerializeToString())
    with pytest.raises(UserError, match="pip install --upgrade"):
        load(local(path))
