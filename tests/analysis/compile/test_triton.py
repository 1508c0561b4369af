"""What Triton made of kernels, and what tuning measured."""

from typing import Any

from profiles import data_of
from tb_torchcompile_plugin.analysis.compile.triton import triton
from tb_torchcompile_plugin.compile_log import summary_pb2 as pb


def compiled(
    name: str, config: str, time_us: float | None, chosen: bool = False, **more: Any
) -> pb.CompiledKernel:
    row = pb.CompiledKernel(name=name, config=config, chosen=chosen, cache_key="ABC", **more)
    row.key.compile_id = "0/0"
    if time_us is not None:
        row.time_us = time_us
    return row


def test_the_configuration_in_use_with_those_that_were_tried() -> None:
    rows = [
        compiled("triton_poi_0", "XBLOCK=1", 20.0, registers=40),
        compiled("triton_poi_0", "XBLOCK=8", 10.0, chosen=True, registers=23, spills=0),
        compiled("triton_per_1", "XBLOCK=2", None, chosen=True, registers=22, spills=8),
    ]
    answer = data_of(pb.CompileSummary(compiled_kernels=rows)).of(triton)
    assert [
        (row.kernel, row.config, row.spills, row.configs, row.slowest_percent)
        for row in answer.triton_kernels
    ] == [("triton_per_1", "XBLOCK=2", 8, 1, None), ("triton_poi_0", "XBLOCK=8", 0, 2, 100.0)]
    values = [(row.config, row.slower_percent, row.chosen) for row in answer.candidates]
    assert values == [("XBLOCK=8", 0.0, True), ("XBLOCK=1", 100.0, False)]
    assert answer.triton_kernels[0].time_us is None and answer.triton_kernels[0].shared_bytes is None
    assert answer.sentences[0] == "Of 2 Triton kernels, 1 spills registers to memory."
    assert answer.sentences[2].endswith("of triton_poi_0 takes 20.0 µs, 100 % more than the fastest.")


def test_templates_of_an_operator_are_candidates_and_no_kernel() -> None:
    templates = [compiled("mm", f"triton_mm_{n}", 10.0 + n, chosen=n == 0) for n in range(2)]
    for row in templates:
        row.cache_key = ""
    answer = data_of(pb.CompileSummary(compiled_kernels=templates)).of(triton)
    assert answer.triton_kernels == () and [row.kernel for row in answer.candidates] == ["mm", "mm"]


def test_nothing_was_kept() -> None:
    (said,) = data_of(pb.CompileSummary()).of(triton).sentences
    assert "triton=True" in said


def test_kernels_of_one_name_in_forward_and_backward_are_two() -> None:
    rows = [compiled("triton_poi_0", "XBLOCK=1", 9.0, chosen=True, direction=way) for way in (0, 1)]
    answer = data_of(pb.CompileSummary(compiled_kernels=rows)).of(triton)
    values = [(row.direction, row.configs) for row in answer.triton_kernels]
    assert values == [("forward", 1), ("backward", 1)]
    assert answer.candidates == ()
