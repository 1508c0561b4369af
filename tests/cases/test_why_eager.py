"""Programs in which nothing, or nothing new, ran compiled: is the reason the one that held?

Those of public reports are recordings. For each reason there is a program that is recorded here.
"""

import json
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from live import needs_torch, run
from profiles import data_of, profile_with, spans_in
from tb_torchcompile_plugin.analysis.causes.eager import EAGER_REASONS, eager_cause
from tb_torchcompile_plugin.analysis.causes.findings import compile_findings, span_context
from tb_torchcompile_plugin.analysis.runtime.span_report import compile_report
from tb_torchcompile_plugin.cli.command import main
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from traces import Event, slice_, write_trace

CASES = Path(__file__).parents[1] / "data" / "cases"
START_NS = 1_700_000_000_000_000_000


def findings(case: str | Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    """The findings of a case, or of a folder, most important first."""
    assert main(["report", str(CASES / case), "--json"]) == 0
    rows: list[dict[str, object]] = json.loads(capsys.readouterr().out)["findings"]
    return rows


@pytest.mark.parametrize(
    ("case", "rule", "where", "code"),
    [
        ("compile_disabled_env", "nothing_compiled", [], None),
        ("pytorch164143_dispatch_mode", "nothing_compiled", ["program.py:7"], None),
        ("suppress_errors", "frame_given_up", ["program.py:7"], None),
        ("compile_in_loop", "compile_in_loop", ["program.py:5"], None),
        ("pytorch91682_no_step", "no_trace", [], "prof.step()"),
    ],
)
def test_the_first_finding(
    case: str, rule: str, where: list[str], code: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    first = findings(case, capsys)[0]
    assert (first["rule"], first["where"], first["severity"]) == (rule, where, "critical")
    assert first.get("code") == code


def test_the_error_that_was_hidden_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    first = findings("suppress_errors", capsys)[0]
    assert "RuntimeError: backend failed: unsupported dtype" in str(first["title"])
    assert "suppress_errors" in str(first["next_step"])


def test_creating_the_function_in_each_step_is_priced_by_what_it_took(
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = findings("compile_in_loop", capsys)[0]
    evidence, predicted = row["evidence"], row["predicted"]
    assert isinstance(evidence, dict) and isinstance(predicted, dict)
    assert evidence["calls_per_step"] == 1
    saved = predicted["step_us"] - predicted["after_us"]
    assert saved == pytest.approx(evidence["host_us_per_step"]) and saved > 300


@pytest.mark.parametrize(
    ("case", "reason"),
    [("compile_disabled_env", "variable"), ("pytorch164143_dispatch_mode", "dispatch_mode")],
)
def test_the_reason_of_a_recording(case: str, reason: str) -> None:
    (profile,) = spans_in(CASES / case)
    assert eager_cause(span_context(profile)).reason == reason


def test_reasons_have_words_and_something_to_do() -> None:
    assert all(len(why) < 100 and next_step for why, next_step in EAGER_REASONS.values())


def reason(folder: Path, summary: CompileSummary | None, *others: Event) -> str:
    """Why nothing compiled runs in two steps that begin 1 ms after START_NS."""
    folder.mkdir(exist_ok=True)
    steps = [
        slice_(f"ProfilerStep#{number}", 1000 + 100 * number, 100, "user_annotation") for number in (0, 1)
    ]
    events = [*steps, slice_("aten::mm", 1010, 80), *others, slice_("aten::mm", 1110, 80)]
    data = data_of(summary) if summary else None
    context = span_context(
        profile_with(folder, events, data, deviceProperties=[], baseTimeNanoseconds=START_NS)
    )
    assert context.nothing_compiled
    return eager_cause(context).reason


def called(*calls: tuple[str, str, int]) -> CompileSummary:
    """A summary with calls by kind, subject and µs after START_NS."""
    summary = CompileSummary()
    summary.environment.compile_called = True
    for kind, subject, at_us in calls:
        summary.compiler_calls.add(
            kind=kind, subject=subject, file="/u/train.py", line=7, start_ns=START_NS + 1000 * at_us
        )
    return summary


def test_what_no_handler_recorded_is_unknown(tmp_path: Path) -> None:
    never = called()
    never.environment.compile_called = False
    assert reason(tmp_path / "trace", None) == "unknown"
    assert reason(tmp_path / "old", CompileSummary()) == "unknown"
    assert reason(tmp_path / "never", never) == "never"
    assert reason(tmp_path / "unused", called(("compile", "f", 0))) == "unused"


def test_a_dispatch_mode_in_the_trace_is_named_where_calls_of_compile_are_unknown(tmp_path: Path) -> None:
    mode = slice_("PythonDispatchMode", 1020, 30)
    never = called()
    never.environment.compile_called = False
    assert reason(tmp_path / "old", CompileSummary(), mode) == "traced_mode"
    assert reason(tmp_path / "trace", None, mode) == "traced_mode"
    assert reason(tmp_path / "never", never, mode) == "never"


def test_a_stance_counts_while_it_is_in_force(tmp_path: Path) -> None:
    before, inside, ended, later = (
        called(("stance", "force_eager", 0)),
        called(("stance", "eager_on_recompile", 1050), ("stance", "default", 1060)),
        called(("stance", "force_eager", 0), ("stance", "default", 500)),
        called(("stance", "force_eager", 5000)),
    )
    assert [
        reason(tmp_path / str(number), row) for number, row in enumerate((before, inside, ended, later))
    ] == ["stance", "stance", "unused", "unused"]


def test_only_what_was_compiled_can_be_disabled(tmp_path: Path) -> None:
    compiled = called(("compile", "forward", 0), ("disable", "forward", 1))
    assert reason(tmp_path / "forward", compiled) == "disable"
    assert reason(tmp_path / "other", called(("compile", "forward", 0), ("disable", "log", 1))) == "unused"


@pytest.mark.parametrize("kind", ["disabled", "dispatch_mode", "skip"])
def test_functions_that_dynamo_left_alone(kind: str, tmp_path: Path) -> None:
    assert reason(tmp_path, called((kind, "forward", 0))) == kind


def test_a_profiler_that_ended_too_early_has_stepped() -> None:
    summary = CompileSummary()
    summary.steps.unused.steps = 3
    (row,) = compile_findings(data_of(summary))
    assert row.rule == "no_trace" and row.evidence == {"profiler_steps": 3}
    assert row.code is None


@pytest.mark.parametrize(
    ("recorded", "words"),
    [([], ("no call of prof.step()", "prof.step()")), ([5, 6], ("recorded 2 steps", "same folder"))],
)
def test_without_a_trace_something_is_missing(recorded: list[int], words: tuple[str, str]) -> None:
    """Of an older handler, which did not note why there is no trace; a log is written without one."""
    summary = CompileSummary()
    summary.steps.recorded_ns.extend(recorded)
    data = replace(data_of(summary), has_trace=False)
    assert compile_findings(replace(data, source="torch_trace")) == []
    (row,) = compile_findings(data)
    assert (row.rule, row.severity) == ("no_trace", "info")
    assert words[0] in row.title and words[1] in row.next_step
    assert compile_report(data).headlines["overview"].startswith("No trace was read. ")
    assert compile_findings(data_of(summary)) == []


def test_a_folder_with_compile_data_alone_does_not_claim_that_there_is_nothing_to_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = CompileSummary(format_version=1)
    summary.compilations.add().key.compile_id = "0/0"
    (tmp_path / "w.7.pt.compile.pb").write_bytes(summary.SerializeToString())
    assert main(["report", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("No trace was read. ") and "No finding" not in out and "prof.step()" in out
    write_trace(tmp_path, [slice_("aten::mm", 0, 7)], name="w.7.pt.trace.json")
    assert main(["report", str(tmp_path)]) == 0
    assert "no_trace" not in capsys.readouterr().out


PREAMBLE = """
    import warnings; warnings.simplefilter("ignore")
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from tb_torchcompile_plugin import tensorboard_trace_handler

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(512, 512)

        def forward(self, x):
            return self.layer(x).relu()

        def generate(self, x):
            return self(self(x))

    def record(step, steps=3, handler=tensorboard_trace_handler("."), before=1):
        schedule = torch.profiler.schedule(wait=0, warmup=before, active=steps, repeat=1)
        with torch.profiler.profile(schedule=schedule, on_trace_ready=handler) as prof:
            for _ in range(before + steps):
                step()
                prof.step()

    def broken(graph, inputs):
        raise RuntimeError("backend failed: unsupported dtype")

    def busy():
        for _ in range(20):
            model(x)

    model, x, compiler = Model(), torch.randn(1024, 512), torch.compiler
    stock = torch.profiler.tensorboard_trace_handler(".")
"""
COMPILED = 'm = torch.compile(model, backend="eager")\n'
# By reason: what runs eager, and the words that say so.
PROGRAMS = {
    "variable": (
        # As torch sets it from the variable when it is imported.
        f"torch._dynamo.config.disable = True\n{COMPILED}record(lambda: m(x))",
        "TORCH_COMPILE_DISABLE=1 was set",
    ),
    "stance": (
        f'compiler.set_stance("force_eager")\n{COMPILED}record(lambda: m(x))',
        'set_stance("force_eager") at program.py:34 was active',
    ),
    "fail_on_recompile": (
        f"""compiler.set_stance("fail_on_recompile")
{COMPILED}
def step():
    try:
        m(x)
    except RuntimeError:
        model(x)

record(step)""",
        'set_stance("fail_on_recompile") at program.py:34 raises an error instead of compiling',
    ),
    "eager_then_compile": (
        f"""compiler.set_stance("eager_then_compile")
{COMPILED}record(lambda: m(x), steps=1, before=0)""",
        'set_stance("eager_then_compile") at program.py:34 runs each first call eagerly',
    ),
    "disabled": (
        f"torch._dynamo.config.disable = True\n{COMPILED}record(lambda: m(x))",
        "torch._dynamo.config.disable was True",
    ),
    "dispatch_mode": (
        f"""def step():
    with FlopCounterMode(display=False):
        m(x)

{COMPILED}record(step)""",
        "FlopCounterMode was active at program.py:",
    ),
    "traced_mode": (
        f"""def step():
    with FlopCounterMode(display=False):
        m(x)

{COMPILED}record(step, handler=stock)""",
        "operators run in a dispatch mode",
    ),
    "skip": (f"{COMPILED}record(lambda: m(x))", "Dynamo skipped Model.forward at program.py:"),
    "disable": (
        """m = compiler.disable(torch.compile(model.forward, backend="eager"))
record(lambda: m(x))""",
        "torch.compiler.disable was applied at program.py:34",
    ),
    "method": (
        f"""{COMPILED}m.zero_grad()
record(lambda: m.generate(x))""",
        "`Model.generate` at program.py:36 runs the uncompiled module: torch.compile wraps only calls",
    ),
    "broken": (
        """@torch.compile(backend="eager")
def step(x):
    torch._dynamo.graph_break()
    return x

record(lambda: (step(x), busy()))""",
        "program.py:36 breaks the graph before it contains an operation (",
    ),
    "broken_inside": (
        """installed = {"torch": torch}
text = "def step(x):\\n  torch._dynamo.graph_break()\\n  return x"
exec(compile(text, "/usr/lib/site-packages/trainer.py", "exec"), installed)
step = torch.compile(installed["step"], backend="eager")
record(lambda: (step(x), busy()))""",
        "trainer.py:2 breaks the graph before it contains an operation (",
    ),
    "empty": (
        """@torch.compile(backend="eager")
def step(x):
    return x

record(lambda: (step(x), busy()))""",
        "the compiled code (1 frame) contains no operation",
    ),
    "not_called": (
        f"{COMPILED}m(x)\nrecord(lambda: model(x))",
        "the compiled code (1 compilation) is not called here",
    ),
    "unused": (f"{COMPILED}record(lambda: model(x))", "torch.compile at program.py:34 is not called here"),
    "never": ("record(lambda: model(x))", "torch.compile was not called"),
    "unknown": (f"{COMPILED}record(lambda: model(x), handler=stock)", "the reason is unknown"),
}
VARIABLES = {"variable": {"TORCH_COMPILE_DISABLE": "1"}, "skip": {"TORCHDYNAMO_DEBUG_FUNCTION": "other"}}
# By what a finding says: torch gives a frame up, or compiles it again and again.
GIVEN_UP = {
    "runs eagerly: RuntimeError: backend failed: unsupported dtype": (
        "frame_given_up",
        """torch._dynamo.config.suppress_errors = True
m = torch.compile(model, backend=broken)
record(lambda: m(x))""",
    ),
    "runs eagerly: it hit the recompile limit": (
        "frame_given_up",
        """sizes = iter(range(2, 200))
torch._dynamo.config.recompile_limit = 2

@torch.compile(backend="eager", dynamic=False)
def step(x):
    return model(x)

def grow():
    for _ in range(4):
        step(torch.randn(next(sizes), 512))

record(grow)""",
    ),
    "runs eagerly: Call to `torch._dynamo.graph_break()`": (
        "frame_given_up",
        """@torch.compile(backend="eager")
def step(x):
    for _ in range(3):
        x = model(x)
        torch._dynamo.graph_break()
    return x

record(lambda: step(x))""",
    ),
    "torch.compile is called in every step at program.py:35": (
        "compile_in_loop",
        """def step():
    [torch.compile(lambda x: model(x).sum(), backend="eager") for _ in range(10)][0](x[:2])

record(step)""",
    ),
}


def recorded(folder: Path, program: str, **environment: str) -> None:
    """Runs a program whose lines are lines of a file, as a user's are."""
    (folder / "program.py").write_text(textwrap.dedent(PREAMBLE) + program)
    run("import runpy; runpy.run_path('program.py', run_name='__main__')", folder, **environment)


def test_there_is_a_program_for_each_reason() -> None:
    assert PROGRAMS.keys() == EAGER_REASONS.keys()


@pytest.mark.parametrize("reason", [pytest.param(reason, marks=needs_torch) for reason in PROGRAMS])
def test_the_reason_is_recorded(reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, words = PROGRAMS[reason]
    recorded(tmp_path, program, **VARIABLES.get(reason, {}))
    (profile,) = spans_in(tmp_path)
    assert eager_cause(span_context(profile)).reason == reason
    first = findings(tmp_path, capsys)[0]
    assert first["rule"] == "nothing_compiled" and words in str(first["title"])
    assert (first.get("code") == "model.compile()") == (reason == "method")


@pytest.mark.parametrize("words", [pytest.param(words, marks=needs_torch) for words in GIVEN_UP])
def test_a_frame_that_does_not_stay_compiled(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rule, program = GIVEN_UP[words]
    recorded(tmp_path, program)
    rows = findings(tmp_path, capsys)
    assert any(row["rule"] == rule and words in str(row["title"]) for row in rows)
