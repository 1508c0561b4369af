"""Compile records → summary, on hand-made records and on recordings of torch 2.11."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compile_records import a_compilation, artifact, envelope, mark, records_of, summary_of
from recordings import Recording
from tb_torchcompile_plugin.compile_log.log import CompileLog
from tb_torchcompile_plugin.compile_log.record import Record
from tb_torchcompile_plugin.compile_log.summary import payload_text
from tb_torchcompile_plugin.compile_log.summary_pb2 import BACKWARD, FORWARD, CompileSummary
from tb_torchcompile_plugin.reader.torch_trace import structured_log
from tb_torchcompile_plugin.torch_names.records import PHASES

PROGRAMS = ["breaks", "resnet18", "recompiles", "ddp", "resnet18_compile"]


def logs(folder: Path) -> list[Path]:
    return sorted(folder.glob("dedicated_log_torch_trace_*.log"))


def seconds(summary: CompileSummary, direction: int) -> float:
    total: int = sum(row.duration_ns for row in summary.compilations if row.direction == direction)
    return total / 1e9


@pytest.mark.parametrize(
    "payload", ['"2.11.0+cu130"', "2.11.0+cu130", '{"pytorch_version": "2.11.0+cu130", "commit": "70d99e9"}']
)
def test_the_version_of_torch_in_any_shape(payload: str) -> None:
    summary = summary_of([artifact("torch_version", payload)])
    assert summary.environment.torch_version == "2.11.0+cu130"


# -- recordings ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", PROGRAMS)
def test_phases_sum_to_the_duration_and_spans_agree_with_metrics(recording: Recording, program: str) -> None:
    for path in logs(recording(program)):
        for row in structured_log.read_log(str(path)).compilations:
            assert sum(phase.exclusive_ns for phase in row.phases) == row.duration_ns > 0
            assert {phase.name for phase in row.phases} <= set(PHASES)
            recorded_ns = json.loads(row.metrics["duration_us"]) * 1000
            assert abs(row.duration_ns - recorded_ns) < 1_000_000  # two clocks, read some µs apart


def test_breaks_has_its_times_and_its_four_graph_breaks(recording: Recording) -> None:
    summary = structured_log.read_log(str(logs(recording("breaks"))[0]))
    assert round(seconds(summary, FORWARD), 3) == 3.896
    assert round(seconds(summary, BACKWARD), 3) == 0.660
    rows = [row for row in summary.compilations if row.direction == FORWARD]
    assert [row.key.compile_id for row in rows] == [f"{frame}/0" for frame in range(5)]
    counts = [(row.attempts, row.guards, row.graph_ops) for row in rows]
    assert counts == [(2, 87, 4), (2, 87, 4), (1, 8, 2), (2, 85, 5), (1, 84, 4)]
    assert [(row.function, row.line, row.file) for row in rows][:2] == [
        ("forward", 25, "/home/user/train/capture.py"),
        ("torch_dynamo_resume_in_forward_at_26", 26, "/home/user/train/capture.py"),
    ]
    breaks = summary.graph_breaks
    assert {row.file for row in breaks} == {"/home/user/train/capture.py"}
    counts = [(row.line, len(row.hints), row.count) for row in breaks]
    assert counts == [(26, 1, 1), (27, 1, 1), (28, 2, 1), (29, 3, 1)]
    assert [frame.line for frame in breaks[0].stack][:2] == [74, 57]
    assert rows[0].restart_reasons[0].startswith("Call to `torch._dynamo.graph_break()`\n")


def test_breaks_has_its_graphs_with_keys_and_kernels(recording: Recording) -> None:
    summary = structured_log.read_log(str(logs(recording("breaks"))[0]))
    graphs = {(g.key.compile_id, g.direction): g for g in summary.graphs}
    assert len(graphs) == len(summary.graphs) == 9
    # One key serves two compile ids: 4/0 found in the cache what 1/0 had compiled.
    assert graphs["1/0", FORWARD].graph_key == graphs["4/0", FORWARD].graph_key
    assert all(
        graph.graph_key.startswith("f") and graph.output_code_file.endswith(".py") for graph in summary.graphs
    )
    kernels = [(k.name, k.category, k.num_configs, k.compile_ns) for k in graphs["0/0", FORWARD].kernels]
    assert kernels == [
        ("triton_poi_fused_addmm_relu_0", "triton_pointwise", 2, 258_769_000),
        ("triton_poi_fused_addmm_relu_threshold_backward_1", "triton_pointwise", 2, 102_928_000),
    ]
    hit = graphs["4/0", FORWARD].kernels
    assert len(hit) == 2
    assert not hit[0].HasField("compile_ns")  # nothing was compiled, which is not the same as 0
    cached = [(c.cache, c.result) for row in summary.compilations for c in row.cache if c.result != "miss"]
    assert cached == [("fx_graph", "hit")] * 2
    backward = [row.key.compile_id for row in summary.compilations if row.direction == BACKWARD]
    assert backward == ["4/0", "3/0", "1/0", "0/0"]


def test_recompiles_with_their_reasons(recording: Recording) -> None:
    summary = structured_log.read_log(str(logs(recording("recompiles"))[0]))
    assert [row.key.compile_id for row in summary.recompiles] == ["0/1", "0/2", "0/3"]
    first, second, third = (list(row.reasons) for row in summary.recompiles)
    assert len(first) == 1
    assert first[0].startswith("0/0: s == 0.0 ")
    assert second == ["0/1: GLOBAL_STATE changed: grad_mode", "0/0: GLOBAL_STATE changed: grad_mode"]
    assert len(third) == 3
    assert third[1].startswith("0/1: ___check_type_id(s, 10720960), type=<class 'float'>")
    assert {(row.file, row.line) for row in summary.recompiles} == {("/home/user/train/capture.py", 77)}
    workers = [span for span in summary.spans if span.worker_process]
    assert [(span.name, span.key.compile_id) for span in workers] == [("compile_file", "")]


def test_ddp_ranks_differ_in_their_recompiles(recording: Recording) -> None:
    zero, one = (structured_log.read_log(str(path)) for path in logs(recording("ddp")))
    assert (zero.environment.rank, one.environment.rank) == (0, 1)
    assert [row.key.compile_id for row in zero.recompiles] == ["0/1", "4/1"]
    assert not one.recompiles
    # DDPOptimizer split frame 4: two graphs each way under one id, each backward compiled when it first ran.
    split = [graph for graph in one.graphs if graph.key.compile_id == "4/0"]
    directions = enumerate((FORWARD, FORWARD, BACKWARD, BACKWARD))
    assert [(graph.index, graph.direction) for graph in split] == [*directions]
    backward = [row for row in one.compilations if row.direction == BACKWARD]
    assert [round(row.duration_ns / 1e9, 3) for row in backward] == [0.349, 4.011]
    assert [json.loads(row.metrics["duration_us"]) for row in backward] == [348646, 4010782]
    bypass = next(c for row in one.compilations for c in row.cache if c.result == "bypass")
    assert bypass.reason == "Won't cache a graph with fakify_first_call enabled"


def test_compile_times_have_the_functions_of_compile_times(recording: Recording) -> None:
    folder = recording("breaks")
    summary = structured_log.read_log(str(logs(folder)[0]))
    assert not summary.compile_times_complete
    ours = {row.function: [f"{s:.4f}" for s in row.seconds] for row in summary.compile_times}
    torchs = dict(_printed_times(folder / "compile_times.txt"))
    known = set(ours) & set(torchs)
    assert {"_compile.compile_inner", "compile_fx_inner", "OutputGraph.call_user_compiler"} <= known
    missing = {name for name in set(torchs) - set(ours) if not name.startswith("TritonBundler")}
    more = {"create_proxy", "wrap_to_fake_tensor_and_record", "variable_builder_call"}
    assert missing == {"get_fake_value", *more}
    assert {name: len(torchs[name]) for name in known} == {name: len(ours[name]) for name in known}
    assert ours["_compile.compile_inner"] == torchs["_compile.compile_inner"]


def _printed_times(path: Path) -> Iterator[tuple[str, list[str]]]:
    for text in path.read_text().splitlines()[3:]:
        name, _, times = text.partition("  ")
        yield name, [part.strip() for part in times.split(",")]


# -- epochs, ids, rows --------------------------------------------------------------------------------------------


def of_torch_2_6(records: list[Record]) -> list[Record]:
    """There dynamo_start comes first."""
    return records[2:3] + records[:2] + records[3:]


STRAY = [
    *(
        mark(phase, name, at, "")
        for at in (0, 50)
        for name in ("dynamo", "entire_frame_compile")
        for phase in "BE"
    ),
    *[Record(envelope("dynamo_start", {"stack": []}, ""))] * 2,
]
RESTARTED = a_compilation()
RESTARTED.insert(5, Record(envelope("dynamo_output_graph", {}, attempt=2), "graph"))


@pytest.mark.parametrize(
    ("records", "rows"),
    [
        (
            [*a_compilation(), *a_compilation("1/0", 2000), *a_compilation("0/0", 5000)],
            [("0/0", 0, 1), ("1/0", 0, 1), ("0/0", 1, 1)],
        ),
        (
            of_torch_2_6(a_compilation()) + of_torch_2_6(a_compilation("0/0", 5000)),
            [("0/0", 0, 1), ("0/0", 1, 1)],
        ),
        ([*a_compilation(), *STRAY, *a_compilation("1/0", 2000)], [("0/0", 0, 1), ("1/0", 0, 1)]),
        (RESTARTED, [("0/0", 0, 3)]),
        (a_compilation("!1/2/0"), [("!1/2/0", 0, 1)]),
    ],
    ids=["again", "torch 2.6", "without an id", "restarted", "compiled autograd"],
)
def test_an_id_that_begins_again_is_a_new_epoch(
    records: list[Record], rows: list[tuple[str, int, int]]
) -> None:
    summary = summary_of(records)
    assert [(row.key.compile_id, row.key.epoch, row.attempts) for row in summary.compilations] == rows
    assert {row.duration_ns for row in summary.compilations} == {1_000_000}
    assert {row.stack[0].function for row in summary.compilations} == {"main"}
    frames = [span for span in summary.spans if span.name == "bytecode_tracing"]
    assert [(span.key.compile_id, span.key.epoch) for span in frames] == [row[:2] for row in rows]


def a_backward(at_us: float) -> list[Record]:
    return [
        mark("B", "entire_backward_compile", at_us),
        mark("E", "entire_backward_compile", at_us + 10),
        Record(envelope("bwd_compilation_metrics", {"compile_id": "0/0", "is_forward": False})),
    ]


def test_a_backward_after_a_reset_may_be_of_the_frame_before_it() -> None:
    """It is compiled when it first runs, under the id that its frame had; that id may be another frame's now."""
    inference = Record(envelope("aot_inference_graph", {}), "graph")
    for before, function in (
        (a_compilation(), ""),
        ([*a_compilation(), *a_backward(1500)], "forward"),
        ([*a_compilation(), inference], "forward"),
    ):
        summary = summary_of([*before, *a_compilation("0/0", 5000), *a_backward(9000)])
        last = summary.compilations[-1]
        assert (last.direction, last.function) == (BACKWARD, function)
    assert [row.function for row in summary.compilations] == ["forward"] * 3


