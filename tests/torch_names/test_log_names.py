"""Names of records, artifacts and failures as torch 2.4 to 2.14 write them."""

from __future__ import annotations

import pytest

from tb_torchcompile_plugin.torch_names import artifacts, records
from tb_torchcompile_plugin.torch_names import graph_breaks as failures


@pytest.mark.parametrize(
    ("exception", "reason", "limit"),
    [
        ("RecompileLimitExceeded", "", True),
        ("FailOnRecompileLimitHit", "recompile_limit reached with fail_on_recompile_limit_hit=True", True),
        ("CacheLimitExceeded", "", True),
        ("Unsupported", "cache_size_limit reached", True),
        ("Unsupported", "Dynamo recompile limit exceeded", True),
        ("Unsupported", "Data-dependent branching", False),
        ("BackendCompilerFailed", "backend='inductor' raised", False),
    ],
)
def test_a_frame_that_was_compiled_too_often(exception: str, reason: str, limit: bool) -> None:
    assert failures.is_limit(exception, reason) is limit


def test_words_around_cuda_graphs() -> None:
    text = "skipping cudagraphs due to skipping cudagraphs due to mutated inputs (1 instances). Found from : \n  File"
    assert failures.says_cudagraphs_are_skipped(text)
    assert failures.skip_reason(text) == "mutated inputs"
    assert not failures.says_cudagraphs_are_skipped("recording cudagraph tree for graph without symints")
    assert failures.exception_name("<class 'torch._dynamo.exc.Unsupported'>") == "Unsupported"
    assert failures.exception_name("Unsupported") == "Unsupported"


def test_kinds_and_ids_of_records() -> None:
    envelope = {
        "rank": 0,
        "frame_id": 3,
        "frame_compile_id": 1,
        "attempt": 0,
        "dynamo_start": {},
        "artifact": None,
    }
    assert records.kind_of(envelope) == "dynamo_start" and records.kind_of({"rank": 0}) == ""
    assert records.compile_id_of(envelope) == "3/1"
    assert records.compile_id_of({**envelope, "compiled_autograd_id": 2}) == "!2/3/1"
    assert records.compile_id_of({"compiled_autograd_id": 2}) == "!2" and records.compile_id_of({}) == ""


@pytest.mark.parametrize(
    ("name", "title", "language"),
    [
        ("dynamo_output_graph", "Dynamo graph", "python"),
        ("optimize_ddp_split_child_submod_0", "DDP: graph of one bucket: submod_0", "python"),
        ("fx_graph_cache_miss", "FX graph cache miss", "python"),
        ("dynamo_cpp_guards_str", "Guards", "text"),
        ("inductor_config", "Settings: inductor", "json"),
        ("forward_MODIFIED_BYTECODE", "Modified bytecode of forward", "text"),
        ("of_a_newer_torch", "of_a_newer_torch", "text"),
    ],
)
def test_titles_and_languages_of_artifacts(name: str, title: str, language: str) -> None:
    assert (artifacts.title_of(name), artifacts.language_of(name)) == (title, language)
    assert artifacts.language_of(name, "json") == "json"


def test_artifacts_among_records() -> None:
    assert artifacts.kind("torch_version") == "artifact:torch_version"
    assert artifacts.name_of("artifact:torch_version") == "torch_version" and artifacts.name_of("str") is None
    assert artifacts.is_cache_lookup(artifacts.cache_lookup("aotautograd", "hit"))
    assert (
        artifacts.is_backward("aot_backward_graph") is True
        and artifacts.is_backward("aot_joint_graph") is False
    )
    assert artifacts.is_backward("inductor_output_code") is None
    order = [
        "forward_ORIGINAL_BYTECODE",
        "dynamo_output_graph",
        "aot_joint_graph",
        "inductor_output_code",
        "guards",
    ]
    assert sorted(order, key=lambda name: (artifacts.stage_of(name), artifacts.place_in_stage(name))) == order
