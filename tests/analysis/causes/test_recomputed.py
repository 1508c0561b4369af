"""what_if/: checkpoints inside of compiled graphs, whose backward computes anew what its forward had computed."""

import json
from pathlib import Path
from typing import Any

import pytest

from diagnosis.test_findings import findings_of, share
from mendable import fix, kinds, steps
from profiles import data_of, profile_with
from recordings import Recording
from tb_torchcompile_plugin.analysis.causes.findings import span_findings
from tb_torchcompile_plugin.analysis.causes.registry import PRICED
from tb_torchcompile_plugin.analysis.finding import Finding
from tb_torchcompile_plugin.compile_log.summary_pb2 import Artifact, CompileKey, CompileSummary, Payload
from tb_torchcompile_plugin.reader.compile_data import CompileData
from traces import AUTOGRAD, MAIN, Event, launch, memory_event, slice_

pytestmark = pytest.mark.usefixtures("exact_ranges")

OPERATOR_US = 20
ATTENTION = "aten::_scaled_dot_product_flash_attention"
CUDNN = "aten::_scaled_dot_product_cudnn_attention"
CONVOLUTION = "aten::convolution"
NORM, CAST = "triton_red_fused_mean_pow_rsqrt_2", "triton_poi_fused__to_copy_3"
# Products of a linear layer: forward, and of its two gradients, which read the factors the other way round.
PRODUCT, OF_INPUT, OF_WEIGHT = "aten::mm tn", "aten::mm nn", "aten::mm nt"
GRADIENTS = (OF_INPUT, OF_WEIGHT)


def graph(work: tuple[str, ...], at: float, tid: int, sizes: int = 64) -> list[Event]:
    """One operator behind the other, each of which launches a kernel; of a product the kernel tells the layout."""
    events: list[Event] = []
    for place, one in enumerate(work):
        name, _, layout = one.partition(" ")
        begin = at + OPERATOR_US * place
        kernel = f"gemm_{layout}" if layout else f"kernel of {name}"
        shapes: dict[str, Any] = {"Input Dims": [[sizes, sizes], [sizes, sizes]]}
        events += [slice_(name, begin, 18, tid=tid, **shapes), *launch(kernel, begin + 5, begin + 8, 10, tid)]
    return events


def trained(
    forward: tuple[str, ...], backward: tuple[str, ...], *, compiled: bool = True, sizes: int = 64
) -> list[Event]:
    """Steps whose compiled graph does the one, and whose backward does the other."""
    numbered: dict[str, Any] = {"Sequence number": 7}
    around = [slice_("Torch-Compiled Region: 0/0", 10, 300), slice_("CompiledFunction", 11, 298, **numbered)]
    node = "CompiledFunctionBackward" if compiled else "MyFunctionBackward"
    back = slice_(node, 320, 600, tid=AUTOGRAD, **numbered)
    return steps(
        *around,
        *graph(forward, 20, MAIN),
        back,
        *graph(backward, 330, AUTOGRAD, sizes),
        *launch("last", 985, 988, 5),
    )


LAYER = (NORM, PRODUCT, PRODUCT, ATTENTION, PRODUCT)
BACK = (*GRADIENTS, f"{ATTENTION}_backward", *GRADIENTS, *GRADIENTS)


def test_attention_in_a_compiled_backward_is_computed_anew_with_what_is_around_it(tmp_path: Path) -> None:
    """From the first product to the last: of the kernel before them nothing tells that a backward needs it not."""
    row = fix(profile_with(tmp_path, trained(LAYER, (*LAYER, *BACK))), "recomputed")
    assert (row.times, PRICED["recomputed"].filled(row).title) == (
        1,
        "Checkpoints recompute the forward in the backward, once per step",
    )
    assert row.predicted.after_us == pytest.approx(1000 - 4 * OPERATOR_US, abs=3)
    assert row.predicted.low_us == pytest.approx(1000 - 5 * OPERATOR_US - 12, abs=12), "the norm, too"
    assert row.predicted.high_us == pytest.approx(1000 - 4 * 18, abs=3), "these operators alone"


def test_kernels_between_what_is_computed_anew_go_with_it(tmp_path: Path) -> None:
    layer = (PRODUCT, CAST, NORM, CUDNN)
    row = fix(profile_with(tmp_path, trained(layer, (*layer, f"{CUDNN}_backward", *GRADIENTS))), "recomputed")
    assert row.predicted.after_us == pytest.approx(1000 - 4 * OPERATOR_US, abs=3)
    assert row.predicted.high_us == pytest.approx(1000 - 2 * 18, abs=3)


def test_each_checkpoint_is_one_time(tmp_path: Path) -> None:
    back = (*LAYER, *BACK, *LAYER, *BACK)
    row = fix(profile_with(tmp_path, trained((*LAYER, *LAYER), back)), "recomputed")
    assert row.times == 2
    assert row.predicted.after_us == pytest.approx(1000 - 2 * 4 * OPERATOR_US, abs=5)


def test_a_convolution_in_a_compiled_backward_is_computed_anew(tmp_path: Path) -> None:
    net = (CONVOLUTION, NORM, CONVOLUTION)
    back = (*net, "aten::convolution_backward", "aten::convolution_backward")
    row = fix(profile_with(tmp_path, trained(net, back)), "recomputed")
    assert row.predicted.after_us == pytest.approx(1000 - 3 * OPERATOR_US, abs=3)


