"""The price of graph breaks under a real torch: it grows with their number, and equals the trace's own gaps."""

import json
from itertools import pairwise

import msgspec
import pytest

import live
from tb_torchcompile_plugin.api.report import read_report

pytestmark = [pytest.mark.torch, pytest.mark.slow]

PROGRAM = """
import os
import torch
from torch.profiler import ProfilerActivity, profile, schedule
from tb_torchcompile_plugin import tensorboard_trace_handler

def program(breaks):
    body = ["def f(x):", "    x = x.sin()"]
    for _ in range(breaks):
        body += ["    torch._dynamo.graph_break()", "    x = x.cos() + 1"]
    path = f"{os.getcwd()}/program_{breaks}.py"
    with open(path, "w") as file:
        file.write("import torch\\n" + "\\n".join([*body, "    return x"]))
    scope = {}
    exec(compile(open(path).read(), path, "exec"), scope)
    return torch.compile(scope["f"], backend="aot_eager")

for breaks in (0, 1, 2, 4, 8):
    torch._dynamo.reset()
    handler = tensorboard_trace_handler("logs", worker_name=f"breaks_{breaks}")
    f = program(breaks)
    steps = schedule(wait=1, warmup=1, active=8)
    with profile(activities=[ProfilerActivity.CPU], schedule=steps, on_trace_ready=handler) as p:
        for _ in range(10):
            f(torch.ones(64, requires_grad=True))
            p.step()
"""


@pytest.fixture(scope="module")
def spans(tmp_path_factory):
    """number of breaks in the function → its span, and the raw slices of its trace."""
    folder = tmp_path_factory.mktemp("sweep")
    live.run(PROGRAM, folder)
    (run,) = read_report(str(folder / "logs")).runs
    by_worker = {}
    for worker in run.workers:
        span = json.loads(msgspec.json.encode(worker.spans[0]))
        events = json.loads((folder / "logs" / span["trace_file"]).read_bytes())["traceEvents"]
        by_worker[int(worker.worker.split("_")[1])] = (span, events)
    return by_worker


def test_every_break_is_a_site_executed_once_a_step(spans):
    for breaks, (span, _) in spans.items():
        priced = [site for site in span["graph_break_sites"] if site["calls"]]
        assert len(priced) == breaks
        assert all(site["calls_per_step"] == 1 and site["reason"] for site in priced)


def test_the_total_price_equals_the_gaps_between_graphs_in_the_trace(spans):
    for span, events in spans.values():
        graphs = sorted(
            (round(event["ts"] * 1000), round(event["dur"] * 1000))
            for event in events
            if event["ph"] == "X" and event["name"] == "CompiledFunction"
        )
        regions = [
            event for event in events if str(event.get("name", "")).startswith("Torch-Compiled Region")
        ]
        outermost = [one for one in regions if not any(_inside(one, other) for other in regions)]
        gaps = 0
        for frame in outermost:
            start, end = frame["ts"] * 1000, (frame["ts"] + frame["dur"]) * 1000
            inside = [graph for graph in graphs if start <= graph[0] < end]
            gaps += sum(after[0] - before[0] - before[1] for before, after in pairwise(inside))
        assert sum(row["host_us"] for row in span["graph_break_costs"]) == pytest.approx(
            gaps / 1000, abs=0.05
        )


def test_more_breaks_cost_more(spans):
    """The call of median cost: the others may also hold whatever else the machine did."""

    def median_call(span):
        chain = span["break_chain"]
        return sum(link["duration_us"] for link in chain["links"] if link["kind"] == "break") if chain else 0

    costs = [median_call(spans[breaks][0]) for breaks in (0, 1, 2, 4, 8)]
    assert costs[0] == 0 < min(costs[1:]) and costs[-1] > costs[1]


def _inside(one, other):
    return one is not other and other["ts"] <= one["ts"] < other["ts"] + other["dur"]
