"""The live recorder under a real torch: what it takes, what it recovers, and what it never does."""

import json
import logging
import os
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from live import TRACE_LOGGER, fresh_recorder, in_a_fork, needs_torch, run, summaries, torch_before
from profiles import data_of
from tb_torchcompile_plugin.analysis.causes.findings import compile_findings
from tb_torchcompile_plugin.analysis.compile.cuda_graph_recordings import skipped_graphs
from tb_torchcompile_plugin.compile_log import summary as summary_file
from tb_torchcompile_plugin.compile_log.summary import payload_text
from tb_torchcompile_plugin.compile_log.summary_pb2 import BACKWARD, FORWARD, CompileSummary
from tb_torchcompile_plugin.writer import recorder as recorder_module
from tb_torchcompile_plugin.writer.log_handlers import RecordHandler
from tb_torchcompile_plugin.writer.recorded_block import CompileRecorder

pytestmark = [*needs_torch, pytest.mark.usefixtures("torch")]


def rows(summary: CompileSummary) -> list[tuple[str, int, str]]:
    return [(row.key.compile_id, row.key.epoch, row.function) for row in summary.compilations]


def recovered(summary: CompileSummary) -> list[tuple[str, int, bool]]:
    return [(row.key.compile_id, row.key.epoch, row.recovered) for row in summary.compilations]


def two_frames(torch: Any) -> Any:
    """A model with a break between them."""

    def model(x: Any) -> Any:
        y = x.sin()
        torch._dynamo.graph_break()
        return y * 2

    return model


def test_a_compilation_is_recorded_with_all_its_parts(torch: Any, tmp_path: Path) -> None:
    model = two_frames(torch)
    with CompileRecorder(tmp_path) as recorder:
        compiled = torch.compile(model, backend="eager", dynamic=False)
        compiled(torch.ones(3))
        compiled(torch.ones(4))
        live = recorder.summary()
    (stored,) = summaries(tmp_path)
    assert rows(stored) == rows(live)
    resume = "torch_dynamo_resume_in_model_at_" + str(model.__code__.co_firstlineno + 2)
    ids = [(compile_id, function) for compile_id, _, function in rows(stored)]
    assert ids == [("0/0", "model"), ("1/0", resume), ("0/1", "model"), ("1/1", resume)]
    first = stored.compilations[0]
    assert (first.file, first.line) == (__file__, model.__code__.co_firstlineno)
    assert first.attempts == 2
    assert first.guards > 0
    assert sum(phase.exclusive_ns for phase in first.phases) == first.duration_ns > 0
    assert first.stack[-1].function == "model"
    assert first.stack[-1].source.startswith("def model(")  # torch leaves it out
    assert not any(row.recovered for row in stored.compilations)
    broken = stored.graph_breaks[0]
    assert broken.file == __file__
    assert "graph_break" in broken.reason
    assert broken.stack[-1].source == "torch._dynamo.graph_break()"
    assert [row.key.compile_id for row in stored.recompiles] == ["0/1", "1/1"]
    assert "size mismatch" in stored.recompiles[0].reasons[0]
    assert not stored.records.unknown
    assert not stored.records.unreadable
    assert [(row.name, row.value) for row in stored.counters] == [("cudagraph_skips", 0)]


def test_compile_times_are_torchs_own_and_survive_a_reset(torch: Any, tmp_path: Path) -> None:
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    with CompileRecorder(tmp_path) as recorder:
        compiled(torch.ones(2))
        before = {name: list(times) for name, times in torch._dynamo.utils.compilation_time_metrics.items()}
        torch._dynamo.reset()
        compiled(torch.ones(2))
        after = torch._dynamo.utils.compilation_time_metrics
        summary = recorder.summary()
    seconds = {row.function: list(row.seconds) for row in summary.compile_times}
    assert summary.compile_times_complete
    wanted = {name: before.get(name, []) + after.get(name, []) for name in {*before, *after}}
    assert seconds == wanted
    assert [epoch for _, epoch, _ in rows(summary)] == [0, 1]


