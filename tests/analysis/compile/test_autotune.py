"""Autotuning as torch tells it: spans, kernel information, and statistics of the templates that were tried."""

import json
from typing import Any

from compile_records import artifact, envelope, mark, summary_of
from profiles import data_of
from recordings import Recording
from tb_torchcompile_plugin.analysis.compile.compile_time import Autotune, autotune, autotuning_headline
from tb_torchcompile_plugin.compile_log.record import Record
from tb_torchcompile_plugin.compile_log.summary import load
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.torch_trace.structured_log import read_log

CODE = """# AOT ID: ['0_forward']
triton_poi_fused_gelu_0 = async_compile.triton('triton_poi_fused_gelu_0', '''
''', device_str='cuda')
triton_red_fused_sum_1 = async_compile.triton('triton_red_fused_sum_1', '''
''', device_str='cuda')
"""
# What torch 2.13 says of two matmuls that max-autotune tried templates for.
STATS = {"num_choices": 19, "num_triton_choices": 18, "best_kernel": "triton_mm_4", "best_time": 0.25,
         "best_kernel_desc": "ACC_TYPE='tl.float32', BLOCK_K=32, BLOCK_M=64"}  # fmt: skip


SHAPES: dict[str, Any] = {"autotune_shape": "64x128, 128x32"}
TUNING, TEMPLATES = "CachingAutotuner.benchmark_all_configs", "mm_template_autotuning"


def compile_data(records: list[Record]) -> CompileData:
    return data_of(summary_of(records, readable=True))


def rows(records: list[Record]) -> list[Autotune]:
    return compile_data(records).of(autotune)


def span(name: str, begin: int, end: int, results: dict[str, Any] | None = None, **args: Any) -> list[Record]:
    """A span from … to (µs), whose end may tell of results."""
    return [mark("B", name, begin, **args), mark("E", name, end, **args, **(results or {}))]


def compiling(*inside: Record) -> list[Record]:
    return [mark("B", "entire_frame_compile", 0), *inside, mark("E", "entire_frame_compile", 1000)]


def code_and(info: dict[str, Any], code: str = CODE) -> list[Record]:
    written = Record(envelope("inductor_output_code", {"filename": "/c.py"}), code)
    return [written, artifact("triton_kernel_info", json.dumps(info))]


def test_a_kernel_that_was_tuned_when_it_first_ran() -> None:
    info = {"triton_poi_fused_gelu_0": {"autotune_cache_state": "miss", "num_configs": 5}}
    tuned = span(TUNING, 5000, 7500, kernel_name="triton_poi_fused_gelu_0")
    data = compile_data([*compiling(*code_and(info)), *tuned])
    (row,) = data.of(autotune)
    assert data.of(autotuning_headline).startswith("1 choice among 5 configurations took 2.50 ms")
    assert (row.kernel, row.time_s, row.configs, row.where) == ("triton_poi_fused_gelu_0", 0.0025, 5, "run")
    assert (row.choice, row.cache, row.direction) == (None, "miss", "forward")


def test_templates_that_were_tried_while_compiling() -> None:
    stats = {"autotune_choices_stats": json.dumps(STATS)}
    precompiled = span("mm_template_precompiling", 10, 110, **SHAPES)
    (row,) = rows(compiling(*precompiled, *span(TEMPLATES, 110, 310, stats, **SHAPES)))
    assert (row.kernel, row.time_s, row.configs) == ("mm (64x128, 128x32)", 0.0003, 19)
    assert row.choice == "triton_mm_4: ACC_TYPE='tl.float32', BLOCK_K=32, BLOCK_M=64"
    assert (row.best_time_us, row.where) == (250.0, "compile")


def test_the_same_shapes_tuned_again_are_another_choice() -> None:
    marks = []
    for at, winner in ((10, "triton_mm_4"), (300, "mm")):
        stats = {"autotune_choices_stats": json.dumps({**STATS, "best_kernel": winner})}
        marks += span(TEMPLATES, at, at + 100, stats, **SHAPES)
    choices = rows(compiling(*marks))
    assert [row.time_s for row in choices] == [0.0001, 0.0001]
    assert [str(row.choice).split(":")[0] for row in choices] == ["triton_mm_4", "mm"]


