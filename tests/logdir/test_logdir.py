"""Discovery: names to runs, workers and spans."""

import gzip
import os

import pytest

from browser.rank_traces import write_job
from jobs import job_in
from tb_torchcompile_plugin.analysis.ranks.job_report import job_report
from tb_torchcompile_plugin.logdir.discovery import discover, read_head, summary_name
from terminal import deny

TRACE = b'{"schemaVersion": 1, "traceEvents": []}'


def write(path, data=TRACE):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def shape(path, prefix=""):
    runs, notices = discover(str(path), prefix)
    return {
        run.run: {name: [span.span for span in worker.spans] for name, worker in run.workers.items()}
        for run in runs
    }, notices


def test_names_round_trip(tmp_path):
    write(tmp_path / "host_1.123.pt.trace.json")
    write(tmp_path / "host_1.124.pt.trace.json.gz")
    write(tmp_path / summary_name("host_1", 123))
    (run,), _ = discover(str(tmp_path))
    assert [span.span for span in run.workers["host_1"].spans] == ["123", "124"]
    assert [file.name for file in run.workers["host_1"].summaries] == ["host_1.123.pt.compile.pb"]


def test_runs_are_folders_and_workers_sort(tmp_path):
    write(tmp_path / "a" / "w.2.pt.trace.json")
    write(tmp_path / "a" / "w.10.pt.trace.json")
    write(tmp_path / "a" / "b" / "v.pt.trace.json")
    runs, notices = shape(tmp_path)
    assert runs == {"a": {"w": ["2", "10"]}, "a/b": {"v": ["0"]}} and not notices
    assert list(shape(tmp_path, "name")[0]) == ["name/a", "name/a/b"]


def test_newest_summary_comes_first(tmp_path):
    for time in (9, 100, 20):
        write(tmp_path / summary_name("w", time), b"")
    (run,), _ = discover(str(tmp_path))
    assert [file.name for file in run.workers["w"].summaries] == [summary_name("w", t) for t in (100, 20, 9)]


def test_json_of_any_name_counts_when_it_looks_like_a_trace(tmp_path):
    write(tmp_path / "compiled_module_profile.json")
    write(tmp_path / "zipped.json.gz", gzip.compress(TRACE))
    write(tmp_path / "package.json", b'{"name": "x"}')
    write(tmp_path / "late.json", b'{"x": "' + b" " * 70_000 + b'", "traceEvents": []}')
    assert shape(tmp_path)[0] == {".": {"compiled_module_profile": ["0"], "zipped": ["0"]}}


def test_a_folder_of_torchtitan_is_a_job_and_its_log_belongs_to_its_rank(tmp_path):
    """As docs/guides/frameworks.md says: TORCH_TRACE names the folder of the first iteration that is profiled."""
    folder = tmp_path / "profiling" / "traces" / "iteration_10"
    write_job(folder, ranks=2, steps=2, late=1)
    for trace in sorted(folder.iterdir()):
        rank = trace.name.partition(".")[0]
        write(folder / f"{rank}_trace.json.gz", gzip.compress(trace.read_bytes()))
        trace.unlink()
        write(folder / f"dedicated_log_torch_trace_{rank.replace('k', 'k_')}_x.log", b"")
    run = folder.relative_to(tmp_path).as_posix()
    assert shape(tmp_path)[0] == {run: {"rank0_trace": ["0"], "rank1_trace": ["0"]}}
    job = job_in(tmp_path, run)
    assert sorted(rank.rank for rank in job.ranks) == [0, 1]
    assert job_report(job).by_rank[1].last > 0


def test_two_files_with_one_span_id_are_both_there(tmp_path):
    write(tmp_path / "w.1.pt.trace.json")
    write(tmp_path / "w.1.pt.trace.json.gz", gzip.compress(TRACE))
    assert shape(tmp_path)[0] == {".": {"w": ["1", "w.1.pt.trace.json.gz"]}}


def test_one_trace_brings_the_compile_data_of_its_worker_only(tmp_path):
    trace = write(tmp_path / "w.1.pt.trace.json")
    write(tmp_path / "w.2.pt.trace.json")
    write(tmp_path / "v.1.pt.compile.pb", b"")
    write(tmp_path / "w.1.pt.compile.pb", b"")
    (run,), _ = discover(str(trace))
    assert list(run.workers) == ["w"] and [span.span for span in run.workers["w"].spans] == ["1"]
    assert [file.name for file in run.workers["w"].summaries] == ["w.1.pt.compile.pb"]


def test_a_link_back_to_the_logdir_ends(tmp_path):
    write(tmp_path / "a" / "w.1.pt.trace.json")
    os.symlink(tmp_path, tmp_path / "a" / "loop")
    assert shape(tmp_path)[0] == {"a": {"w": ["1"]}}


def test_a_folder_that_cannot_be_listed_is_named(tmp_path, monkeypatch):
    write(tmp_path / "open" / "w.1.pt.trace.json")
    locked = tmp_path / "locked"
    write(locked / "w.1.pt.trace.json")
    deny(monkeypatch, locked)
    runs, (notice,) = shape(tmp_path)
    assert runs == {"open": {"w": ["1"]}}
    assert notice.file == str(locked) and "Permission denied" in notice.problem and notice.next_step


@pytest.mark.parametrize("data", [b"\x1f\x8b", b"\x1f\x8bgarbage", b""])
def test_a_broken_head_is_empty_or_harmless(tmp_path, data):
    assert b"traceEvents" not in read_head(str(write(tmp_path / "x.json.gz", data)))


@pytest.mark.parametrize("name", ["w.2.pftrace", "w.2.pt.trace.pftrace.gz"])
def test_perfetto_traces_are_named_as_not_read(tmp_path, name):
    write(tmp_path / "w.1.pt.trace.json")
    other = write(tmp_path / name, b"\x0a\x00")
    runs, (notice,) = shape(tmp_path)
    assert runs == {".": {"w": ["1"]}}
    assert notice.file == str(other) and "not read yet" in notice.problem and ".json" in notice.next_step
    assert shape(other) == ({}, [notice])
