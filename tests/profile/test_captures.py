"""Test captures.py: on a real recording, and on small traces in the layouts of vLLM and SGLang."""

from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from profiles import spans_in
from tb_torchcompile_plugin.analysis.runtime.cuda_graphs import cuda_graphs
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_table
from tb_torchcompile_plugin.analysis.runtime.ledger import ledger
from tb_torchcompile_plugin.analysis.runtime.source_lines import line_launches
from tb_torchcompile_plugin.profile.gpu.captures import graph_origins
from tb_torchcompile_plugin.profile.profile import Profile
from traces import Event, frame, kernel, slice_, write_trace

REAL = Path(__file__).parents[1] / "data" / "2.11.0" / "engine"
BATCH = "execute_context_0(0)_generation_{0}({0})"


def test_kernels_have_the_operator_that_launched_them_outside_of_graphs() -> None:
    """Before each capture the program ran the model once more, and those launches have GPU records."""
    (span,) = spans_in(REAL)
    names, code = span.trace.names, span.of(graph_origins).code
    joined = {
        (names[span.trace.name[row]], span.of(graph_origins).origins[code[row]].operator)
        for row in (code >= 0).nonzero()[0]
    }
    ran = set()
    for _, read in span.captures:
        trace = read()
        for row in trace.select(cat="kernel"):
            ran.add((trace.names[trace.name[row]], trace.names[trace.name[trace.op_of()[row]]]))
    assert len(joined) > 10 and joined <= ran
    rows = {row.name: row for row in span.of(kernel_table).rows}
    (head,) = (row for name, row in rows.items() if row.modules == ["Linear_16"])
    assert (head.aten_ops, head.source_lines, head.lines_from) == (["aten::mm"], ["engine.py:59"], "capture")
    assert {line.file for row in span.of(line_launches) for line in row.lines} == {"engine.py"}


def test_batches_by_size() -> None:
    (span,) = spans_in(REAL)
    rows = [
        (row.captured_size, row.requested, row.padded, row.graphs) for row in span.of(cuda_graphs).batches
    ]
    assert rows == [(None, "12", None, 0), (4, "3", 1, 1), (8, "5, 8", 1, 1)]
    assert [row.joined_percent for row in span.of(cuda_graphs).batches] == [None, 100.0, 100.0]


def _capture(*graphs: Sequence[str], label: str = "") -> list[Event]:
    """The capture of CUDA graphs by the modules that launch kernels, each with a function, a module and an operator."""
    events, ids = [], count(1)
    for number, modules in enumerate(graphs):
        at = 1000.0 * number
        if label:
            events.append(slice_(label, at, 900, "user_annotation"))
        events.append(slice_("cudaStreamBeginCapture", at + 1, 1, "cuda_runtime", correlation=next(ids)))
        for place, module in enumerate(modules):
            begin = at + 10 + 10 * place
            events.append(frame("model.py(7): forward", begin, 9))
            events.append(frame(f"nn.Module: {module}", begin + 1, 7))
            events.append(slice_("aten::mm", begin + 2, 5))
            events.append(slice_("cudaLaunchKernel", begin + 3, 1, "cuda_runtime", correlation=next(ids)))
        # work of another thread, which runs at once
        events.append(slice_("cudaLaunchKernel", at + 700, 1, "cuda_runtime", 101, correlation=5000 + number))
        events.append(kernel("other", at + 702, 3, correlation=5000 + number))
        events.append(slice_("cudaStreamEndCapture", at + 800, 1, "cuda_runtime", correlation=next(ids)))
    return events


def _replays(size: int, *kernels: int, **args: Sequence[Any]) -> list[Event]:
    """One batch that replays graphs of so many kernels. args: of the kernels of each graph, in order of time."""
    events = [slice_(BATCH.format(size), 0, 500, "user_annotation")]
    for number, many in enumerate(kernels):
        events.append(slice_("cudaGraphLaunch", 10 + number, 1, "cuda_runtime", correlation=900 + number))
        for place in range(many):
            own = {name: values[place] for name, values in args.items()}
            start = 100 + 100 * number + 10 * place
            event = kernel("gemm", start, 8, correlation=900 + number, stream=own.get("stream", 7))
            events.append(event | {"args": event["args"] | own})
    return events