def test_explicit_nulls_of_old_logs() -> None:
    nulls = {"rank": None, "compiled_autograd_id": None, "stack": None, "has_payload": None, "link": None}
    records = [Record({**nulls, **record.metadata}, record.payload) for record in a_compilation()]
    summary = summary_of(records)
    assert [row.key.compile_id for row in summary.compilations] == ["0/0"]
    assert not summary.environment.HasField("rank")
    assert not summary.records.unreadable


def test_an_old_log_without_spans_takes_times_from_the_metrics() -> None:
    metrics = {"co_name": "f", "entire_frame_compile_time_s": 1.5, "start_time": 1_700_000_000.25}
    backward = {"inductor_compile_time_s": 0.5, "is_forward": False}
    cumulative = {"co_name": "g", "dynamo_cumulative_compile_time_us": 2_000_000, "start_time_us": 5}
    summary = summary_of(
        [
            Record(envelope("dynamo_start", {"stack": []})),
            Record(envelope("compilation_metrics", metrics)),
            Record(envelope("bwd_compilation_metrics", backward)),
            Record(envelope("compilation_metrics", cumulative, "1/0")),
        ]
    )
    rows = {(row.key.compile_id, row.direction): row for row in summary.compilations}
    assert rows["0/0", FORWARD].duration_ns == 1_500_000_000
    assert rows["0/0", FORWARD].start_ns == 1_700_000_000_250_000_000
    assert not rows["0/0", FORWARD].phases
    assert rows["0/0", BACKWARD].duration_ns == 500_000_000
    assert rows["0/0", BACKWARD].function == "f"
    assert rows["1/0", FORWARD].duration_ns == 2_000_000_000


