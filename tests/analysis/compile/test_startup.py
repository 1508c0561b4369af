"""Start-ups of made-up processes, whose truth is known: parts, caches, other processes, and what is said of them."""

import json
from collections import Counter
from pathlib import Path

import pytest

from compile_records import START_US, a_compilation, artifact, envelope, mark, summary_of
from recordings import Recording
from tb_torchcompile_plugin.analysis.compile.cache_keys import Start, Starts
from tb_torchcompile_plugin.analysis.compile.startup import (
    HostSpan,
    StartUp,
    innermost_spans,
    parts_ns,
    start_findings,
    start_parts,
    startup,
)
from tb_torchcompile_plugin.api.report import read_report
from tb_torchcompile_plugin.api.routes import ROUTES, poll
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.compile_log.record import Record
from tb_torchcompile_plugin.compile_log.summary import save
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary, FirstStep
from tb_torchcompile_plugin.profile.columns import to_seconds
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.torch_trace.structured_log import read_log

START_NS = START_US * 1000
S = 1_000_000  # µs
PLAIN, TUNED = "[c0] inductor_config[max_autotune]: False", "[c1] inductor_config[max_autotune]: True"
CODE, OTHER_CODE = "[g1] gm: GraphModule()", "[g2] gm: GraphModule()"
CALLER = {"line": 9, "name": "main", "filename": "/train.py"}
METRICS = {"co_name": "forward", "co_filename": "/m.py", "co_firstlineno": 3}
GRAPH = (
    "class {}(torch.nn.Module):\n  def forward(self, x):\n"
    "    # File: /m.py:4 in forward, code: x + 1\n    add = aten.add(x, {});  x = None\n"
)


def cached(cache: str, result: str, key: str, components: list[str], **more: object) -> Record:
    return artifact(f"{cache}_cache_{result}", json.dumps({"key": key, "components": components, **more}))


def process(
    *,
    hit: bool = False,
    key: str = "k",
    setting: str = PLAIN,
    code: str = CODE,
    aot_s: int = 8,
    load_s: float = 0.5,
    after_s: int = 0,
    folder: str = "/cache",
    more_parts: tuple[str, ...] = (),
) -> CompileSummary:
    """One frame: two seconds of Dynamo, then AOTAutograd with inductor inside it, or hits that load for a while."""
    inside_s = load_s if hit else aot_s
    begin, end = 1 * S, (1 + inside_s) * S
    parts = [code, setting, *more_parts]
    records = [
        mark("B", "entire_frame_compile", 0),
        Record(envelope("dynamo_start", {"stack": [CALLER, CALLER]})),
        mark("B", "AOTAutogradCache.inductor_load" if hit else "create_aot_dispatcher_function", begin),
        *(
            (
                cached("fx_graph", "hit", f"f{key}", parts, time_saved_ns=5 * 10**9),
                cached("aotautograd", "hit", f"a{key}", [], time_saved_ms=aot_s * 1000),
            )
            if hit
            else (
                cached("aotautograd", "miss", f"a{key}", [], cache_status_detailed="full_miss"),
                Record(envelope("aot_inference_graph", {}), GRAPH.format(code, code[2])),
                mark("B", "fx_codegen_and_compile", begin + S),
                mark("E", "fx_codegen_and_compile", begin + 6 * S),
                cached("fx_graph", "miss", f"f{key}", parts, time_taken_ns=5 * 10**9),
            )
        ),
        mark("E", "AOTAutogradCache.inductor_load" if hit else "create_aot_dispatcher_function", end),
        mark("E", "entire_frame_compile", end + S),
        Record(envelope("compilation_metrics", METRICS)),
    ]
    summary = summary_of(records, readable=True, payloads=True)
    environment = summary.environment
    environment.process_start_ns = START_NS - 9 * 10**9
    environment.imported_ns = START_NS - 4 * 10**9
    compiled_ns = int((end + S) * 1000)
    summary.steps.first.append(FirstStep(end_ns=START_NS + compiled_ns + 10**9, compiled=True))
    steady = START_NS + compiled_ns + 10**9 + 1
    summary.steps.first.append(FirstStep(start_ns=steady, end_ns=steady + 10**6))
    environment.recording_start_ns = START_NS - 4 * 10**9 + after_s * 10**9
    environment.written_ns = steady + 10**8 + after_s * 10**9
    environment.variables["TORCHINDUCTOR_CACHE_DIR"] = folder
    return summary


def start(run: str, summary: CompileSummary, rank: int | None = None) -> Start:
    return Start(run, f"rank{rank}" if rank is not None else "w", rank, CompileData(summary, "summary", ""))


def answer(mine: Start, *others: Start) -> StartUp:
    return startup(Starts(mine, others))


# -- parts --------------------------------------------------------------------------------------------------------


def test_the_innermost_span_has_the_time() -> None:
    # the last one crosses the one before
    spans = [HostSpan(start, end, "") for start, end in ((10, 90), (20, 60), (50, 70), (95, 200))]
    edges, innermost = innermost_spans(spans, 0, 100)
    assert edges.tolist() == [0, 10, 20, 50, 60, 70, 90, 95, 100]
    assert innermost.tolist() == [-1, 0, 1, 2, 2, 0, -1, 3]


def test_every_nanosecond_belongs_to_one_part() -> None:
    parts = start("cold", process()).data.of(parts_ns)
    seconds = {"imports": 5, "preparing": 4, "dynamo": 2, "aot_autograd": 3, "inductor": 5}
    assert parts == {**{name: s * 10**9 for name, s in seconds.items()}, "steps": 10**9 + 1}
    rows = start("cold", process()).data.of(start_parts)
    assert sum(row.time_s for row in rows) == to_seconds(20 * 10**9 + 1)
    assert sum(row.percent for row in rows) == 100