def test_what_was_compiled_before_is_recovered_once(torch: Any, tmp_path: Path) -> None:
    model = two_frames(torch)
    compiled = torch.compile(model, backend="eager", dynamic=False)
    compiled(torch.ones(3))
    times = {name: list(values) for name, values in torch._dynamo.utils.compilation_time_metrics.items()}
    with CompileRecorder(tmp_path) as recorder:
        earlier = recorder.summary()
        compiled(torch.ones(4))
        later = recorder.summary()
    assert recovered(earlier) == [("0/0", 0, True), ("1/0", 0, True)]
    assert all(row.duration_ns and not row.phases for row in earlier.compilations)
    (broken,) = earlier.graph_breaks
    assert (broken.recovered, broken.count, broken.file) == (True, 1, __file__)
    assert broken.line == model.__code__.co_firstlineno + 2
    assert {row.function: list(row.seconds) for row in earlier.compile_times} == times
    assert earlier.compile_times_complete
    assert recovered(later) == [*recovered(earlier), ("0/1", 0, False), ("1/1", 0, False)]
    assert [row.recovered for row in later.graph_breaks] == [True, False]


def test_more_compilations_than_torch_remembers_are_admitted(torch: Any, tmp_path: Path) -> None:
    for _ in range(66):
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        torch._dynamo.reset()
    with CompileRecorder(tmp_path) as recorder:
        summary = recorder.summary()
    assert len(summary.compilations) == 64
    assert "torch keeps the last 64" in summary.warnings[0]


@pytest.mark.skipif(
    torch_before("2.11"), reason="torch 2.8 logs it elsewhere, under a logger of another name"
)
def test_why_cuda_graphs_are_skipped_is_recorded_from_torchs_logger(torch: Any, tmp_path: Path) -> None:
    """torch has no record of it. Its own function is called here where inductor calls it for a model on a GPU."""
    from torch._inductor import cudagraph_utils

    def backend(graph: Any, inputs: Any) -> Any:
        cudagraph_utils.log_cudagraph_skip_and_bump_counter(
            f"skipping cudagraphs due to {len(inputs)} inputs\n x.add_(1)"
        )
        return graph

    for capture in ("full", "summary"):
        with fresh_recorder(), CompileRecorder(tmp_path / capture, capture=capture) as recorder:
            torch.compile(lambda x: x.sin(), backend=backend)(torch.ones(3))
            cudagraph_utils.log_cudagraph_skip_and_bump_counter("skipping cudagraphs due to a late input")
            summary = recorder.summary()
        reasons = [
            (row.key.compile_id, json.loads(row.metrics["cudagraph_skip_reason"]))
            for row in summary.runtime_metrics
        ]
        one, late = (
            "skipping cudagraphs due to 1 inputs\n x.add_(1)",
            "skipping cudagraphs due to a late input",
        )
        assert reasons == ([("0/0", one), ("", late)] if capture == "full" else [])
    assert not logging.getLogger("torch._inductor.cudagraph_utils.__cudagraphs").handlers


@pytest.mark.skipif(torch_before("2.15"), reason="older ones have no limit")
def test_sizes_after_the_limit_run_without_cuda_graphs(torch: Any, tmp_path: Path) -> None:
    """torch logs it once, at run time, with the compile id in its words. No GPU is needed for a limit of 0."""
    from torch._inductor import config, cudagraph_trees

    ways = {"device_index": 0, "is_backward": False, "is_inference": True, "compile_id": "0/0"}
    model: Any = list
    run = cudagraph_trees.cudagraphify_impl(model, [3, torch.ones(3)], (), **ways)
    with fresh_recorder(), CompileRecorder(tmp_path) as recorder:
        torch.compile(lambda x: x.sin(), backend="eager")(torch.ones(3))
        with config.patch({"triton.cudagraph_dynamic_shape_rerecord_limit": 0}):
            run([4, torch.ones(3)])
            data = data_of(recorder.summary())
    assert [(row.compile_id, row.reason.partition(";")[0]) for row in data.of(skipped_graphs)] == [
        ("0/0", "cudagraph_dynamic_shape_rerecord_limit=0")
    ]
    (finding,) = [row for row in compile_findings(data) if row.rule == "cudagraphs_skipped"]
    assert finding.code == "torch._inductor.config.triton.cudagraph_dynamic_shape_rerecord_limit = None"