def test_metrics_of_runtime_and_stray_records_make_no_rows() -> None:
    summary = summary_of(
        [
            Record(envelope("compilation_metrics_runtime", {"duration_us": 5})),
            Record(envelope("bwd_compilation_metrics_runtime", {"duration_us": 5})),
            mark("B", "CachingAutotuner.benchmark_all_configs", 0),
            mark("E", "CachingAutotuner.benchmark_all_configs", 10),
            artifact("fx_graph_cache_miss", '{"key": "k"}', ""),
        ]
    )
    assert not summary.compilations
    assert [span.name for span in summary.spans] == ["CachingAutotuner.benchmark_all_configs"]


def test_a_compilation_that_never_ended_is_there_without_a_duration() -> None:
    frames = [{"line": 5, "name": "main", "filename": 0}, {"line": 3, "name": "f", "filename": "/m.py"}]
    summary = summary_of(
        [
            mark("B", "entire_frame_compile", 0),
            Record({"str": ["/main.py", 0]}),
            Record(envelope("dynamo_start", {"stack": frames})),
            mark("B", "bytecode_tracing", 5),
            mark("B", "get_fake_value", 7),
        ]
    )
    (row,) = summary.compilations
    assert (row.function, row.file, row.line) == ("f", "/m.py", 3)
    assert [frame.file for frame in row.stack] == ["/main.py", "/m.py"]
    assert not row.HasField("duration_ns")
    assert all(span.unfinished for span in summary.spans)
    assert [span.duration_ns for span in summary.spans] == [7000, 2000, 0]


