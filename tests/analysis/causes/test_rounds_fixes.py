"""what_if/: what several rounds of a step take, and collectives: one batch, gradients reduced once, few messages."""

from pathlib import Path
from typing import Any

import pytest

from mendable import NODE, ROUND_US, STEP_US, accumulated, fix, kinds, moved, steps
from profiles import profile_with
from tb_torchcompile_plugin.analysis.causes.training import micro_batches
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import read_trace
from traces import AUTOGRAD, Event, launch, slice_, write_trace


def folder(parent: Path, name: str) -> Path:
    (made := parent / name).mkdir()
    return made


def test_rounds_are_told_by_their_backwards(tmp_path: Path) -> None:
    profile = profile_with(tmp_path, steps(*accumulated(6)))
    assert [len(edges) - 1 for edges in profile.of(micro_batches)] == [6, 6, 6]


@pytest.mark.parametrize("made", [accumulated(1), accumulated(6, optimizing=True)])
def test_one_backward_for_each_step_of_the_optimizer_is_no_round(tmp_path: Path, made: list[Event]) -> None:
    profile = profile_with(tmp_path, steps(*made))
    assert profile.of(micro_batches) == []
    assert "batch" not in kinds(profile)


def test_backwards_of_several_losses_are_not_alike(tmp_path: Path) -> None:
    made = accumulated(2)
    for place in range(4):
        made += [
            slice_(NODE, 160 + 30 * place, 25, tid=AUTOGRAD),
            *launch("more", 165 + 30 * place, 170, 5, AUTOGRAD),
        ]
    made += [
        slice_(NODE, 500, 40, tid=AUTOGRAD),
        *launch("forward", 400, 410, 5),
        *launch("b", 510, 512, 5, AUTOGRAD),
    ]
    assert profile_with(tmp_path, steps(*made)).of(micro_batches) == []


def test_as_one_batch_the_other_rounds_are_gone(tmp_path: Path) -> None:
    """One round of the host stays; how long its kernels take without knowing how much of the GPU they fill: so long as
    all."""
    row = fix(profile_with(tmp_path, steps(*accumulated(6))), "batch")
    assert row.times == 6
    assert row.predicted.low_us == pytest.approx(STEP_US - 5 * ROUND_US, abs=5)
    # One that keeps a whole GPU busy takes as long as all six, 2 of 10 µs in each; the host needs longer.
    assert row.predicted.high_us == pytest.approx(row.predicted.low_us, abs=5)


def test_gradients_are_reduced_in_the_last_round_alone(tmp_path: Path) -> None:
    profile = profile_with(tmp_path, steps(*accumulated(6, reduced=True)))
    row = fix(profile, "reduced_once")
    assert row.times == 6
    assert row.name == "c10d::allreduce_"
    assert row.predicted.after_us == pytest.approx(STEP_US - 5 * 12, abs=1)
    assert "reduced_once" not in kinds(profile_with(folder(tmp_path, "one"), steps(*accumulated(6))))


@pytest.mark.parametrize(("around", "host_us"), [("", 8), ("FSDP::post_backward_reduce (layers.3)", 9)])
def test_many_small_messages_become_few(tmp_path: Path, around: str, host_us: float) -> None:
    row = fix(profile_with(tmp_path, steps(*moved(40, 1000, around))), "small_collectives")
    assert row.times == 40
    assert row.predicted.after_us == pytest.approx(STEP_US - 39 * host_us, abs=8)


@pytest.mark.parametrize(
    ("many", "elements", "around"), [(40, 8 << 20, ""), (8, 1000, ""), (40, 1000, "_AllReduceOfALayer")]
)
def test_large_messages_few_ones_and_those_of_a_layer_stay(
    tmp_path: Path, many: int, elements: int, around: str
) -> None:
    assert "small_collectives" not in kinds(profile_with(tmp_path, steps(*moved(many, elements, around))))


def asked(many: int, *, compiled: bool) -> list[Event]:
    """A loop of 40 µs a turn: an operator with a kernel, a value that is waited for, Python; or a graph in between."""
    events: list[Event] = []
    for place in range(many):
        at = 20 + 40 * place
        if compiled:
            events.append(slice_("Torch-Compiled Region: 0/0", at + 1, 9))
        events += [
            *launch("norm", at + 2, at + 6, 4),
            slice_("aten::item", at + 12, 8),
            slice_("cudaStreamSynchronize", at + 13, 6, "cuda_runtime"),
        ]
    return [*events, *launch("last", 980, 985, 5)]


