"""Lookups in the compile caches: whose they are, what they saved, and why they missed."""

import json
from pathlib import Path

import pytest

import compile_records
from compile_records import artifact, envelope, mark
from live import HAS_TORCH, run, summaries
from profiles import data_of
from recordings import Recording
from tb_torchcompile_plugin.analysis.compile.cache_lookups import FX_GRAPH_CACHE, CacheLookup, cache_lookups
from tb_torchcompile_plugin.compile_log.record import Record
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.reader.torch_trace.structured_log import read_log
from tb_torchcompile_plugin.torch_names.artifacts import title_of_cache

GRAPH, OTHER = "[g1] gm: GraphModule()\n\nreturn secret", "[g2] gm: GraphModule()\n\nreturn secret + 1"
SMALL = "[s1] example_inputs[0]: TensorMetadata(dtype=torch.float32, shape=torch.Size([8, 8]), stride=(8, 1))"
LARGE = "[s2] example_inputs[0]: TensorMetadata(dtype=torch.float32, shape=torch.Size([9, 9]), stride=(9, 1))"
PLAIN, TUNED = "[c0] inductor_config[max_autotune]: False", "[c1] inductor_config[max_autotune]: True"


def lookup(result: str, key: str, components: list[str], compile_id: str = "0/0", **more: object) -> Record:
    details = {"key": key, "components": components, "cache_status_detailed": f"full_{result}", **more}
    return artifact(f"fx_graph_cache_{result}", json.dumps(details), compile_id)


def looked_up(*records: Record, source: bool = True) -> list[CacheLookup]:
    return cache_lookups(data_of(summary_of(*records, source=source)))


def summary_of(*records: Record, source: bool = True) -> CompileSummary:
    begun = [Record(envelope("dynamo_start", {"stack": []}, name)) for name in ("0/0", "1/0", "2/0")]
    return compile_records.summary_of([*begun, *records], readable=True, source=source, payloads=True)


def test_a_miss_names_the_parts_of_the_key_that_are_new() -> None:
    first, second, third = looked_up(
        lookup("miss", "fa", [GRAPH, SMALL, PLAIN]),
        lookup("miss", "fb", [OTHER, LARGE, PLAIN], "1/0"),
        lookup("miss", "fc", [GRAPH, SMALL, TUNED], "2/0"),
    )
    assert first.why == "The cache has no entry for the first forward graph of this process"
    assert second.why == "New key. The nearest key, of 0/0, differs in the code of the graph, 1 input"
    assert third.why == "New key. The nearest key, of 0/0, differs in setting max_autotune (False → True)"


def test_the_same_key_again_is_no_new_key() -> None:
    rows = looked_up(lookup("miss", "fa", [GRAPH]), lookup("miss", "fa", [GRAPH], "1/0"))
    assert rows[1].why == "The key is that of 0/0, whose entry could not be used or was not stored yet"


def test_a_key_whose_parts_torch_does_not_tell() -> None:
    rows = looked_up(lookup("miss", "fa", []), lookup("miss", "fb", [], "1/0"))
    assert rows[1].why == "The cache has no entry with its key. torch does not record the parts of this key"


def test_a_bypass_and_guards_that_do_not_hold() -> None:
    reason = {"cache_bypass_reason": "Won't cache a graph with fakify_first_call enabled", "key": None}
    rows = looked_up(
        artifact("aotautograd_cache_bypass", json.dumps(reason)),
        lookup("miss", "fa", [GRAPH], cache_status_detailed="guard_miss"),
        lookup("hit", "fb", [OTHER], "1/0", time_saved_ns=2_000_000_000),
    )
    assert rows[0].why == "The cache was bypassed: Won't cache a graph with fakify_first_call enabled"
    assert rows[1].why == ("An entry has this key, but its guards on symbolic shapes fail for these sizes")
    assert (rows[2].why, rows[2].time_saved_s) == (None, 2.0)


def test_a_backward_inside_its_frame_is_a_backward() -> None:
    name = "compile_fx.<locals>.bw_compiler"
    rows = looked_up(
        mark("B", "entire_frame_compile", 0),
        lookup("miss", "fa", [GRAPH]),
        mark("B", name, 10),
        lookup("miss", "fb", [GRAPH, SMALL]),
        mark("E", name, 20),
        mark("E", "entire_frame_compile", 30),
    )
    assert [row.direction for row in rows] == ["forward", "backward"]
    assert rows[1].why == "The cache has no entry for the first backward graph of this process"


def test_capture_summary_keeps_names_and_no_values() -> None:
    summary = summary_of(
        lookup("miss", "fa", [GRAPH, SMALL, PLAIN]),
        lookup("miss", "fb", [OTHER, LARGE, TUNED], "1/0"),
        source=False,
    )
    assert b"secret" not in summary.SerializeToString()
    rows = cache_lookups(data_of(summary))
    assert (rows[1].why or "").endswith(
        "of 0/0, differs in the code of the graph, 1 input, setting max_autotune"
    )


def test_every_lookup_of_a_recording_leads_to_the_text_of_its_record(recording: Recording) -> None:
    (log,) = recording("breaks").glob("*.log")
    summary = read_log(str(log))
    rows = cache_lookups(data_of(summary))
    assert [row.artifact is not None for row in rows] == [True] * 14
    for row in rows:
        assert row.artifact is not None
        text = summary.artifacts[row.artifact]
        assert (text.key.compile_id, text.key.epoch) == (row.compile_id, row.epoch)
        assert row.cache == title_of_cache(text.name.removesuffix(f"_cache_{row.result}"))


def test_the_graphs_of_ddp_are_told_apart(recording: Recording) -> None:
    """4/1 compiles its backwards inside the frame; DDPOptimizer made two graphs of it."""
    log = next(iter(sorted(recording("ddp").glob("*rank_0*.log"))))
    graphs = [row for row in cache_lookups(data_of(read_log(str(log)))) if row.cache == FX_GRAPH_CACHE]
    assert [(row.compile_id, row.direction, row.graph) for row in graphs] == [
        *[("4/0", "forward", 0), ("4/0", "forward", 1), ("4/0", "backward", 0), ("4/0", "backward", 1)],
        *[("4/1", "forward", 0), ("4/1", "backward", 0), ("4/1", "forward", 1), ("4/1", "backward", 1)],
    ]


LIVE = """
    import torch
    import torch._inductor.config as config
    from tb_torchcompile_plugin import CompileRecorder

    def f(x):
        return torch.sin(x) + 1

    with CompileRecorder("logs"):
        torch.compile(f)(torch.ones(8))
        torch._dynamo.reset()
        with config.patch(epilogue_fusion=False):
            torch.compile(f)(torch.ones(8))
"""


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed; it is in the dev extra")
@pytest.mark.torch
def test_a_setting_that_was_changed_is_named(tmp_path: Path) -> None:
    run(LIVE, tmp_path)
    rows = [
        row for row in cache_lookups(data_of(summaries(tmp_path / "logs")[-1])) if row.cache == FX_GRAPH_CACHE
    ]
    assert [row.why for row in rows] == [
        "The cache has no entry for the first forward graph of this process",
        "New key. The nearest key, of 0/0, differs in setting epilogue_fusion (True → False)",
    ]
