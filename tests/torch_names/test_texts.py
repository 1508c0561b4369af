"""Torch's texts: tracebacks, guards, parts of cache keys, definitions in output code."""

from __future__ import annotations

from tb_torchcompile_plugin.torch_names import artifacts as output_code
from tb_torchcompile_plugin.torch_names import caches as cache_keys
from tb_torchcompile_plugin.torch_names import graph_breaks as guards
from tb_torchcompile_plugin.torch_names import python_frames as tracebacks

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
    places = list(tracebacks.places(tracebacks.first_traceback(TRACEBACK)))
    assert places == [
        ("/home/me/train.py", 12, "main", "loss = model(x)"),
        ("/home/me/model.py", 7, "<graph break in forward>", ""),
    ]
    assert [place.file for place in tracebacks.places(TRACEBACK)][-1] == "/home/me/later.py"
    assert list(tracebacks.places("no traceback")) == [] and tracebacks.first_traceback("") == ""


def test_a_frame_in_compilation_metrics() -> None:
    text = "Line: 12, Name: main, Filename: /home/me/train.py"
    assert tracebacks.summary_place(text) == ("/home/me/train.py", 12, "main", "")
    assert tracebacks.summary_place("main") is None


def test_where_a_guard_was_made() -> None:
    assert guards.guarded_at("L['x'].size()[0] == 3  # y = x + 1  # me/train.py:12 in main") == (
        "me/train.py",
        12,
    )
    reason = "L['x'] == 3  # …ain.py:1 in f\n  File \"/home/me/train.py\", line 12, in main"
    assert guards.guarded_at(reason) == ("/home/me/train.py", 12)
    assert guards.guarded_at("L['x'] == 3") is None


def test_the_parts_of_a_cache_key() -> None:
    setting = "[f3a] inductor_config[max_autotune]: False"
    assert cache_keys.is_setting(setting) and not cache_keys.is_setting("[f3a] gm: <lambda>()")
    part = cache_keys.part_of(setting)
    assert part == ("f3a", "inductor_config[max_autotune]", "False")
    assert cache_keys.title_of(part.name) == "setting max_autotune" and cache_keys.title_of("new") == "new"
    assert cache_keys.is_input("example_inputs[0]") and not cache_keys.is_input("gm")
    assert cache_keys.part_of("no part") is None


def test_definitions_of_kernels() -> None:
    code = (
        "triton_poi_fused_0 = async_compile.triton('triton_poi_fused_0', '''src''')\n"
        'mine_0 = async_compile.triton("mine", """src""")\n'
        "triton_red_1 = async_compile.triton('triton_', '''src''')\n"
        "cpp_fused_2 = async_compile.cpp_pybinding(['float*'], '''src''')\n"
        "    not_at_the_beginning = async_compile.triton('a', '')\n"
        "async_compile.wait(globals())\n"
    )
    definitions = [(kernel.name, kernel.language) for kernel in output_code.kernel_definitions(code)]
    assert definitions == [
        ("triton_poi_fused_0", "triton"),
        ("mine", "triton"),
        ("triton_red_1", "triton"),
        ("cpp_fused_2", "cpp_pybinding"),
    ]