def test_a_compilation_at_the_recompile_limit_has_the_place_of_its_code() -> None:
    limit = {"fail_type": "Unsupported", "fail_reason": "Dynamo recompile limit exceeded"}
    summary = summary_of([*a_compilation(), Record(envelope("compilation_metrics", limit, "0/1"))])
    row = summary.compilations[0]
    assert (row.key.compile_id, row.function, row.file, row.line) == ("0/1", "forward", "/m.py", 3)
    assert (row.failure.type, row.failure.reason) == ("Unsupported", "Dynamo recompile limit exceeded")


def test_metrics_of_a_frame_that_torch_files_under_backward() -> None:
    *begin, metrics, end = a_compilation()
    mixed = Record(
        envelope("bwd_compilation_metrics", {**metrics.metadata["compilation_metrics"], "is_forward": False})
    )
    (row,) = summary_of([*begin, mixed, end]).compilations
    assert (row.direction, row.function, row.duration_ns) == (FORWARD, "forward", 1_000_000)
    limit = {"is_forward": None, "fail_type": "RecompileLimitExceeded", "fail_reason": "cache_size_limit"}
    summary = summary_of([*a_compilation(), Record(envelope("bwd_compilation_metrics", limit, "0/1"))])
    rows = [(row.key.compile_id, row.direction) for row in summary.compilations]
    assert rows == [("0/1", FORWARD), ("0/0", FORWARD)]


def test_threads_do_not_mix_their_spans() -> None:
    """Two threads compile at once; their records come in turn, and each has marks of the same names."""
    one, two = a_compilation("0/0"), a_compilation("1/0", 10)
    for record in two:
        record.thread = 2
    summary = summary_of([record for pair in zip(one, two, strict=True) for record in pair])
    assert {row.duration_ns for row in summary.compilations} == {1_000_000}
    assert {row.thread for row in summary.compilations} == {0, 2}
    assert not summary.records.unreadable


def test_one_compile_id_in_two_threads_is_two_lanes() -> None:
    """Kernels of one frame are compiled in a pool; their spans cross without belonging together."""
    (row,) = summary_of(
        [
            mark("B", "entire_frame_compile", 0),
            mark("B", "async_compile.precompile", 100),
            mark("B", "async_compile.precompile", 200, thread=2),
            mark("E", "async_compile.precompile", 300),
            mark("E", "entire_frame_compile", 500),
            mark("E", "async_compile.precompile", 900, thread=2),
        ]
    ).compilations
    assert {phase.name: phase.exclusive_ns for phase in row.phases} == {"triton": 200_000, "dynamo": 300_000}


