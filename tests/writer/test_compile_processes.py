"""Compilation in more than one process, or in one that dies: what each leaves behind, under a real torch."""

import re
import signal
from pathlib import Path

import pytest

from live import needs_torch, run, run_all, summaries, torch_before
from profiles import data_of
from tb_torchcompile_plugin.analysis.compile.compilation_details import compilation
from tb_torchcompile_plugin.analysis.compile.compilations import compilations, problems
from tb_torchcompile_plugin.analysis.compile.recompiles import recompiled_frames, sharing
from tb_torchcompile_plugin.analysis.runtime.span_report import compile_report
from tb_torchcompile_plugin.api.report import SpanReport, read_report, whole_report
from tb_torchcompile_plugin.api.session import Session

pytestmark = needs_torch

KILLED = """
    import os, signal, torch
    from torch.profiler import ProfilerActivity, profile, schedule
    from tb_torchcompile_plugin import tensorboard_trace_handler

    operations = [torch.sin, torch.cos, torch.tan, torch.exp, torch.relu]

    def compiled(n):
        operation = operations[n]
        return torch.compile(lambda x: operation(x), backend="aot_eager")

    handler = tensorboard_trace_handler("logs", worker_name="w")
    cycle = schedule(wait=0, warmup=1, active=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=cycle, on_trace_ready=handler) as p:
        for step in range(4):
            compiled(step)(torch.ones(4))
            p.step()
    compiled(4)(torch.ones(4))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_loses_what_was_compiled_after_the_last_cycle(tmp_path: Path) -> None:
    """The summary of each cycle is on disk when the handler returns; nothing can be written after SIGKILL."""
    statuses, printed = run_all(KILLED, tmp_path, [[]])
    assert statuses == [-signal.SIGKILL], printed
    written = summaries(tmp_path / "logs")
    assert len(written) == 2 and len(written[-1].compilations) == 4
    assert not list((tmp_path / "logs").glob("*.tmp"))


RANK = """
    import sys, torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.profiler import ProfilerActivity, profile
    from tb_torchcompile_plugin import tensorboard_trace_handler

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(600, 600) for _ in range(2))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x).relu()
            return x

    rank = int(sys.argv[1])
    dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
    handler = tensorboard_trace_handler("logs")
    model = DistributedDataParallel(Net(), bucket_cap_mb=1)
    compiled = torch.compile(model, backend="aot_eager")
    sizes = (8, 6) if rank == 0 else (8, 8)
    with profile(activities=[ProfilerActivity.CPU], on_trace_ready=handler):
        for size in sizes:
            compiled(torch.ones(size, 600)).sum().backward()
    dist.destroy_process_group()
