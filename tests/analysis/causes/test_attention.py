"""Attention that is written out is recognised by its operators and shapes, and what fused attention would bring."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mendable import fix, kinds
from profiles import profile_with, spans_in
from recordings import Recording
from tb_torchcompile_plugin.analysis.causes.findings import findings, span_findings
from tb_torchcompile_plugin.analysis.causes.scenario import predicted_fixes
from tb_torchcompile_plugin.analysis.runtime.attention import unfused_attention
from tb_torchcompile_plugin.profile.profile import Profile
from traces import Event, launch, slice_

Shape = list[int]
H200 = [{"id": 0, "name": "NVIDIA H200"}]
BF16 = "c10::BFloat16"
MATRIX, QUERIES, KEYS = [192, 1024, 1024], [192, 1024, 64], [192, 64, 1024]
SPLIT = [16, 12, 1024, 1024]  # the same by batch and head
SOFTMAX = "triton_per_fused__softmax__to_copy_add_mul_prepare_softmax_online_where_17"
BACKWARD = "triton_per_fused__softmax_backward_data__to_copy_mul_view_11"
# 4 x 192 x 1024 x 1024 x 64 operations at 21 % of 989 TFLOP/s; on the way back two and a half times as many.
FUSED_US, FUSED_BACKWARD_US = 248.2, 620.4

# operator, shapes, µs of its kernel, what it was called with
Call = tuple[str, Sequence[Shape], float, list[str]]


def product(*factors: Shape, us: float = 100, name: str = "aten::bmm") -> Call:
    return name, factors, us, [""] * len(factors)


def eager_softmax(*, axis: int = -1, shape: Shape = SPLIT) -> Call:
    return "aten::_softmax", [shape, [], []], 300, ["", str(axis), "False"]


def generated(name: str, *shapes: Shape, us: float = 300, reduced: int = 1024) -> Call:
    return name, [*shapes, [], []], us, ["" for _ in shapes] + ["196608", str(reduced)]


def elementwise(name: str) -> Call:
    return name, [SPLIT, []], 50, ["", "0.125"]


PER = "triton_per_fused_"
ROUTED = product([16384, 64], [64, 1024], name="aten::mm")
LEARNT = generated("triton_red_fused__softmax_backward_data_sum_4", MATRIX)
REST = product([64, 64], [64, 64], us=200, name="aten::mm")
SCORES, RESULT = product(QUERIES, KEYS), product(MATRIX, QUERIES)
FORWARD = [SCORES, generated(SOFTMAX, MATRIX, SPLIT), RESULT]
BACK = [
    product(MATRIX, QUERIES),
    product(QUERIES, KEYS),
    generated(BACKWARD, MATRIX, SPLIT, us=500),
    product([192, 64, 1024], MATRIX),
    product(MATRIX, QUERIES),
]


def ahead(calls: Sequence[Call], kind: str = BF16) -> list[Event]:
    """Steps of 100 µs on the host, in which it launches these calls; the GPU, which is behind, does them and 200 µs
    more."""
    events: list[Event] = []
    free = 3.0
    for step in range(3):
        events.append(slice_(f"ProfilerStep#{step}", 100 * step, 100, "user_annotation"))
        for place, (name, shapes, us, values) in enumerate([*calls, REST]):
            kinds = [kind if shape else "Scalar" for shape in shapes]
            args: dict[str, Any] = {"Input Dims": shapes, "Input type": kinds, "Concrete Inputs": values}
            at = 100 * step + 2 + 5 * place
            events += [slice_(name, at, 4, **args), *launch("kernel", at + 1, free, us)]
            free += us
    return events


def profile(folder: Path, calls: Sequence[Call], kind: str = BF16, **header: Any) -> Profile:
    return profile_with(folder, ahead(calls, kind), **({"deviceProperties": H200} | header))


def gain_us(made: Profile) -> float:
    predicted = fix(made, "attention").predicted
    return predicted.step_us - predicted.after_us


def test_the_matrix_of_weights_goes_and_the_operations_stay(tmp_path: Path) -> None:
    row = fix(profile(tmp_path, FORWARD), "attention")
    assert row.times == 1
    assert row.predicted.step_us - row.predicted.after_us == pytest.approx(500 - FUSED_US, abs=1)
    assert row.predicted.low_us < row.predicted.after_us < row.predicted.high_us


def test_what_passes_over_the_matrix_is_part_of_it(tmp_path: Path) -> None:
    """Scale, mask, casts and dropout; what is of another size is not."""
    copied = "aten::copy_", [[16, 12, 64, 1024]], 7.0, [""]
    between = [elementwise(f"aten::{name}") for name in ("mul", "masked_fill_", "copy_")]
    dropout = elementwise("aten::native_dropout")
    made = profile(tmp_path, [SCORES, *between, copied, eager_softmax(), dropout, RESULT])
    assert [(one.matrix, len(one.work)) for one in made.of(unfused_attention)] == [(MATRIX, 7)] * 3
    assert gain_us(made) == pytest.approx(700 - FUSED_US, abs=1)


def test_both_ways_are_fused(tmp_path: Path) -> None:
    made = profile(tmp_path, [*FORWARD, REST, *BACK])
    assert [one.way for one in made.of(unfused_attention)] == ["forward", "backward"] * 3
    assert gain_us(made) == pytest.approx(500 - FUSED_US + 900 - FUSED_BACKWARD_US, abs=2)


def test_a_way_back_that_takes_longer_counts_too(tmp_path: Path) -> None:
    """One cannot be had without the other."""
    back = [(name, shapes, 50.0, values) for name, shapes, _, values in BACK]
    rows = profile(tmp_path, [*FORWARD, REST, *back]).of(predicted_fixes)
    assert "attention" not in {row.kind for row in rows}


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param([ROUTED, eager_softmax(), RESULT], id="router"),
        pytest.param([SCORES, generated(SOFTMAX, MATRIX)], id="classifier"),
        pytest.param([SCORES, generated(f"{PER}_log_softmax__to_copy_0", MATRIX), RESULT], id="loss"),
        pytest.param(
            [SCORES, generated(f"{PER}_safe_softmax_0", MATRIX, MATRIX), RESULT], id="of the fused one"
        ),
        pytest.param([SCORES, eager_softmax(axis=1), RESULT], id="over heads"),
        pytest.param([SCORES, generated(SOFTMAX, MATRIX, reduced=192), RESULT], id="over the batch"),
        pytest.param([SCORES, elementwise("aten::tanh"), eager_softmax(), RESULT], id="capped"),
        pytest.param([SCORES, elementwise("aten::topk"), eager_softmax(), RESULT], id="sparse"),
        pytest.param(
            [SCORES, generated(f"{PER}_softmax_mul_tanh_3", MATRIX, MATRIX), RESULT], id="capped inside"
        ),
        pytest.param([SCORES, eager_softmax(), product(QUERIES, KEYS)], id="of something else"),
        pytest.param([SCORES, ("aten::_softmax", [], 300.0, ["", "-1", ""]), RESULT], id="without shapes"),
        pytest.param(BACK, id="way back alone"),
        pytest.param([*FORWARD, *BACK[:3], LEARNT, *BACK[3:]], id="a bias that learns"),
        pytest.param(
            [
                product([9216, 49, 32], [9216, 32, 49]),
                generated(SOFTMAX, [9216, 49, 49], reduced=49),
                product([9216, 49, 49], [9216, 49, 32]),
            ],
            id="windows",
        ),
    ],
)
def test_nothing_else_is_attention(tmp_path: Path, calls: list[Call]) -> None:
    assert "attention" not in kinds(profile(tmp_path, calls))


def test_what_is_fused_already_is_not_told(tmp_path: Path) -> None:
    """Fused attention falls back to products where no kernel can do it."""
    calls = [SCORES, eager_softmax(), RESULT]
    assert "attention" in kinds(profile(tmp_path, calls))
    around = [slice_("aten::scaled_dot_product_attention", 100 * step + 1, 17) for step in range(3)]
    events = [*ahead(calls), *around]
    assert "attention" not in kinds(profile_with(tmp_path, events, deviceProperties=H200))


def test_nothing_is_predicted_of_what_is_not_known(tmp_path: Path) -> None:
    assert "attention" not in kinds(profile(tmp_path, FORWARD, deviceProperties=[{"id": 0, "name": "a GPU"}]))
    assert "attention" not in kinds(profile(tmp_path, FORWARD, kind="double"))


def test_float32_has_no_tensor_cores(tmp_path: Path) -> None:
    """Fused attention in float32 takes 1.9 ms for these; the products of half a millisecond are faster."""
    rows = profile(tmp_path, FORWARD, kind="float").of(predicted_fixes)
    assert "attention" not in {row.kind for row in rows}


@pytest.mark.parametrize(("rest_us", "speaks"), [(4000, True), (4600, False)])
def test_it_is_told_from_a_twentieth_of_a_step_on(tmp_path: Path, rest_us: float, speaks: bool) -> None:
    rest = product([64, 64], [64, 64], us=rest_us, name="aten::mm")
    rows = span_findings(profile(tmp_path, [*FORWARD, rest]))
    assert ("attention" in {row.rule for row in rows}) == speaks


def test_gpt2_with_attention_spelt_out(recording: Recording) -> None:
    """tests/data/2.11.0/attention: measured without a profiler 29.2 ms a step, and 24.4 with the fused one."""
    (span,) = spans_in(recording("attention"))
    rows = span.of(findings).findings
    first = rows[0]
    assert first.rule == "attention" and first.predicted is not None
    assert first.where == ["modeling_gpt2.py:69"]
    after = first.predicted.after_us / first.predicted.step_us
    assert after == pytest.approx(24.4 / 29.2, abs=0.03)
