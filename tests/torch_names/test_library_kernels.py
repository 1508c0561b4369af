"""Categories of what the GPU libraries ran in many models, against the operators that launched it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, category_of

Ran = list[tuple[str, int, str]]  # kernel, ns, operator


@pytest.fixture(scope="module")
def reference(recording: Callable[[str], Path]) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((recording("library_kernels") / "kernels.json").read_text())
    return content


@pytest.fixture(scope="module")
def programs(reference: dict[str, Any]) -> dict[str, Ran]:
    names, operators = reference["names"], [*reference["ops"], ""]
    return {
        program: [(names[name], ns, operators[operator]) for name, ns, operator in rows]
        for program, rows in reference["programs"].items()
    }


def test_every_kernel_has_the_category_that_was_found_right(reference: dict[str, Any]) -> None:
    wrong = [
        (reference["names"][place], wanted, category)
        for wanted, places in reference["categories"].items()
        for place in places
        if (category := category_of(reference["names"][place])) != wanted
    ]
    assert wrong == []
    assert sum(map(len, reference["categories"].values())) == len(reference["names"]) > 1700
    assert reference["categories"].keys() <= set(CATEGORIES)


def test_at_most_two_percent_of_any_program_is_other(programs: dict[str, Ran]) -> None:
    assert len(programs) > 200
    for program, ran in programs.items():
        other = sum(ns for kernel, ns, _ in ran if category_of(kernel) == "other")
        assert other <= 0.02 * sum(ns for _, ns, _ in ran), program


@pytest.mark.parametrize(
    ("operator", "categories"),
    [
        (r"aten::.*(batch|layer|group|rms)_norm(_backward)?", {"normalization"}),
        (r"aten::(addmm|mm|bmm|baddbmm|_scaled_mm|_grouped_mm|_int_mm)", {"gemm"}),
        (r"aten::.*_attention_(forward|backward)", {"attention"}),
        (r"aten::(cudnn_convolution.*|_conv_depthwise2d|convolution_backward)", {"convolution", "gemm"}),
        (r"aten::_(cudnn_rnn|thnn_fused_lstm_cell).*", {"gemm", "aten"}),
        (
            r"aten::_fft_.*|torchvision::.*|aten::(sort|topk|cumsum|embedding.*|_softmax|add|mul|copy_)",
            {"aten"},
        ),
        (r"aten::_?linalg_.*", {"gemm", "aten"}),
    ],
)
def test_categories_say_what_the_operator_did(
    programs: dict[str, Ran], operator: str, categories: set[str]
) -> None:
    """But for a thousandth: what fills a buffer first, or products of sparse matrices."""
    times = Counter[str]()
    for ran in programs.values():
        for kernel, ns, by in ran:
            if re.fullmatch(operator, by):
                times[category_of(kernel)] += ns
    assert times
    assert sum(times[category] for category in categories) >= 0.999 * times.total(), times
