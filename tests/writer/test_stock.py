"""Beside the stock tools: what the profiler's own tab lists, and what TORCH_TRACE writes, stay as they were."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

import demo
import live

pytestmark = [pytest.mark.torch, pytest.mark.slow]

# One program; the handler's home is the only difference. Both processes are called alike, as two runs of one job are.
PROGRAM = """
import torch
from torch.profiler import ProfilerActivity, profile, schedule
from {home} import tensorboard_trace_handler

handler = tensorboard_trace_handler({folder!r}, worker_name="worker")

@torch.compile
def f(x, flag):
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos() if flag else y

with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=0, active=2, repeat=2),
             on_trace_ready=handler, record_shapes=True) as profiler:
    for step in range(6):
        f(torch.ones(8), step % 2 == 0)
        profiler.step()
"""
HOMES = {"stock": "torch.profiler", "ours": "tb_torchcompile_plugin"}
VIEWS = "data/plugin/pytorch_profiler/"
RECORD = re.compile(r"^V\d{4} \S+ \d+ \S+\] (\{.*\})$")


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, `stock` and `ours`, each with the traces of two cycles; their logs are in `stock.log`, `ours.log`."""
    root = tmp_path_factory.mktemp("both")
    for name, home in HOMES.items():
        log, cache = str(root / f"{name}.log"), str(root / f"{name}.cache")
        program = PROGRAM.format(home=home, folder=str(root / "logdir" / name))
        live.run(program, root, TORCH_TRACE=log, TORCHINDUCTOR_CACHE_DIR=cache)
    return root / "logdir"


def test_both_write_files_of_the_same_names(logdir: Path) -> None:
    def shape(name: str) -> list[str]:
        """File names with their time stamps taken out; without the summaries that only ours writes."""
        names = (path.name for path in (logdir / name).iterdir() if not path.name.endswith(".pt.compile.pb"))
        return sorted(re.sub(r"\.\d{19}\.", ".TIME.", name) for name in names)

    assert shape("ours") == shape("stock") == ["worker.TIME.pt.trace.json"] * 2
    assert list((logdir / "ours").glob("worker.*.pt.compile.pb"))


def test_a_trace_names_itself_as_the_stock_one_does(logdir: Path) -> None:
    for path in logdir.glob("*/*.pt.trace.json"):
        assert json.loads(path.read_bytes())["traceName"] == str(path)


def test_the_profilers_own_tab_lists_both_alike(logdir: Path) -> None:
    pytest.importorskip("torch_tb_profiler", reason="the extra `profiler` is not installed")
    with demo.tensorboard(logdir) as (_, address):
        listed = dict(profiler_tab(f"{address}{VIEWS}"))
    assert set(listed) == set(HOMES)
    assert listed["ours"] == listed["stock"]
    assert [worker["worker"] for worker in listed["ours"]] == ["worker"]
    assert listed["ours"][0]["spans"] == ["1", "2"]


def profiler_tab(routes: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """(run, what is listed about each of its workers), asked as the profiler's own frontend asks."""
    deadline = time.monotonic() + demo.PATIENCE_S
    while (state := demo.fetch_json(f"{routes}runs"))["loading"] or len(state["runs"]) < len(HOMES):
        assert time.monotonic() < deadline
        time.sleep(0.3)
    for run in state["runs"]:
        views = demo.fetch_json(f"{routes}views?{urlencode({'run': run})}")
        workers = []
        for worker in demo.fetch_json(f"{routes}workers?{urlencode({'run': run, 'view': views[0]})}"):
            ids = {"run": run, "worker": worker}
            spans = demo.fetch_json(f"{routes}spans?{urlencode(ids)}")
            workers.append(
                {"worker": worker, "views": views, "spans": spans, "operators": operators(routes, ids)}
            )
        yield run, workers


def operators(routes: str, ids: dict[str, str]) -> list[tuple[str, int]]:
    """(name, calls) of the first span's operator table: what was recorded, without the times, which always differ."""
    query = urlencode({**ids, "span": "1", "view": "Operator", "group_by": "Operation"})
    table = demo.fetch_json(f"{routes}operation/table?{query}")["data"]
    return sorted((row["name"], row["calls"]) for row in table)


def test_nothing_of_torch_trace_is_lost(logdir: Path) -> None:
    stock, ours = (records(logdir.with_name(f"{name}.log")) for name in HOMES)
    assert stock == ours
    assert stock.count("chromium_event") > 50
    assert stock.count("inductor_output_code") == 2


def records(folder: Path) -> list[str]:
    """The kinds of the log's records in their order. Records that come once in a process are there too."""
    (log,) = folder.glob("dedicated_log_torch_trace_*.log")
    lines = (RECORD.match(line) for line in log.read_text(errors="replace").splitlines())
    return [kind(json.loads(line[1])) for line in lines if line]


def kind(record: dict[str, Any]) -> str:
    """A record's own key is the one that does not describe its circumstances."""
    circumstances = {"frame_id", "frame_compile_id", "attempt", "stack", "has_payload", "rank", "process"}
    (name,) = [
        key for key in record if key not in circumstances and not key.startswith("compiled_autograd")
    ] or ["?"]
    value = record[name]
    return f"{name}:{value['name']}" if name == "artifact" else name