def test_the_same_operator_with_other_shapes_is_another_choice() -> None:
    marks = []
    for at, shape in ((10, "64x64, 64x64"), (30, "8x8, 8x8")):
        marks += span(TEMPLATES, at, at + 10, autotune_shape=shape)
    assert [row.kernel for row in rows(compiling(*marks))] == ["mm (64x64, 64x64)", "mm (8x8, 8x8)"]


def test_a_kernel_whose_configuration_the_cache_had() -> None:
    info = {"autotune_cache_state": "hit", "best_config": [["XBLOCK", 128], ["num_warps", 4]]}
    (row,) = rows(compiling(*code_and({"triton_poi_fused_gelu_0": info})))
    assert (row.kernel, row.time_s, row.cache) == ("triton_poi_fused_gelu_0", None, "hit")
    assert row.choice == "XBLOCK=128, num_warps=4"


def test_a_kernel_with_a_single_configuration_is_no_choice() -> None:
    info = {"autotune_cache_state": "only 1 config", "only_config": [["XBLOCK", 1]]}
    assert rows(compiling(*code_and({"triton_red_fused_sum_1": info}))) == []


def test_spans_inside_one_another_count_once() -> None:
    begin, end = span("CachingAutotuner.coordinate_descent_tuning", 10, 60)
    choices = rows(compiling(begin, *span("CachingAutotuner.benchmark_one", 20, 30), end))
    assert [(row.kernel, row.time_s) for row in choices] == [("Triton kernel (not named by torch)", 0.00005)]


def test_a_users_own_kernel_is_one_row_under_its_name() -> None:
    """torch 2.11 calls it by the variable of the generated code when it tunes it, and by its name elsewhere."""
    code = "my_scale_kernel_0 = async_compile.triton('my_scale_kernel', '''\n''', device_str='cuda')\n"
    info = {"my_scale_kernel": {"autotune_cache_state": "miss", "num_configs": 2}}
    tuned = span(TUNING, 5000, 6000, kernel_name="my_scale_kernel_0")
    (row,) = rows([*compiling(*code_and(info, code)), *tuned])
    assert (row.kernel, row.configs, row.time_s, row.direction) == ("my_scale_kernel", 2, 0.001, "forward")


def test_statistics_that_are_no_json_are_left_out() -> None:
    choices = rows(compiling(*span(TEMPLATES, 10, 20, {"autotune_choices_stats": "<script>"})))
    assert [(row.kernel, row.configs, row.choice) for row in choices] == [("mm", None, None)]


def test_the_times_of_a_recording_are_those_of_its_spans(recording: Recording) -> None:
    """All of `breaks` autotunes at run time. The sum is that of the marks in the log, paired by hand."""
    (log,) = recording("breaks").glob("*.log")
    choices = autotune(data_of(read_log(str(log))))
    assert {row.where for row in choices if row.time_s} == {"run"}
    text = log.read_text()
    begin, open_at, total = 0.0, False, 0.0
    for piece in text.split('"chromium_event": {}')[1:]:
        event = json.loads(piece[piece.index("\n") : piece.index("\nV")].replace("\n\t", "\n"))
        if event["name"] != TUNING:
            continue
        if event["ph"] == "B":
            assert not open_at
            begin, open_at = event["ts"], True
        else:
            total, open_at = total + event["ts"] - begin, False
    assert total > 0
    assert abs(sum(row.time_s or 0 for row in choices) * 1e6 - total) < 1


def test_max_autotune_on_a_gpu_the_same_from_the_summary_and_from_the_log(recording: Recording) -> None:
    """Numbers as torch printed them while it recorded ("AUTOTUNE mm(768x1024, 1024x256)", 21 choices)."""
    folder = recording("max_autotune")
    (stored,), (log,) = folder.glob("*.pb"), folder.glob("log/*.log")
    choices = autotune(data_of(load(str(stored))))
    assert choices == autotune(data_of(read_log(str(log))))
    templates = [row for row in choices if row.choice]
    assert len(templates) == 11
    slowest = templates[0]
    assert (slowest.kernel, slowest.configs) == ("mm (768x1024, 1024x256)", 21)
    assert (slowest.direction, slowest.where) == ("backward", "compile")
    assert (slowest.choice or "").startswith(
        "triton_mm_204: ACC_TYPE='tl.float32', ALLOW_TF32=False, BLOCK_K=128"
    )
    assert slowest.best_time_us == 0.006591999903321266 * 1000
    at_run_time = [row for row in choices if row.where == "run"]
    assert len(at_run_time) == 20
    assert all(row.time_s and row.configs and row.choice is None for row in at_run_time)
