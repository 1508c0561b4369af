"""Names of records, artifacts and failures as torch 2.4 to 2.14 write them."""

import pytest

from tb_torchcompile_plugin.torch_names import artifacts, caches, graph_breaks, python_frames, records


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
    assert graph_breaks.is_limit(exception, reason) is limit


def test_words_around_cuda_graphs() -> None:
    text = "skipping cudagraphs due to skipping cudagraphs due to mutated inputs (1 instances). Found from : \n  File"
    assert graph_breaks.is_cudagraph_skip(text)
    assert graph_breaks.short_skip_reason(text) == "mutated inputs"
    assert not graph_breaks.is_cudagraph_skip("recording cudagraph tree for graph without symints")
    assert graph_breaks.exception_name("<class 'torch._dynamo.exc.Unsupported'>") == "Unsupported"
    assert graph_breaks.exception_name("Unsupported") == "Unsupported"


def test_kinds_and_ids_of_records() -> None:
    envelope: dict[str, object] = {"rank": 0, "frame_id": 3, "frame_compile_id": 1, "attempt": 0}
    envelope |= {"dynamo_start": {}, "artifact": None}
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
    assert artifacts.artifact_kind("torch_version") == "artifact:torch_version"
    assert artifacts.artifact_name("artifact:torch_version") == "torch_version"
    assert artifacts.artifact_name("str") is None
    assert artifacts.is_cache_lookup(artifacts.cache_lookup("aotautograd", "hit"))
    names = ("aot_backward_graph", "aot_joint_graph", "inductor_output_code")
    assert [artifacts.is_backward(name) for name in names] == [True, False, None]
    order = ["forward_ORIGINAL_BYTECODE", "dynamo_output_graph", "aot_joint_graph", "inductor_output_code"]
    order.append("guards")
    assert sorted(order, key=lambda name: (artifacts.stage_of(name), artifacts.rank_in_stage(name))) == order


TRACEBACK = """\
from user code:
   File "no frame", line
  File "/home/me/train.py", line 12, in main
    loss = model(x)
           ^^^^^^^^
  File "/home/me/model.py", line 7, in <graph break in forward>
  [Previous line repeated 2 more times]

  File "/home/me/later.py", line 1, in of_another
"""


def test_the_frames_of_a_traceback_with_their_code() -> None:
    assert list(python_frames.traceback_frames(python_frames.first_traceback(TRACEBACK))) == [
        ("/home/me/train.py", 12, "main", "loss = model(x)"),
        ("/home/me/model.py", 7, "<graph break in forward>", ""),
    ]
    assert [place.file for place in python_frames.traceback_frames(TRACEBACK)][-1] == "/home/me/later.py"
    assert (
        list(python_frames.traceback_frames("no traceback")) == [] and python_frames.first_traceback("") == ""
    )


def test_a_frame_in_compilation_metrics() -> None:
    text = "Line: 12, Name: main, Filename: /home/me/train.py"
    assert python_frames.frame_of_summary(text) == ("/home/me/train.py", 12, "main", "")
    assert python_frames.frame_of_summary("main") is None


def test_where_a_guard_was_made() -> None:
    guard = "L['x'].size()[0] == 3  # y = x + 1  # me/train.py:12 in main"
    assert graph_breaks.guarded_at(guard) == ("me/train.py", 12)
    reason = "L['x'] == 3  # …ain.py:1 in f\n  File \"/home/me/train.py\", line 12, in main"
    assert graph_breaks.guarded_at(reason) == ("/home/me/train.py", 12)
    assert graph_breaks.guarded_at("L['x'] == 3") is None


def test_the_parts_of_a_cache_key() -> None:
    setting = "[f3a] inductor_config[max_autotune]: False"
    assert caches.is_setting(setting) and not caches.is_setting("[f3a] gm: <lambda>()")
    part = caches.part_of(setting)
    assert part == ("f3a", "inductor_config[max_autotune]", "False")
    assert caches.title_of(part.name) == "setting max_autotune" and caches.title_of("new") == "new"
    assert caches.is_input("example_inputs[0]") and not caches.is_input("gm")
    assert caches.part_of("no part") is None


def test_definitions_of_kernels() -> None:
    code = (
        "triton_poi_fused_0 = async_compile.triton('triton_poi_fused_0', '''src''')\n"
        'mine_0 = async_compile.triton("mine", """src""")\n'
        "triton_red_1 = async_compile.triton('triton_', '''src''')\n"
        "cpp_fused_2 = async_compile.cpp_pybinding(['float*'], '''src''')\n"
        "    not_at_the_beginning = async_compile.triton('a', '')\n"
        "async_compile.wait(globals())\n"
    )
    assert [(kernel.name, kernel.language) for kernel in artifacts.kernel_definitions(code)] == [
        ("triton_poi_fused_0", "triton"),
        ("mine", "triton"),
        ("triton_red_1", "triton"),
        ("cpp_fused_2", "cpp_pybinding"),
    ]


@pytest.mark.parametrize(
    ("reason", "explanation", "kind"),
    [
        ("Call to `torch._dynamo.graph_break()`", "User-inserted graph break. Message: None", "explicit"),
        ("'skip function graph_break in file /x/torch/_dynamo/decorators.py'", "", "explicit"),
        ("Skip calling `torch.compiler.disable()`d function", "", "disabled"),
        ("call torch._dynamo.disable() wrapped function <function f>", "", "disabled"),
        (
            "Failed to trace builtin operator",
            "Dynamo does not know how to trace builtin operator `print` with",
            "print",
        ),
        (
            "Failed to trace builtin operator",
            "Dynamo does not know how to trace builtin operator `open`",
            "builtin",
        ),
        ("call_function BuiltinVariable(print) [ConstantVariable()] {}", "", "print"),
        ("logging.Logger method not supported for non-export cases", "", "print"),
        ("Logger not supported for non-export cases", "", "print"),
        (
            "Unsupported method call",
            "Dynamo does not know how to trace method `log` of class `Logger`",
            "call",
        ),
        (
            "Attempted to call function marked as skipped",
            "Dynamo developers have marked `warnings.warn`",
            "print",
        ),
        ("Unsupported Tensor.item() call with capture_scalar_outputs=False", "", "item"),
        ("Tensor.item", "", "item"),
        (
            "Data-dependent branching",
            "Detected data-dependent branching (e.g. `if x.sum().item() > 0`)",
            "data_dependent",
        ),
        ("generic_jump TensorVariable()", "", "data_dependent"),
        ("dynamic shape operator: aten.nonzero.default; to enable, set …", "", "data_dependent"),
        ("Attempted to call function marked as skipped", "", "call"),
        ("Unsupported context manager", "", "context_manager"),
        ("Observed exception", "", "exception"),
        ("Attempt to trace generator", "", "generator"),
        ("Operator does not support running with fake tensors", "", "operator"),
        ("something torch has not said yet", "", "other"),
        ("", "", "other"),
    ],
)
def test_a_reason_has_a_kind(reason: str, explanation: str, kind: str) -> None:
    assert graph_breaks.break_kind(reason, explanation) == kind