"""


def test_two_ranks_are_two_workers_with_their_own_recompiles(tmp_path: Path) -> None:
    """Rank 0 meets a second size and compiles again; rank 1 does not. DDPOptimizer splits the graph at its buckets."""
    statuses, printed = run_all(RANK, tmp_path, [[str(rank), str(tmp_path / "store")] for rank in (0, 1)])
    assert statuses == [0, 0], printed
    session = Session([("", str(tmp_path / "logs"))])
    (run,) = whole_report(session).runs
    by_rank = {worker.rank: worker.compile for worker in run.workers}
    assert set(by_rank) == {0, 1}
    first, second = by_rank[0], by_rank[1]
    assert first and second
    assert (first.environment.rank, first.environment.world_size) == (0, 2)
    assert len(first.recompiles) > 0 and len(second.recompiles) == 0
    assert any(guard.old == "8" and guard.new == "6" for row in first.recompiles for guard in row.guards)
    _check_buckets(session, run.run, [worker.worker for worker in run.workers])


def _check_buckets(session: Session, run_name: str, workers: list[str]) -> None:
    """Two buckets of gradients: two graphs of one compile id, each with its own lazily compiled backward."""
    for worker in workers:
        flat = session.compile_data(run_name, worker).of(compilations)
        (split,) = {
            row.compile_id for row in flat if row.function == "forward" and row.compile_id.endswith("/0")
        }
        rows = [row.direction for row in flat if row.compile_id == split]
        assert rows == ["forward", "backward", "backward"]
        texts = compilation(session.compile_data(run_name, worker), 0, split).artifacts
        titles = [text.title for text in texts if text.title.startswith("DDP: graph of one bucket")]
        assert titles == ["DDP: graph of one bucket: submod_0", "DDP: graph of one bucket: submod_1"]
        assert [text.direction for text in texts if text.name == "aot_backward_graph"] == ["backward"] * 2


REGIONAL = """
    import torch
    from tb_torchcompile_plugin import CompileRecorder

    class Block(torch.nn.Module):
        def __init__(self, index):
            super().__init__()
            self.linear, self.index = torch.nn.Linear(8, 8 + index // WIDER), index

        def forward(self, x):
            return self.linear(x)[:, :8] * FACTOR

    class Other(Block):
        pass

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = torch.nn.ModuleList(KIND(index) for index in range(7))

        def forward(self, x):
            for block in (*self.blocks[:4], self.blocks[6]):
                x = block(x)

    model = Model()
    torch._dynamo.config.recompile_limit = 3
    for block in model.blocks[:6]:
        block.compile(backend="aot_eager")
    with CompileRecorder("logs"):
        model(torch.ones(2, 8, requires_grad=True))
"""


@pytest.mark.skipif(torch_before("2.8"), reason="torch 2.6 writes guards on modules in other words")
@pytest.mark.parametrize(
    ("factor", "wider", "kind", "versions", "differences"),
    [
        ("2", "9", "Block", 1, ()),
        ("self.index", "9", "Block", 3, ("self.index",)),
        ("2", "3", "Block", 2, ("the size of self.linear.bias",)),
        ("2", "9", "(Block, Other)[index % 2]", 2, ("the type of self",)),
    ],
)
def test_modules_of_one_class_share_compilations_unless_they_differ(
    tmp_path: Path, factor: str, wider: str, kind: str, versions: int, differences: tuple[str, ...]
) -> None:
    """Of six compiled blocks four are called: the sentence claims nothing of how many ran."""
    run(REGIONAL.replace("FACTOR", factor).replace("WIDER", wider).replace("KIND", kind), tmp_path)
    (summary,) = summaries(tmp_path / "logs")
    (frame,) = data_of(summary).of(recompiled_frames)
    assert (frame.module, frame.function) == ("Block", "forward")
    assert (frame.modules, len(frame.versions), frame.differences) == (6, versions, differences)
    assert [int(number) for number in re.findall(r"\d+", sharing(frame))] == [6, frame.line, versions]


POOL = """
    import torch
    import torch._inductor.config as config
    from tb_torchcompile_plugin import CompileRecorder

    with CompileRecorder("logs"), config.patch(compile_threads=2):
        torch.compile(lambda x: torch.sin(x) + 1)(torch.ones(8))
"""


def test_the_time_of_compile_workers_is_apart(tmp_path: Path) -> None:
    """inductor's pool compiles C++ while the frame waits: their time is not the frame's a second time."""
    run(POOL, tmp_path)
    (summary,) = summaries(tmp_path / "logs")
    workers = [span for span in summary.spans if span.worker_process]
    assert workers and {span.name for span in workers} == {"compile_file"}
    (frame,) = summary.compilations
    assert sum(phase.exclusive_ns for phase in frame.phases) == frame.duration_ns
    assert not {span.thread for span in workers} & {frame.thread}


LIMITED = """
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule
    from tb_torchcompile_plugin import tensorboard_trace_handler

    config = torch._dynamo.config
    config.specialize_float = True  # torch 2.6 takes a float for a symbol
    setattr(config, "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit", 2)
    compiled = torch.compile(lambda x, n: x * n, backend="aot_eager", dynamic=False)
    cycle = schedule(wait=0, warmup=1, active=3)
    handler = tensorboard_trace_handler("profiled", worker_name="w")
    with profile(activities=[ProfilerActivity.CPU], schedule=cycle, on_trace_ready=handler) as p:
        for n in ("a", "a", "b", "c"):  # steps 1 to 3 are profiled
            compiled(torch.ones(4), {"a": 0.5, "b": 1.5, "c": 2.5}[n])
            p.step()
"""


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that recompiles in its profiled steps up to the limit, as a trace with a summary and as a log."""
    folder = tmp_path_factory.mktemp("limited")
    run(LIMITED, folder, TORCH_TRACE=str(folder / "log"))
    return folder


def test_profiled_steps_that_contain_compile_time_are_named(limited: Path) -> None:
    (run,) = read_report(str(limited / "profiled")).runs
    (span,) = run.workers[0].spans
    assert isinstance(span, SpanReport)
    overlap = span.compile_overlap
    assert overlap is not None and overlap.inside_us
    assert overlap.window == "ProfilerStep#2 and ProfilerStep#3"
    again = {row.compile_id: row.step for row in span.recompiles.recompiles}
    assert again["0/1"] == "ProfilerStep#2"


def test_a_log_shows_the_limit_that_tlparse_hides(limited: Path) -> None:
    for folder in ("log", "profiled"):
        session = Session([("", str(limited / folder))])
        ((run_name, worker),) = [(r.run, w.worker) for r in session.runs().runs for w in r.workers]
        (problem,) = session.compile_data(run_name, worker).of(problems)
        assert (problem.kind, problem.compile_id, problem.ran_eager) == ("limit", "0/2", True)
        (frame,) = session.compile_data(run_name, worker).of(compile_report).recompiled_frames
        assert (frame.limit, frame.limit_hit) == (2, "0/2")
