"""workers.py: which log belongs to which worker."""

import json

from compile_records import START_S
from compile_records import write_log as log
from tb_torchcompile_plugin.logdir.discovery import discover
from tb_torchcompile_plugin.reader.merge import join_logs, trace_identity


def trace(folder, worker, *, pid=7, rank=None, end_s=START_S + 10, tail=False):
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": pid, "tid": pid, "ts": 1, "dur": 1}
    info = {"distributedInfo": {"backend": "nccl", "rank": rank}} if rank is not None else {}
    events = {"traceEvents": [event]}
    document = {**events, "pad": " " * 70_000, **info} if tail else {**info, **events}
    (folder / f"{worker}.{end_s * 10**9}.pt.trace.json").write_text(json.dumps(document))


def joined(folder):
    (run,), _ = discover(str(folder))
    return {worker.worker: (worker.rank, worker.log and worker.log.name[26:-4]) for worker in join_logs(run)}


def test_the_rank_decides_and_the_file_name_beats_the_envelope(tmp_path):
    trace(tmp_path, "a", pid=1, rank=0)
    trace(tmp_path, "b", pid=1, rank=1)
    log(tmp_path, "rank_1_x", pid=1, rank=0)
    log(tmp_path, "rank_0_y", pid=1, rank=0)
    assert joined(tmp_path) == {"a": (0, "rank_0_y"), "b": (1, "rank_1_x")}


def test_distributed_info_may_follow_the_events(tmp_path):
    trace(tmp_path, "a", rank=3, tail=True)
    (run,), _ = discover(str(tmp_path))
    (span,) = run.workers["a"].spans
    assert trace_identity(span.file, span.span).rank == 3


def test_without_ranks_the_process_id_decides(tmp_path):
    trace(tmp_path, "a", pid=7)
    trace(tmp_path, "b", pid=8)
    log(tmp_path, "x", pid=8)
    log(tmp_path, "y", pid=9)
    assert joined(tmp_path) == {"a": (None, None), "b": (None, "x"), "pid_9": (None, "y")}


def test_a_process_id_used_again_later_is_another_process(tmp_path):
    trace(tmp_path, "a", pid=7, end_s=START_S + 10)
    log(tmp_path, "mine", pid=7, start_s=START_S)
    log(tmp_path, "later", pid=7, start_s=START_S + 1000)
    assert joined(tmp_path) == {"a": (None, "mine"), "pid_7": (None, "later")}


def test_of_two_logs_of_one_worker_none_is_lost(tmp_path):
    trace(tmp_path, "a", pid=7)
    log(tmp_path, "old", pid=7, start_s=START_S - 100)
    log(tmp_path, "new", pid=7, start_s=START_S)
    workers = joined(tmp_path)
    assert workers["a"] == (None, "new") and sorted(name for _, name in workers.values()) == ["new", "old"]


def test_logs_alone_are_workers_by_rank_or_process(tmp_path):
    log(tmp_path, "rank_2_x", pid=1)
    log(tmp_path, "y", pid=5)
    assert joined(tmp_path) == {"rank_2": (2, "rank_2_x"), "pid_5": (None, "y")}


def test_a_log_of_another_rank_is_not_taken_by_process_id(tmp_path):
    trace(tmp_path, "a", pid=1, rank=0)
    log(tmp_path, "rank_1_x", pid=1)
    assert joined(tmp_path) == {"a": (0, None), "rank_1": (1, "rank_1_x")}


def test_two_jobs_in_one_folder_have_the_same_ranks(tmp_path):
    trace(tmp_path, "a", pid=100, rank=0)
    trace(tmp_path, "b", pid=200, rank=0, end_s=START_S + 1000)
    log(tmp_path, "rank_0_x", pid=100)
    log(tmp_path, "rank_0_y", pid=200, start_s=START_S + 900)
    assert joined(tmp_path) == {"a": (0, "rank_0_x"), "b": (0, "rank_0_y")}