def test_the_same_break_in_two_attempts_counts_twice_in_one_row() -> None:
    text = "Graph break in user code at /m.py:3\nReason: Unsupported: x\nUser code traceback:\n"
    records = [artifact("dynamo_graph_break_reason", text, attempt=n) for n in (0, 1)]
    summary = summary_of([*records, artifact("dynamo_graph_break_reason", text, "1/0")])
    rows = [(row.key.compile_id, row.count, row.line) for row in summary.graph_breaks]
    assert rows == [("0/0", 2, 3), ("1/0", 1, 3)]


def test_a_cache_hit_names_its_time_saved() -> None:
    hit = artifact(
        "fx_graph_cache_hit", json.dumps({"key": "fabc", "time_saved_ns": 5, "cache_state": "hit"})
    )
    code = Record(envelope("inductor_output_code", {"filename": "/c.py"}), "# AOT ID: ['0_backward']\n")
    summary = summary_of([*a_compilation(), hit, code])
    (row,) = summary.compilations[0].cache
    assert (row.cache, row.result, row.key, row.time_saved_ns) == ("fx_graph", "hit", "fabc", 5)
    # In old versions the hit comes before the code.
    assert [(g.graph_key, g.direction) for g in summary.graphs] == [("fabc", BACKWARD)]


# -- what is broken -----------------------------------------------------------------------------------------------

BROKEN = [
    Record({}),
    Record({"frame_id": 1}),
    Record({"artifact": {}}),
    Record({"artifact": None}),
    Record(envelope("chromium_event", {}), "{not json"),
    Record(envelope("chromium_event", {}), '{"ph": "B", "name": "x"}'),
    Record(envelope("dynamo_start", {"stack": [7]})),
    Record(envelope("compilation_metrics", None)),
    Record(envelope("compilation_metrics", {"co_firstlineno": "x", "start_time": "never"})),
    Record(envelope("inductor_output_code", None), "code"),
    artifact("fx_graph_cache_miss", "[]"),
    artifact("triton_kernel_info", "nonsense"),
    Record({"str": ["only one"]}),
    mark("E", "never_begun", 5),
]


def test_broken_records_are_counted_and_the_rest_is_read() -> None:
    summary = summary_of([*BROKEN, *a_compilation("5/0")])
    good = next(row for row in summary.compilations if row.key.compile_id == "5/0")
    assert good.duration_ns == 1_000_000
    assert sum(summary.records.unreadable.values()) >= 9
    assert summary.records.unreadable["chromium_event: end without a beginning"] == 1
    assert summary.records.unreadable["chromium_event of an unknown form"] == 2
    assert summary.records.unreadable["without a kind"] == 5


def test_unknown_kinds_are_kept_and_counted() -> None:
    summary = summary_of([Record(envelope("from_the_future", {"a": 1}), "text")], payloads=True)
    assert dict(summary.records.unknown) == {"from_the_future": 1}
    assert [item.name for item in summary.artifacts] == ["from_the_future"]


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
_KINDS = st.sampled_from(
    (
        *("dynamo_start", "chromium_event", "compilation_metrics", "bwd_compilation_metrics"),
        *("inductor_output_code", "artifact", "str", "x"),
    )
)


def number_of_records(log: CompileLog) -> int:
    return sum((*log.records.by_kind.values(), *log.records.unreadable.values()))


@given(st.lists(st.tuples(_KINDS, _VALUES, st.none() | st.text(max_size=20)), max_size=8))
def test_nothing_that_a_record_holds_makes_it_raise(pieces: list[tuple[str, Any, str | None]]) -> None:
    log = CompileLog()
    for kind, value, text in pieces:
        counted = number_of_records(log)
        log.add(Record({kind: value, "frame_id": 0, "frame_compile_id": 0}, text))
        assert number_of_records(log) > counted
    log.summary().SerializeToString()


@given(st.integers(0, 10**6))
def test_phases_sum_to_the_duration_whatever_the_marks(seed: int) -> None:
    """Marks of known and unknown names, some without their other half, at times that may stand still."""
    chance = random.Random(seed)
    names = ["bytecode_tracing", "backend_compile", "create_aot_dispatcher_function", "inductor_compile"]
    names.append("novel")
    records, at = [mark("B", "entire_frame_compile", 0)], 0.0
    for _ in range(chance.randrange(40)):
        at += chance.choice([0, 0.25, 3, 1000])
        records.append(mark(chance.choice("BBE"), chance.choice(names), at))
    records.append(mark("E", "entire_frame_compile", at))
    (row,) = summary_of(records).compilations
    assert sum(phase.exclusive_ns for phase in row.phases) == row.duration_ns == round(at * 1000)
    assert all(phase.exclusive_ns > 0 for phase in row.phases)