def test_what_a_loop_does_for_each_value_goes_with_the_wait(tmp_path: Path) -> None:
    looped = fix(profile_with(tmp_path, steps(*asked(20, compiled=False))), "synchronise").predicted
    assert looped.after_us < STEP_US - 18 * 38
    assert looped.high_us == pytest.approx(STEP_US - 20 * 8, abs=20)  # the waits alone
    between = fix(
        profile_with(folder(tmp_path, "compiled"), steps(*asked(20, compiled=True))), "synchronise"
    ).predicted.after_us
    assert between == pytest.approx(STEP_US - 20 * 8, abs=20)


def test_a_loop_that_computes_between_its_values_keeps_what_it_computes(tmp_path: Path) -> None:
    """As one that decodes token by token, in eager mode."""
    events: list[Event] = []
    for place in range(5):
        at = 20 + 180 * place
        for launched in range(12):
            events += launch("mm", at + 12 * launched, at + 12 * launched + 4, 4)
        events += [
            slice_("aten::item", at + 150, 8),
            slice_("cudaStreamSynchronize", at + 151, 6, "cuda_runtime"),
        ]
    row = fix(profile_with(tmp_path, steps(*events, *launch("last", 980, 985, 5))), "synchronise")
    assert row.predicted.after_us == pytest.approx(STEP_US - 5 * 8, abs=10)


def test_a_stage_of_a_pipeline_goes_forward_and_backward_on_purpose(tmp_path: Path) -> None:
    made = [*accumulated(6), slice_("c10d::send", 62, 3)]
    profile = profile_with(tmp_path, steps(*made))
    assert profile.of(micro_batches) and "batch" not in kinds(profile)


@pytest.mark.parametrize("grid", [[1, None], [1, "2", 3], [0, 1, 1]])
def test_a_grid_that_is_none_fills_the_gpu(tmp_path: Path, grid: list[object]) -> None:
    events = steps(*accumulated(6))
    for event in events:
        if "grid" in event["args"]:
            event["args"]["grid"] = grid
    card: dict[str, Any] = {"deviceProperties": [{"id": 0, "name": "GPU", "numSms": 100}]}
    path = write_trace(tmp_path, events, **card)
    profile = Profile(read_trace(str(path), workers=1), None)
    assert fix(profile, "batch").predicted.after_us > 0


@pytest.mark.parametrize("between", ["mm", "memcpy"])
def test_collectives_with_work_between_them_come_one_after_the_other(tmp_path: Path, between: str) -> None:
    events = moved(40, 1000, "")
    if between == "mm":
        events += [
            event for place in range(40) for event in launch("mm", 29.5 + 10 * place, 30 + 10 * place, 1)
        ]
    seen = "small_collectives" in kinds(profile_with(tmp_path, steps(*events)))
    assert seen == (between != "mm")


def test_sends_are_not_put_together(tmp_path: Path) -> None:
    events = moved(40, 1000, "")
    for event in events:
        event["name"] = event["name"].replace("allreduce_", "send")
    assert "small_collectives" not in kinds(profile_with(tmp_path, steps(*events)))


@pytest.mark.parametrize(
    ("kernel", "offered"),
    [
        ("FusedOptimizerTensorListMetadata<4>", False),
        ("FusedSgdMathFunctor<float, 2>", False),
        ("add_", True),
    ],
)
def test_an_optimizer_that_is_fused_already_is_not_told_to_be(
    tmp_path: Path, kernel: str, offered: bool
) -> None:
    """Of very many parameters it takes more than twenty launches."""
    events = [slice_("Optimizer.step#AdamW.step", 10, 900, "user_annotation")]
    name = f"void at::native::multi_tensor_apply_kernel<{kernel}>"
    for place in range(30):
        events += launch(name, 20 + 20 * place, 25 + 20 * place, 10)
    assert ("fused_optimizer" in kinds(profile_with(tmp_path, steps(*events)))) == offered