def test_the_log_of_a_later_job_leaves_that_of_the_earlier_one_in_its_place(tmp_path):
    trace(tmp_path, "a", pid=100, rank=0)
    log(tmp_path, "rank_0_x", pid=100)
    log(tmp_path, "rank_0_y", pid=200, start_s=START_S + 5)
    assert joined(tmp_path) == {"a": (0, "rank_0_x"), "rank_0": (0, "rank_0_y")}


def test_the_rank_alone_gives_each_job_a_log(tmp_path):
    for worker, end_s in (("a", START_S + 10), ("b", START_S + 1010)):
        gpu_only(tmp_path, worker, rank=0, end_s=end_s)
    log(tmp_path, "rank_0_x", pid=100)
    log(tmp_path, "rank_0_y", pid=200, start_s=START_S + 1000)
    assert joined(tmp_path) == {"a": (0, "rank_0_x"), "b": (0, "rank_0_y")}


def gpu_only(folder, worker, *, rank, end_s):
    """A trace that does not tell its process."""
    document = {"distributedInfo": {"rank": rank}, "traceEvents": []}
    (folder / f"{worker}.{end_s * 10**9}.pt.trace.json").write_text(json.dumps(document))


def test_every_container_has_a_process_1(tmp_path):
    """Compiled first, profiled hours later: still the log of its process, if there is no later one."""
    trace(tmp_path, "a", pid=1, end_s=START_S + 4 * 3600)
    trace(tmp_path, "b", pid=1, end_s=START_S + 90_000)
    log(tmp_path, "x", pid=1)
    assert joined(tmp_path) == {"a": (None, "x"), "b": (None, None)}
    log(tmp_path, "y", pid=1, start_s=START_S + 80_000)
    assert joined(tmp_path) == {"a": (None, "x"), "b": (None, "y")}


def test_a_trace_that_does_not_tell_yet_takes_no_log_away(tmp_path):
    trace(tmp_path, "a", pid=7)
    log(tmp_path, "x", pid=7)
    for number, text in enumerate(("", '{"schemaVersion": 1, "traceEv'), 20):
        (tmp_path / f"a.{(START_S + number) * 10**9}.pt.trace.json").write_text(text)
        assert joined(tmp_path) == {"a": (None, "x")}


def test_a_first_trace_that_is_half_written_has_the_name_of_its_process(tmp_path):
    (tmp_path / f"vm_7.{(START_S + 10) * 10**9}.pt.trace.json").write_text("{")
    log(tmp_path, "x", pid=7)
    assert joined(tmp_path) == {"vm_7": (None, "x")}


def test_a_name_that_means_another_process_is_taken(tmp_path):
    trace(tmp_path, "pid_7", pid=99)
    log(tmp_path, "x", pid=7)
    workers = joined(tmp_path)
    assert workers.pop("pid_7") == (None, None) and list(workers.values()) == [(None, "x")]


def test_a_summary_named_by_its_rank_has_the_log_of_that_rank(tmp_path):
    (tmp_path / f"rank_3.{(START_S + 10) * 10**9}.pt.compile.pb").write_bytes(b"")
    log(tmp_path, "rank_3_x", pid=7)
    assert joined(tmp_path) == {"rank_3": (3, "rank_3_x")}


def test_yesterdays_process_of_the_same_id_is_another_one(tmp_path):
    trace(tmp_path, "a", pid=7, end_s=START_S + 86_400)
    log(tmp_path, "yesterday", pid=7, start_s=START_S)
    assert joined(tmp_path) == {"a": (None, None), "pid_7": (None, "yesterday")}


def test_what_was_compiled_first_and_profiled_later_is_one_process(tmp_path):
    """Hours may pass before the first span; what comes after it says nothing more."""
    trace(tmp_path, "a", pid=7, end_s=START_S + 3 * 3600)
    trace(tmp_path, "a", pid=7, end_s=START_S + 86_400)
    log(tmp_path, "x", pid=7, start_s=START_S)
    assert joined(tmp_path) == {"a": (None, "x")}


def test_the_same_rank_may_be_a_day_apart(tmp_path):
    trace(tmp_path, "a", pid=7, rank=0, end_s=START_S + 86_400)
    log(tmp_path, "rank_0_x", pid=7, start_s=START_S)
    assert joined(tmp_path) == {"a": (0, "rank_0_x")}