@pytest.mark.parametrize(
    ("part", "begin", "end", "whole", "phases"),
    [
        # A clock that was set back gives no negative phase.
        ("inductor_compile", 10, 900, 500, [("other", 500_000)]),
        # A backend that is not inductor is other time.
        ("backend_compile", 100, 900, 1000, [("dynamo", 200_000), ("other", 800_000)]),
    ],
)
def test_phases_of_odd_marks(
    part: str, begin: int, end: int, whole: int, phases: list[tuple[str, int]]
) -> None:
    frame = "entire_frame_compile"
    marks = [mark("B", frame, 0), mark("B", part, begin), mark("E", part, end), mark("E", frame, whole)]
    (row,) = summary_of(marks).compilations
    assert [(phase.name, phase.exclusive_ns) for phase in row.phases] == phases


# -- payloads and privacy -----------------------------------------------------------------------------------------


def test_payloads_are_stored_once_and_come_back(recording: Recording) -> None:
    records = records_of(logs(recording("breaks"))[0].read_bytes())
    summary = summary_of(records, payloads=True)
    texts = {record.payload for record in records if "dynamo_output_graph" in record.metadata}
    stored = {payload_text(summary, a.payload) for a in summary.artifacts if a.name == "dynamo_output_graph"}
    assert stored == texts
    assert len({payload.sha256 for payload in summary.payloads}) == len(summary.payloads)
    misses = [a for a in summary.artifacts if a.name == "fx_graph_cache_miss"]
    parts = [line for a in misses for line in json.loads(payload_text(summary, a.payload))["components"]]
    assert parts and not any("inductor_config" in line or "def forward" in line for line in parts)
    settings = {a.payload for a in summary.artifacts if a.name == "cache_key_settings"}
    assert [len(json.loads(payload_text(summary, number))) > 100 for number in settings] == [True]
    assert len(summary.SerializeToString()) < 300_000  # of 3.9 MB


def test_capture_summary_holds_no_line_of_the_program(recording: Recording) -> None:
    program = Path(__file__).parents[2] / "benchmarks/diagnosis/recorders/capture.py"
    lines = {part.strip() for part in program.read_text().splitlines()}
    lines = {part for part in lines if len(part) > 12}
    records = records_of(logs(recording("breaks"))[0].read_bytes())
    assert _quoted(lines, summary_of(records, payloads=False))
    assert not _quoted(lines, summary_of(records, source=False, payloads=True))


def _quoted(lines: set[str], summary: CompileSummary) -> set[str]:
    data = summary.SerializeToString()
    return {part for part in lines if part.encode() in data}


def test_capture_summary_withholds_what_quotes_the_code() -> None:
    failed = {"fail_type": "Boom", "fail_reason": "secret_call(x)", "restart_reasons": ["secret restart"]}
    text = "Graph break in user code at /m.py:3\nReason: secret_call(x)\nUser code traceback:\n"
    text += '  File "/m.py", line 3, in f\n    secret_call(x)\n'
    reason = "0/0: L['x'] == 3   # secret_call(x)  # m.py:3 in f\nUser stack trace:\n  secret"
    stack = [{"line": 1, "name": "f", "filename": "/m.py", "loc": "secret()"}]
    summary = summary_of(
        [
            *a_compilation(),
            Record(envelope("compilation_metrics", failed, "1/0")),
            artifact("dynamo_graph_break_reason", text),
            artifact("recompile_reasons", reason, "0/1"),
            artifact("fx_graph_cache_bypass", '{"cache_bypass_reason": "secret node"}'),
            Record(envelope("dynamo_start", {"stack": stack}, "7/0")),
            Record(envelope("dynamo_output_graph", {}), "secret graph"),
        ],
        source=False,
        payloads=True,
    )
    assert b"secret" not in summary.SerializeToString()
    assert summary.recompiles[0].reasons[0] == "0/0: L['x'] == 3"
    assert (summary.graph_breaks[0].file, summary.graph_breaks[0].line) == ("/m.py", 3)
    assert next(row.failure.type for row in summary.compilations if row.failure.type) == "Boom"
