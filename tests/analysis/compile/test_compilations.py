"""What was compiled and what came of it: on hand-made summaries. Real programs: test_compile_report.py."""

import pytest

from profiles import data_of
from tb_torchcompile_plugin.analysis.compile.compilation_details import compilation as details
from tb_torchcompile_plugin.analysis.compile.compilations import (
    Status,
    compilations,
    other_artifacts,
    problems,
    status_headline,
)
from tb_torchcompile_plugin.compile_log import summary_pb2 as pb

KEY = pb.CompileKey(compile_id="0/0")
IN_A_LOOP = "graph break in loop\n  Explanation: Skipping the frame and falling back to eager"
WORDS = {
    "limit": "reached the recompile limit",
    "failed": "failed to compile",
    "skipped": "cannot be resumed",
}
TOO_MANY, CACHE_FULL = "Dynamo recompile limit exceeded", "cache_size_limit reached"
HOSTILE = "<script>alert('\x1b[31m')</script>"


def compilation(**fields: object) -> pb.Compilation:
    return pb.Compilation(**{"key": KEY, "function": "f", "duration_ns": 10**9, "graph_ops": 3, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "broken", "status"),
    [
        ({}, False, "compiled"),
        ({}, True, "graph_break"),
        ({"graph_ops": 0}, False, "no_graph"),
        ({"graph_ops": None}, False, "no_graph"),
        ({"graph_ops": None, "duration_ns": None}, False, "unfinished"),
        ({"recovered": True, "duration_ns": None}, False, "recovered"),
        ({"failure": pb.Failure(type="BackendCompilerFailed")}, False, "failed"),
        ({"failure": pb.Failure(type="BackendCompilerFailed")}, True, "failed"),
        ({"failure": pb.Failure(type="Unsupported", reason="…")}, True, "graph_break"),
        ({"failure": pb.Failure(type="Unsupported", reason="…")}, False, "failed"),
        ({"failure": pb.Failure(type="RecompileLimitExceeded")}, False, "recompile_limit"),
        ({"failure": pb.Failure(type="CacheLimitExceeded")}, False, "recompile_limit"),
        ({"failure": pb.Failure(type="Unsupported", reason=TOO_MANY)}, True, "recompile_limit"),
        ({"failure": pb.Failure(type="Unsupported", reason=CACHE_FULL)}, False, "recompile_limit"),
    ],
)
def test_the_status_of_a_compilation(fields: dict[str, object], broken: bool, status: Status) -> None:
    breaks = [pb.GraphBreak(key=KEY)] if broken else []
    data = data_of(pb.CompileSummary(compilations=[compilation(**fields)], graph_breaks=breaks))
    assert compilations(data)[0].status == status


@pytest.mark.parametrize(
    ("failure", "broken", "kind", "ran_eager"),
    [
        (pb.Failure(type="RecompileLimitExceeded"), False, "limit", True),
        (pb.Failure(type="BackendCompilerFailed"), False, "failed", None),
        (pb.Failure(type="Unsupported"), True, "skipped", True),
        (pb.Failure(type="Unsupported", reason=IN_A_LOOP), False, "skipped", True),
    ],
)
def test_what_went_wrong_is_listed(
    failure: pb.Failure, broken: bool, kind: str, ran_eager: bool | None
) -> None:
    breaks = [pb.GraphBreak(key=KEY)] if broken else []
    rows = [compilation(failure=failure), compilation(key=pb.CompileKey(compile_id="1/0"), start_ns=1)]
    (problem,) = problems(data_of(pb.CompileSummary(compilations=rows, graph_breaks=breaks)))
    assert (problem.kind, problem.compile_id, problem.ran_eager) == (kind, "0/0", ran_eager)
    assert problem.what_happened.startswith(f"f (0/0) {WORDS[kind]}") and problem.consequence


@pytest.mark.parametrize("setting", ["true", "false"])
def test_nobody_suppressed_a_break_in_a_loop(setting: str) -> None:
    failed = pb.Failure(type="Unsupported", reason=IN_A_LOOP)
    row = compilation(failure=failed, metrics={"config_suppress_errors": setting})
    data = data_of(pb.CompileSummary(compilations=[row]))
    (problem,), failure = problems(data), details(data, 0, "0/0").rows[0].failure
    assert failure and (problem.ran_eager, failure.ran_eager) == (True, True)
    assert problem.consequence == failure.consequence == "The functions that it calls may still be compiled."


@pytest.mark.parametrize(("setting", "ran_eager"), [("true", True), ("false", False)])
def test_an_error_after_a_break_was_raised_unless_it_was_suppressed(setting: str, ran_eager: bool) -> None:
    failed = pb.Failure(type="BackendCompilerFailed")
    row = compilation(failure=failed, metrics={"config_suppress_errors": setting})
    for artifacts in ([], [pb.Artifact(key=KEY, name="dynamo_graph_break_reason")]):
        data = data_of(pb.CompileSummary(compilations=[row], artifacts=artifacts))
        failure = details(data, 0, "0/0").rows[0].failure
        assert failure and failure.ran_eager is problems(data)[0].ran_eager is ran_eager


def test_breaks_and_reasons_belong_to_the_frame_and_not_to_its_backward() -> None:
    rows = [compilation(start_ns=1), compilation(direction=pb.BACKWARD, start_ns=2, graph_ops=None)]
    summary = pb.CompileSummary(compilations=rows, graph_breaks=[pb.GraphBreak(key=KEY)] * 2)
    summary.recompiles.add(key=KEY, reasons=["0/0: x"])
    forward, backward = compilations(data_of(summary))
    assert (forward.breaks, forward.status) == (2, "graph_break")
    assert data_of(summary).of(status_headline) == "1 compilation: 1 with a graph break."
    assert (backward.breaks, backward.status) == (0, "compiled")


def test_epochs_are_apart() -> None:
    later = pb.CompileKey(compile_id="0/0", epoch=1)
    rows = [compilation(start_ns=1), compilation(key=later, start_ns=2)]
    summary = pb.CompileSummary(compilations=rows, graph_breaks=[pb.GraphBreak(key=later)])
    assert [(row.epoch, row.breaks) for row in compilations(data_of(summary))] == [(0, 0), (1, 1)]


def test_texts_without_a_compilation_are_kept() -> None:
    summary = pb.CompileSummary(compilations=[compilation(key=pb.CompileKey(compile_id="!0/1/0"))])
    for name in ("!0", "!1"):
        summary.artifacts.add(key=pb.CompileKey(compile_id=name), name="compiled_autograd_graph")
    summary.artifacts.add(key=pb.CompileKey(), name="never_seen_before")
    others = other_artifacts(data_of(summary))
    values = [(row.compile_id, [text.name for text in row.artifacts]) for row in others]
    assert values == [("!1", ["compiled_autograd_graph"]), ("", ["never_seen_before"])]


def test_text_from_programs_stays_what_it_is() -> None:
    stack, failure = [pb.Frame(file=HOSTILE, function=HOSTILE, source=HOSTILE)], pb.Failure(type=HOSTILE)
    failure.reason = HOSTILE
    row = compilation(function=HOSTILE, file=HOSTILE, failure=failure, stack=stack)
    data = data_of(pb.CompileSummary(compilations=[row]))
    assert compilations(data)[0].function == problems(data)[0].reason == HOSTILE