def _span(folder: Path, replays: list[Event], captures: dict[str, list[Event]]) -> Profile:
    write_trace(folder, replays, "engine.1.pt.trace.json")
    for name, events in captures.items():
        path = folder / name
        write_trace(path.parent, events, path.name)
    (span,) = spans_in(folder)
    return span


def _modules(span: Profile) -> list[str | None]:
    """The module of each kernel in order of time, "" for an origin without one, None for no origin."""
    rows, answer = span.trace.select(cat="kernel"), span.of(graph_origins)
    rows = rows[span.trace.ts[rows].argsort()]
    return [answer.origins[code].module if code >= 0 else None for code in answer.code[rows].tolist()]


VLLM = "capture_traces/graph_capture_rank_0.1773709679453551615.pt.trace.json"
SGLANG = "graph_capture_profile/DecodeCudaGraphRunner_bs_{}_rank0.json"
WHOLE = "graph_capture_profile/cuda_graph_capture-DecodeCudaGraphRunner-TP-0.json"


@pytest.mark.parametrize(
    ("replays", "captures", "modules"),
    [
        (_replays(3, 2), {SGLANG.format(4): _capture("AB"), SGLANG.format(2): _capture("CD")}, ["A", "B"]),
        # pieces in their order, although all have one kernel
        (_replays(3, 1, 1), {VLLM: _capture("A", "B", label="capture_4_PIECEWISE")}, ["A", "B"]),
        # of one file with all sizes: as far as they agree
        (_replays(3, 2), {WHOLE: _capture("AB", "AC")}, ["A", ""]),
        (_replays(3, 2), {SGLANG.format(4): _capture("ABC")}, [None, None]),  # other launches
        # without node ids, streams have no order
        (_replays(3, 2, stream=[7, 8]), {SGLANG.format(4): _capture("AB")}, [None, None]),
        (
            _replays(3, 2, stream=[7, 8], **{"graph node id": [2, 1]}),
            {SGLANG.format(4): _capture("AB")},
            ["B", "A"],
        ),
        (_replays(3, 2, name=["attention", "mlp"]), {}, ["attention", "mlp"]),  # by torch's mark_kernels
    ],
    ids=["sizes", "pieces", "agreed", "count", "streams", "nodes", "marks"],
)
def test_layouts(
    tmp_path: Path, replays: list[Event], captures: dict[str, list[Event]], modules: list[str | None]
) -> None:
    assert _modules(_span(tmp_path, replays, captures)) == modules


@pytest.mark.parametrize(
    "damaged", [b"\x1f\x8b damaged", b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "na']
)
def test_a_damaged_capture_is_named_and_the_rest_is_shown(tmp_path: Path, damaged: bytes) -> None:
    captures = {SGLANG.format(2): _capture("AB"), SGLANG.format(4): _capture("AB")}
    _span(tmp_path, _replays(2, 2), captures)
    path = tmp_path / SGLANG.format(2)
    path.write_bytes(damaged)
    (span,) = spans_in(tmp_path)
    (notice,) = span.of(kernel_table).warnings
    assert notice.file == str(path) and notice.kept
    assert _modules(span) == [None, None]


def test_a_trace_opened_by_itself_is_joined_and_a_capture_can_be_opened(tmp_path: Path) -> None:
    _span(tmp_path, _replays(3, 2), {SGLANG.format(4): _capture("AB")})
    (span,) = spans_in(tmp_path / "engine.1.pt.trace.json")
    assert _modules(span) == ["A", "B"]
    for alone in (tmp_path / SGLANG.format(4), tmp_path / "graph_capture_profile"):
        (capture,) = spans_in(alone)
        assert not capture.captures and Counter(capture.trace.names)["cudaStreamBeginCapture"]


def test_the_ledger_names_the_operator_where_no_stack_was_recorded(tmp_path: Path) -> None:
    events = [event for event in _capture("AB") if event["cat"] != "python_function"]
    replays = []
    for number in range(4):  # batches of which the GPU takes longer than the host
        call = slice_("cudaGraphLaunch", 500 * number + 10, 1, "cuda_runtime", correlation=number + 1)
        replays += [slice_(BATCH.format(3), 500 * number, 490, "user_annotation"), call]
        replays += [kernel("gemm", 1000 * number + at, 480, correlation=number + 1) for at in (50, 550)]
    span = _span(tmp_path, replays, {SGLANG.format(4): events})
    assert {row.site for row in span.of(ledger).rows if row.is_gpu} == {"aten::mm"}
