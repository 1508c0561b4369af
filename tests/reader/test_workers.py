"""workers.py: which log belongs to which worker."""

import json
from typing import Any

import pytest

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


DAY_S = 86_400
Files = list[tuple[str, dict[str, Any]]]
CASES: dict[
    str, tuple[Files, Files, dict[str, Any]]
] = {  # traces, logs, and the rank and the log of each worker
    "the rank decides, and the file name beats the envelope": (
        [("a", {"pid": 1, "rank": 0}), ("b", {"pid": 1, "rank": 1})],
        [("rank_1_x", {"pid": 1, "rank": 0}), ("rank_0_y", {"pid": 1, "rank": 0})],
        {"a": (0, "rank_0_y"), "b": (1, "rank_1_x")},
    ),
    "without ranks the process id decides": (
        [("a", {"pid": 7}), ("b", {"pid": 8})],
        [("x", {"pid": 8}), ("y", {"pid": 9})],
        {"a": (None, None), "b": (None, "x"), "pid_9": (None, "y")},
    ),
    "a process id used again later is another process": (
        [("a", {"pid": 7})],
        [("mine", {"pid": 7}), ("later", {"pid": 7, "start_s": START_S + 1000})],
        {"a": (None, "mine"), "pid_7": (None, "later")},
    ),
    "logs alone are workers by rank or process": (
        [],
        [("rank_2_x", {"pid": 1}), ("y", {"pid": 5})],
        {"rank_2": (2, "rank_2_x"), "pid_5": (None, "y")},
    ),
    "a log of another rank is not taken by process id": (
        [("a", {"pid": 1, "rank": 0})],
        [("rank_1_x", {"pid": 1})],
        {"a": (0, None), "rank_1": (1, "rank_1_x")},
    ),
    "two jobs in one folder have the same ranks": (
        [("a", {"pid": 100, "rank": 0}), ("b", {"pid": 200, "rank": 0, "end_s": START_S + 1000})],
        [("rank_0_x", {"pid": 100}), ("rank_0_y", {"pid": 200, "start_s": START_S + 900})],
        {"a": (0, "rank_0_x"), "b": (0, "rank_0_y")},
    ),
    "the log of a later job leaves that of the earlier one in its place": (
        [("a", {"pid": 100, "rank": 0})],
        [("rank_0_x", {"pid": 100}), ("rank_0_y", {"pid": 200, "start_s": START_S + 5})],
        {"a": (0, "rank_0_x"), "rank_0": (0, "rank_0_y")},
    ),
    "yesterday's process of the same id is another one": (
        [("a", {"end_s": START_S + DAY_S})],
        [("yesterday", {})],
        {"a": (None, None), "pid_7": (None, "yesterday")},
    ),
    # Hours may pass before the first span; what comes after it says nothing more.
    "what was compiled first and profiled later is one process": (
        [("a", {"end_s": START_S + 3 * 3600}), ("a", {"end_s": START_S + DAY_S})],
        [("x", {})],
        {"a": (None, "x")},
    ),
    "the same rank may be a day apart": (
        [("a", {"rank": 0, "end_s": START_S + DAY_S})],
        [("rank_0_x", {})],
        {"a": (0, "rank_0_x")},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_which_log_is_whose(tmp_path, case):
    traces, logs, workers = CASES[case]
    for name, how in traces:
        trace(tmp_path, name, **how)
    for name, how in logs:
        log(tmp_path, name, **how)
    assert joined(tmp_path) == workers


def test_distributed_info_may_follow_the_events(tmp_path):
    trace(tmp_path, "a", rank=3, tail=True)
    (run,), _ = discover(str(tmp_path))
    (span,) = run.workers["a"].spans
    assert trace_identity(span.file, span.span).rank == 3


def test_of_two_logs_of_one_worker_none_is_lost(tmp_path):
    trace(tmp_path, "a", pid=7)
    log(tmp_path, "old", pid=7, start_s=START_S - 100)
    log(tmp_path, "new", pid=7, start_s=START_S)
    workers = joined(tmp_path)
    assert workers["a"] == (None, "new") and sorted(name for _, name in workers.values()) == ["new", "old"]


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