def test_threads_that_compile_at_once(torch: Any, tmp_path: Path) -> None:
    def work(number: int) -> None:
        scope: dict[str, Any] = {}
        exec(f"def f{number}(x): return (x + {number}).sum()", scope)
        torch.compile(scope[f"f{number}"], backend="aot_eager")(torch.ones(3, requires_grad=True)).backward()

    with CompileRecorder(tmp_path) as recorder:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        summary = recorder.summary()
    forward = [row for row in summary.compilations if row.direction == FORWARD]
    assert len({row.key.compile_id for row in forward}) == len(forward) == 4
    assert len({row.thread for row in forward}) == 4
    for row in summary.compilations:
        assert sum(phase.exclusive_ns for phase in row.phases) == row.duration_ns
    assert not summary.records.unreadable


def test_steady_state_makes_no_records(torch: Any, tmp_path: Path) -> None:
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    with CompileRecorder(tmp_path):
        compiled(torch.ones(2))
        taken = recorder_module.recorder().taken
        assert taken > 0
        for _ in range(50):
            compiled(torch.ones(2))
        assert recorder_module.recorder().taken == taken


def test_after_the_last_recorder_torch_builds_no_records(torch: Any, tmp_path: Path) -> None:
    with CompileRecorder(tmp_path), CompileRecorder(tmp_path):
        pass
    assert not any(isinstance(handler, RecordHandler) for handler in TRACE_LOGGER.handlers)
    with CompileRecorder(tmp_path):
        assert isinstance(TRACE_LOGGER.handlers[0], RecordHandler)
        torch._logging.set_logs()
        torch._dynamo.reset()
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        assert recorder_module.recorder().taken > 0


@pytest.mark.skipif(torch_before("2.8"), reason="torch 2.6 breaks without a text")
def test_capture_summary_writes_no_line_of_the_program(torch: Any, tmp_path: Path) -> None:
    def model(x: Any, word: str) -> Any:
        y = x.sin() + 12.625
        torch._dynamo.graph_break("a secret break of the model")
        if word != "a secret word of the model" and y.sum() > 12.375:
            y = y * 2
        raise_or_not(y)
        return y

    def raise_or_not(y: Any) -> None:
        print("a secret of the model", end="")

    lines = {line.strip() for line in Path(__file__).read_text().splitlines() if len(line.strip()) > 12}
    lines = lines - {"torch._dynamo.graph_break()"} | {"secret"}  # torch's own name of that break
    for capture in ("full", "summary"):
        folder = tmp_path / capture
        with fresh_recorder(), CompileRecorder(folder, capture=capture):
            compiled = torch.compile(model, backend="aot_eager", dynamic=False)
            for word in ("a secret word of the model", "another secret word"):
                compiled(torch.ones(3), word)
        (path,) = folder.glob("*.pb")
        rows = summary_file.load(str(path)).SerializeToString()
        written = [line for line in lines if line.encode() in path.read_bytes() + rows]
        assert bool(written) == (capture == "full"), written
    (summary,) = summaries(tmp_path / "summary")
    assert not summary.payloads
    assert len(summary.graph_breaks) >= 3
    assert any("== '…'" in reason for row in summary.recompiles for reason in row.reasons)
    assert all(row.line for row in summary.graph_breaks)


def test_files_that_were_numbered_before_are_still_named(torch: Any, tmp_path: Path) -> None:
    """torch records the name of a file once; a recorder that starts later never sees that record."""
    torch._logging.structured.INTERN_TABLE[__file__] = number = len(torch._logging.structured.INTERN_TABLE)
    stack = {"stack": [{"line": 1, "name": "f", "filename": number}]}
    ids = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    with CompileRecorder(tmp_path) as recorder:
        TRACE_LOGGER.debug("", extra={"metadata": {"dynamo_start": stack, **ids}, "payload": None})
        summary = recorder.summary()
    assert [frame.file for frame in summary.compilations[0].stack] == [__file__]


def test_an_unknown_capture_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="capture must be one of"):
        CompileRecorder(tmp_path, capture="sumary")