@pytest.mark.parametrize(
    ("forward", "backward"),
    [
        pytest.param(LAYER, BACK, id="gradients alone"),
        pytest.param((PRODUCT, NORM, CAST), (NORM, CAST, *GRADIENTS), id="cheap kernels, as in any backward"),
        pytest.param((PRODUCT,) * 3, (PRODUCT,) * 6, id="gradients that look like forward"),
        pytest.param((PRODUCT,) * 3, (*GRADIENTS * 3, OF_INPUT, OF_INPUT), id="a backward of somebody's own"),
        pytest.param((PRODUCT,) * 3, (*GRADIENTS * 3, PRODUCT), id="one product more"),
        pytest.param((CONVOLUTION,), (CONVOLUTION,), id="a function whose adjoint is the same"),
        pytest.param(("mylib::attention",), ("mylib::attention", OF_INPUT), id="a library's own backward"),
        pytest.param((PRODUCT,), (ATTENTION, *GRADIENTS), id="attention that forward does not have"),
        pytest.param((), (CONVOLUTION, ATTENTION), id="a forward that does nothing heavy"),
    ],
)
def test_what_a_backward_needs_is_not_computed_anew(
    tmp_path: Path, forward: tuple[str, ...], backward: tuple[str, ...]
) -> None:
    assert "recomputed" not in kinds(profile_with(tmp_path, trained(forward, backward)))


def test_a_forward_whose_begin_was_not_recorded_does_not_count(tmp_path: Path) -> None:
    """Of gradients half of which look like forward, as those of attention that is written out do."""
    events = trained((PRODUCT,) * 4, (OF_WEIGHT, PRODUCT) * 4)
    late = [
        event for event in events if event["ts"] >= 70 or event["name"].startswith(("Prof", "Torch", "Comp"))
    ]
    assert len(events) - len(late) == 3 * 3
    assert "recomputed" not in kinds(profile_with(tmp_path, late))


def test_attention_of_other_sizes_is_none_that_is_computed_anew(tmp_path: Path) -> None:
    assert "recomputed" not in kinds(profile_with(tmp_path, trained(LAYER, (*LAYER, *BACK), sizes=32)))


def test_a_backward_of_somebodys_own_is_no_compiled_one(tmp_path: Path) -> None:
    events = trained(LAYER, (*LAYER, *BACK), compiled=False)
    assert "recomputed" not in kinds(profile_with(tmp_path, events))


GRAPH = """
class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4]"):
        # File: /home/user/train/model.py:12 in forward, code: x = self.embed(x)
        linear: "f32[4]" = torch._C._nn.linear(l_x_)

        # File: /home/user/train/model.py:14 in forward, code: x = checkpoint(layer, x)
        wrap_body_0 = self.wrap_body_0
        tag_activation_checkpoint = torch.ops.higher_order.tag_activation_checkpoint(wrap_body_0, linear)
"""


def captured() -> CompileData:
    text = Artifact(key=CompileKey(compile_id="0/0"), name="dynamo_output_graph", encoding="utf-8")
    payload = Payload(data=GRAPH.encode(), size=len(GRAPH))
    return data_of(CompileSummary(artifacts=[text], payloads=[payload]))


def test_the_captured_graph_tells_where_a_checkpoint_is_asked_for(tmp_path: Path) -> None:
    profile = profile_with(tmp_path, trained(LAYER, (*LAYER, *BACK)), captured())
    assert (
        PRICED["recomputed"]
        .filled(fix(profile, "recomputed"))
        .title.endswith("in the backward, once per step at model.py:14")
    )


H200 = {"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150 * 10**9}


def finding(folder: Path, *, held_gb: float | None) -> Finding:
    """Of a step with a checkpoint, and of so much memory, where it was recorded."""
    held = [memory_event(10, 1, 1, reserved=round(1e9 * held_gb))] if held_gb else []
    events = [*trained(LAYER, (*LAYER, *BACK)), *held]
    profile = profile_with(folder, events, deviceProperties=[H200])
    (row,) = [row for row in span_findings(profile) if row.rule == "recomputed"]
    return row


def test_the_finding_says_what_is_known_of_memory(tmp_path: Path) -> None:
    """And not that it suffices: how much what is kept would take, nothing tells."""
    row = finding(tmp_path, held_gb=None)
    assert "in the backward, once per step. Without checkpoints, a step would take about 920 µs" in row.title
    assert row.next_step.endswith("GPU 0 has 150 GB; profile_memory=True records how much of it is used")
    row = finding(tmp_path, held_gb=6)
    assert row.advised and row.next_step.endswith(". torch uses 6.00 GB of GPU 0, 4.00 % of its memory")


def test_where_memory_is_full_checkpoints_are_what_a_step_needs(tmp_path: Path) -> None:
    row = finding(tmp_path, held_gb=140)
    assert (row.advised, row.severity, row.predicted) == (False, "info", None), "behind what can be mended"
    assert row.title.endswith("instead of 1.00 ms, but torch uses 140 GB of GPU 0, 93.3 % of its memory")


def test_checkpoints_that_nobody_needs_come_first(recording: Recording) -> None:
    """Of somebody who knew none of the rules: layers of a Llama that transformers puts checkpoints around."""
    folder = recording("recomputed")
    (row,) = json.loads((folder / "measured.json").read_text())["programs"]
    first, *others = findings_of(folder / row["name"])
    assert (first.rule, first.where) == ("recomputed", ["modeling_layers.py:108"])
    assert first.evidence["times_per_step"] == 6
    assert first.predicted is not None
    assert share(first.predicted) == pytest.approx(100 * row["mended_us"] / row["planted_us"], abs=3)
    assert first.predicted.low_us < row["mended_us"] < first.predicted.high_us
    (cache,) = [row for row in others if row.rule != "large_site"]
    assert (cache.rule, cache.severity) == ("cache_missed", "info") and "not the compiled code" in cache.title