def test_what_lies_between_and_loading_are_parts_and_later_compilations_are_not() -> None:
    begins = 0, 5000, 90_000
    summary = summary_of(record for at in begins for record in a_compilation(f"{at // 5000}/0", at))
    for begin, end, compiled in ((-3_000_000, 6_500_000, True), (7_000_000, 8_000_000, False)):
        summary.steps.first.add(start_ns=START_NS + begin, end_ns=START_NS + end, compiled=compiled)
    summary.environment.imported_ns = START_NS - 1_000_000
    summary.cache_transfers.add(load=True, start_ns=START_NS - 500_000, duration_ns=200_000)
    parts = start("r", summary).data.of(parts_ns)
    assert parts == {
        "preparing": 800_000,
        "artifacts": 200_000,
        "dynamo": 2_000_000,
        "outside": 2_000,
        "between": 3_999_000,
        "steps": 999_000,
    }


def test_phases_of_a_start_up_are_those_of_its_compilations(recording: Recording) -> None:
    """Of a real process in which no compilation ran inside of another one: what the spans say is what rows say."""
    summary = read_log(str(next(recording("breaks").rglob("dedicated_log_torch_trace*"))))
    rows = Counter[str]()
    for row in summary.compilations:
        rows.update({phase.name: phase.exclusive_ns for phase in row.phases})
    parts = CompileData(summary, "torch_trace", "").of(parts_ns)
    for phase in ("aot_autograd", "inductor", "triton", "cache"):
        assert rows[phase] > 0 and parts[phase] == rows[phase], phase


@pytest.mark.parametrize(
    ("name", "value"),
    [("fx_graph_cache", "False"), ("force_disable_caches", "True"), ("compile_worker_mode", "thread")],
)
def test_settings_that_slow_a_start_up_are_named(name: str, value: str) -> None:
    summary = process()
    assert name not in " ".join(answer(start("a", summary)).sentences)
    summary.environment.settings[f"torch._inductor.config.{name}"] = value
    assert name in " ".join(answer(start("a", summary)).sentences)


def test_without_times_it_says_so() -> None:
    said = answer(start("r", CompileSummary()))
    assert len(said.sentences) == 1 and "unknown" in said.sentences[0]
    assert not said.parts and not said.start_lookups


def test_a_log_counts_from_its_first_compilation() -> None:
    said = answer(start("r", summary_of(a_compilation())))
    assert said.sentences[-2].startswith("Counted from the first compilation:")
    assert said.sentences[-1].startswith("Counted until the last compilation:")


# -- caches -------------------------------------------------------------------------------------------------------


def test_a_cold_start_next_to_a_warm_one() -> None:
    cold, warm = start("cold", process()), start("warm", process(hit=True, after_s=60))
    said = answer(cold, warm)
    assert all(text in said.sentences[0] for text in ("20.0 s", "10.0 s of this (50.0 %)", "(5.00 s)"))
    assert said.sentences[1].startswith("2 of 2 lookups") and "8.00 s" in said.sentences[1]
    lookups = [(row.cache, row.spent_s) for row in said.start_lookups]
    assert lookups == [("AOTAutograd cache", 8.0), ("FX graph cache", 5.0)]
    assert start_findings(Starts(cold, (warm,))) == []  # a first run cannot hit


def test_a_miss_names_the_first_setting_that_differs_and_in_which_run() -> None:
    said = answer(start("b", process(key="b", setting=TUNED, after_s=60)), start("a", process()))
    aot, graph = said.start_lookups
    assert aot.differs == graph.differs == "setting max_autotune (False → True)" and graph.than == "a, w"
    assert said.sentences[2].endswith(f"differs from a, w in {graph.differs}.")


def test_a_rank_that_misses_alone_is_named_with_the_folder_that_is_its_own() -> None:
    alone = start("job", process(folder="/own"), 1)
    said = answer(alone, start("job", process(hit=True), 0))
    folder = "TORCHINDUCTOR_CACHE_DIR (/cache → /own; same key)"
    assert {row.differs for row in said.start_lookups} == {folder}
    (finding,) = start_findings(Starts(alone, (start("job", process(hit=True), 0),)))
    assert finding.severity == "warning" and finding.where == ["m.py:3"]
    assert finding.title.endswith(f"What differs from job, rank 0: {folder}")


# -- over a logdir ------------------------------------------------------------------------------------------------


def test_the_route_and_the_report_know_the_other_runs(tmp_path: Path) -> None:
    for run, summary in (("a", process()), ("b", process(key="b", setting=TUNED, after_s=60))):
        (tmp_path / run).mkdir()
        save(summary, str(tmp_path / run / f"w.{START_NS}.pt.compile.pb"))
    session = Session([("", str(tmp_path))])
    said = poll(session, ROUTES["compile_time"], {"run": "b", "worker": "w"})
    assert isinstance(said, StartUp)
    assert poll(session, ROUTES["compile_time"], {"run": "b", "worker": "w"}) is said
    assert said.start_lookups[1].differs == "setting max_autotune (False → True)"
    report = read_report(str(tmp_path))
    assert [row.startup == said for run in report.runs for row in run.workers] == [False, True]
    (cold,) = (row for row in report.findings if row.rule == "cold_start")
    assert (cold.run, cold.severity) == ("b", "info")