def test_the_environment(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")
    monkeypatch.setenv("TORCH_SECRET_TOKEN", "hidden")
    with CompileRecorder(tmp_path, "me") as recorder:
        torch.compile(lambda x: x + 1, backend="aot_eager")(torch.ones(2))
        summary = recorder.summary()
    environment = summary.environment
    assert environment.torch_version == torch.__version__
    assert environment.pid == os.getpid()
    assert environment.program == (os.path.abspath(sys.argv[0]) if os.path.isfile(sys.argv[0]) else "")
    assert environment.variables["TORCHINDUCTOR_MAX_AUTOTUNE"] == "1"
    assert b"hidden" not in summary.SerializeToString()
    assert list(environment.backends) == ["aot_eager"]
    assert not environment.HasField("rank")
    assert not environment.device_names or torch.cuda.is_initialized()
    assert environment.plugin_version
    (stored,) = summaries(tmp_path)
    assert stored.environment.worker == "me"


def _add(number: int) -> Any:
    scope: dict[str, Any] = {}
    exec(compile(f"def f{number}(x): return x + {number}", __file__, "exec"), scope)
    return scope[f"f{number}"]


def test_what_was_compiled_while_nothing_listened_is_recovered(torch: Any, tmp_path: Path) -> None:
    breaks = two_frames(torch)

    def compile_one(function: Any) -> None:
        torch.compile(function, backend="eager")(torch.ones(2))

    with CompileRecorder(tmp_path):
        compile_one(_add(1))
    compile_one(breaks)
    with CompileRecorder(tmp_path) as recorder:
        compile_one(_add(3))
        summary = recorder.summary()
    resume = f"torch_dynamo_resume_in_model_at_{breaks.__code__.co_firstlineno + 2}"
    assert [(row.key.compile_id, row.function, row.recovered) for row in summary.compilations] == [
        ("0/0", "f1", False),
        ("1/0", "model", True),
        ("2/0", resume, True),
        ("3/0", "f3", False),
    ]
    assert {row.key.epoch for row in summary.compilations} == {0}
    assert [(row.recovered, row.count, row.file) for row in summary.graph_breaks] == [(True, 1, __file__)]
    with CompileRecorder(tmp_path) as recorder:  # nothing new: nothing is added again
        assert len(recorder.summary().compilations) == 4
        assert len(recorder.summary().graph_breaks) == 1


@pytest.mark.parametrize("listened", [True, False])
def test_a_reset_while_nothing_listened_begins_an_epoch(torch: Any, tmp_path: Path, listened: bool) -> None:
    """And a reset before anybody listened at all."""
    compiled = torch.compile(_add(1), backend="eager")
    with CompileRecorder(tmp_path) if listened else nullcontext():
        compiled(torch.ones(2))
    torch._dynamo.reset()
    compiled(torch.ones(2))
    with CompileRecorder(tmp_path) as recorder:
        torch._dynamo.reset()
        compiled(torch.ones(2))
        summary = recorder.summary()
    assert recovered(summary) == [("0/0", 0, not listened), ("0/0", 1, True), ("0/0", 2, False)]


def test_times_from_before_recording_survive_a_reset(torch: Any, tmp_path: Path) -> None:
    torch.compile(_add(1), backend="eager")(torch.ones(2))
    with CompileRecorder(tmp_path) as recorder:
        torch._dynamo.reset()
        torch.compile(_add(2), backend="eager")(torch.ones(2))
        summary = recorder.summary()
    times = {row.function: len(row.seconds) for row in summary.compile_times}
    assert times["_compile.compile_inner"] == 2
    assert summary.compile_times_complete


@pytest.mark.slow
def test_graphs_of_a_pause_are_recovered_once(tmp_path: Path) -> None:
    program = """
        import sys
        sys.path.insert(0, ".")
        import torch
        from functions import one, three, two
        from tb_torchcompile_plugin import CompileRecorder
        compile_one = lambda f: torch.compile(f)(torch.ones(64))
        with CompileRecorder("out"):
            compile_one(one)
        compile_one(two)
        with CompileRecorder("out"):
            compile_one(three)
    """
    # torch before 2.13 wraps functions that come from no file
    (tmp_path / "functions.py").write_text(
        "one = lambda x: x.sin() * 2\ntwo = lambda x: x.cos() * 3\nthree = lambda x: x.tan() * 4\n"
    )
    run(program, tmp_path)
    summary = summaries(tmp_path / "out")[-1]
    graphs = [(graph.key.compile_id, graph.recovered) for graph in summary.graphs]
    assert graphs == [("0/0", False), ("1/0", True), ("2/0", False)]


# -- what goes wrong ----------------------------------------------------------------------------------------------


def test_a_broken_record_does_not_reach_the_compilation(
    torch: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with CompileRecorder(tmp_path) as recorder:
        TRACE_LOGGER.debug("a record without metadata")
        TRACE_LOGGER.debug("", extra={"metadata": {"chromium_event": {}}, "payload": "{"})
        TRACE_LOGGER.debug("", extra={"metadata": "nonsense", "payload": None})
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        summary = recorder.summary()
    assert len(summary.compilations) == 1
    assert summary.records.unreadable["chromium_event of an unknown form"] == 1
    assert summary.records.unreadable["record of an unknown form"] == 1
    said = [record.message for record in caplog.records if "could not be taken" in record.message]
    assert len(said) == 1


def test_a_logging_that_raises_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail = Mock(side_effect=RuntimeError("no logging today"))
    monkeypatch.setattr(recorder_module.logger, "warning", fail)
    monkeypatch.setattr(summary_file, "save", fail)
    with CompileRecorder(tmp_path) as recorder:
        assert recorder.write() is None


def test_a_recovery_that_fails_leaves_the_rest(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recorder_module, "recover", Mock(side_effect=RuntimeError("torch has changed")))
    with CompileRecorder(tmp_path) as recorder:
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        assert len(recorder.summary().compilations) == 1
    assert "cannot be recovered" in caplog.text


def test_pending_records_are_bounded(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "_MAX_PENDING_BYTES", 1000)
    with CompileRecorder(tmp_path) as recorder:
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        assert recorder_module.recorder()._pending_size <= 1000
        assert len(recorder.summary().compilations) == 1


def test_the_child_of_a_fork_records_for_itself_alone(torch: Any, tmp_path: Path) -> None:
    with CompileRecorder(tmp_path / "parent") as recorder:
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        skips = torch._dynamo.utils.counters["inductor"]
        skips["cudagraph_skips"] = 2

        def compile_and_write() -> None:
            torch.compile(lambda x: x.cos(), backend="eager")(torch.ones(2))
            skips["cudagraph_skips"] += 1
            CompileRecorder(tmp_path / "child").write()

        pid = in_a_fork(compile_and_write)
        parent = recorder.summary()
    (child_summary,) = summaries(tmp_path / "child")
    assert [row.key.compile_id for row in parent.compilations] == ["0/0"]
    assert [row.key.compile_id for row in child_summary.compilations] == ["1/0"]
    assert [row.kind for row in child_summary.compiler_calls] == ["compile"]
    assert child_summary.environment.pid == pid
    assert child_summary.environment.worker.endswith(f"_{pid}")
    times = {row.function: len(row.seconds) for row in child_summary.compile_times}
    assert times["_compile.compile_inner"] == 1
    assert [[row.value for row in summary.counters] for summary in (parent, child_summary)] == [[2], [1]]
    assert len(summaries(tmp_path / "parent")) == 1


PROGRAM_WITH_INDUCTOR = """
import torch
from tb_torchcompile_plugin import CompileRecorder

def model(x):
    return (x.sin() * 2).sum()

def train():
    torch.compile(model)(torch.ones(64, requires_grad=True)).backward()

if BEFORE:
    train()
with CompileRecorder("out"):
    if not BEFORE:
        train()
"""


@pytest.mark.slow
def test_inductor_recorded_and_recovered(tmp_path: Path) -> None:
    """The same program twice: recorded while it compiles, and compiled before recording began."""
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    for name in ("cold", "before"):
        (tmp_path / name).mkdir()
        run(PROGRAM_WITH_INDUCTOR.replace("BEFORE", str(name == "before")), tmp_path / name, **cache)
    cold, before = (summaries(tmp_path / name / "out")[-1] for name in ("cold", "before"))
    for summary in (cold, before):
        kernels = {(g.direction, g.graph_key): [k.category for k in g.kernels] for g in summary.graphs}
        assert [categories for _, categories in sorted(kernels.items())] == [["cpp"], ["cpp"]]
        assert all(key.startswith("f") for _, key in kernels)
    assert {graph.graph_key for graph in before.graphs} == {graph.graph_key for graph in cold.graphs}
    assert {c.result for row in cold.compilations for c in row.cache} == {"miss"}
    assert [row.direction for row in cold.compilations] == [FORWARD, BACKWARD]
    phases = {phase.name for row in cold.compilations for phase in row.phases}
    assert {"dynamo", "aot_autograd", "inductor", "triton"} <= phases
    assert all(graph.recovered and graph.key.compile_id == "0/0" for graph in before.graphs)
    code = next(item for item in before.artifacts if item.name == "inductor_output_code")
    assert "cpp_fused" in payload_text(before, code.payload)
