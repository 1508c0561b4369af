"""What torch 2.14 records is read whole: steps, kernels with their lines, collectives and compilations of real runs."""

import pytest

from recordings import Recording
from tb_torchcompile_plugin.api.report import Report, SpanReport, Worker, all_warnings, read_report

NAMES = ("compiled_loop", "two_handlers", "gloo_groups")


def read(recording: Recording, name: str) -> Report:
    return read_report(str(recording(name)))


def span_of(worker: Worker) -> SpanReport:
    (span,) = worker.spans
    assert isinstance(span, SpanReport)
    return span


@pytest.mark.parametrize("name", NAMES)
def test_all_of_it_is_understood(recording: Recording, name: str) -> None:
    report = read(recording, name)
    assert not list(all_warnings(report))
    for worker in report.runs[0].workers:
        assert worker.compile and worker.compile.unreadable_records == 0
        assert worker.compile.environment.torch_version == "2.14.1+cu130"


def test_steps_kernels_and_compilations_of_a_loop(recording: Recording) -> None:
    (worker,) = read(recording, "compiled_loop").runs[0].workers
    span = span_of(worker)
    assert [(row.name, row.wall_us) for row in span.steps] == [
        ("ProfilerStep#1", 1366.147),
        ("ProfilerStep#2", 20679403.206),
        ("ProfilerStep#3", 1471.773),
    ]
    launches = {(row.compile_id, row.name): row.launches for row in span.kernels}
    assert len(launches) == 9 and launches["0/0", "graph_0_cpp_fused_mean_mul_sub_1"] == 2
    assert all(count == (2 if compile_id == "0/0" else 1) for (compile_id, _), count in launches.items())
    assert [(row.compile_id, row.calls) for row in span.compiled_regions] == [("0/0", 2), ("0/1", 1)]
    assert worker.compile
    assert [
        (row.compile_id, row.direction, row.function, row.line, row.graph_ops, row.guards)
        for row in worker.compile.compilations
    ] == [
        ("0/0", "forward", "loss_of", 25, 7, 86),
        ("0/0", "backward", "loss_of", 25, None, None),
        ("0/1", "forward", "loss_of", 25, 7, 86),
        ("0/1", "backward", "loss_of", 25, None, None),
    ]
    looked = [(one.cache, one.result) for one in worker.compile.compilations[0].cache]
    assert looked == [("aotautograd", "miss"), ("fx_graph", "miss")]
    (again,) = worker.compile.recompiles
    assert again.reasons == ["0/0: tensor 'x' size mismatch at index 0. expected 16, actual 24"]


def test_torchs_own_handler_in_the_same_chain(recording: Recording) -> None:
    """One trace, whichever handler wrote it, and what was compiled beside it; each kernel with its lines."""
    folder = recording("two_handlers")
    rows = sorted(path.name.split(".", 2)[2] for path in folder.iterdir())
    assert rows == ["pt.compile.pb", "pt.trace.json"]
    (worker,) = read(recording, "two_handlers").runs[0].workers
    span = span_of(worker)
    assert [(row.name, row.wall_us) for row in span.steps] == [
        ("ProfilerStep#1", 163.148),
        ("ProfilerStep#2", 99.351),
    ]
    (kernel,) = span.kernels
    assert (kernel.name, kernel.compile_id, kernel.launches) == ("graph_0_cpp_fused_div_relu_sum_0", "0/0", 2)
    values = sorted(line.rpartition("/")[2] for line in kernel.source_lines)
    assert values == ["program.py:27", "program.py:28"]
    assert worker.compile
    (row,) = worker.compile.compilations
    assert (row.compile_id, row.function, row.line, row.graph_ops, row.guards) == ("0/0", "scaled", 25, 4, 11)


def test_collectives_of_two_groups_that_gloo_does_not_tell_apart(recording: Recording) -> None:
    """Six calls of each rank are told; of which group each is nothing tells, so that none is matched."""
    (run,) = read(recording, "gloo_groups").runs
    assert run.job and run.job.ranks == 2
    assert "0 calls of collectives were matched across ranks. 12 could not" in run.job.basis
    rows = [(row.rank, row.host, row.communication_us) for row in run.job.by_rank]
    assert rows == [(0, "vm", 80426.583), (1, "vm", 7946.148)]
    assert all(row.communication_us == row.unmatched_us for row in run.job.by_rank)
    assert [(worker.rank, [row.name for row in span_of(worker).steps]) for worker in run.workers] == [
        (rank, ["ProfilerStep#1", "ProfilerStep#2"]) for rank in (0, 1)
    ]
    for worker in run.workers:
        assert worker.compile and [row.function for row in worker.compile.compilations] == ["scaled"]
