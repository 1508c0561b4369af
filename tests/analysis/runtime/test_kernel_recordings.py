"""Test kernels of all kinds as an H200 ran them, by hand and against torch's own count."""

import json
import re
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from profiles import spans_in
from recordings import Recording
from tb_torchcompile_plugin.analysis.causes.findings import findings
from tb_torchcompile_plugin.analysis.compile.cuda_graph_recordings import skipped_graphs
from tb_torchcompile_plugin.analysis.runtime.gpu_utilization import gpu_utilization
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import Kernel
from tb_torchcompile_plugin.analysis.runtime.kernels import kernel_details, kernel_table
from tb_torchcompile_plugin.analysis.runtime.roofline import launched_work
from tb_torchcompile_plugin.analysis.runtime.span_report import span_report
from tb_torchcompile_plugin.profile.gpu.idle import ThreadActivity, causes_of, idle_gaps
from tb_torchcompile_plugin.profile.gpu.launches import kernel_launches
from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.profile import Profile

MODES = (
    "attention",
    "flex",
    "low_bandwidth",
    "no_names",
    "no_names_graphs",
    "skips",
    "template",
    "training",
    "user_triton",
)
Open = Callable[[str], Profile]


@pytest.fixture(scope="module")
def opened(recording: Recording) -> Open:
    """Mode → its span, read once."""
    return cache(lambda mode: spans_in(recording("kernels") / mode)[0])


def rows_of(opened: Profile) -> list[Kernel]:
    return opened.of(kernel_table).rows


def rules(opened: Profile) -> set[str]:
    return {row.rule for row in opened.of(findings).findings}


def test_a_users_own_triton_kernel_compiled_and_eager(opened: Open) -> None:
    compiled, eager = sorted(
        (row for row in rows_of(opened("user_triton")) if row.category == "triton_user"),
        key=lambda row: row.compile_id is None,
    )
    assert (compiled.name, compiled.launches, eager.name, eager.launches) == ("my_scale_kernel", 3) * 2
    assert (compiled.compile_id, compiled.direction, eager.compile_id) == ("0/0", "forward", None)
    assert compiled.source_lines == ["/home/user/train/record.py:108"] and eager.source_lines == []
    details = kernel_details(opened("user_triton"), "0", compiled.name, "0/0", compiled.graph_key or "")
    assert details.source and "def my_scale_kernel(x, out, n, BLOCK" in details.source
    # A million numbers are read and as many written; outside of a graph no operator tells their shapes.
    assert compiled.bandwidth_gb_s == pytest.approx(2 * 4 * 2**20 / compiled.mean_us / 1e3)
    assert compiled.bandwidth_from == "shapes" and eager.bandwidth_gb_s is None


def test_flex_attention_runs_templates_of_both_directions(opened: Open) -> None:
    rows = [row for row in rows_of(opened("flex")) if row.category == "triton_template"]
    assert {(row.name, row.direction) for row in rows} == {
        ("triton_tem_fused_flex_attention_4", "forward"),
        ("triton_tem_fused_flex_attention_backward_1", "backward"),
    }
    for row in rows:
        details = kernel_details(opened("flex"), "0", row.name, "0/0", row.graph_key or "")
        assert details.graph is not None and "higher_order.flex_attention" in details.graph.text[0]
        assert details.source and f"def {row.name}(" in details.source and row.lines


@pytest.mark.parametrize("mode", ["flex", "training", "template", "user_triton", "low_bandwidth"])
def test_every_generated_kernel_has_its_graph_source_and_line(opened: Open, mode: str) -> None:
    rows = [row for row in rows_of(opened(mode)) if row.category.startswith("triton_") and row.compile_id]
    assert rows
    for row in rows:
        assert row.graph_key and row.artifact is not None and row.code_line and row.lines, row.name


def test_bytes_are_those_that_inductor_counted(opened: Open) -> None:
    """gelu of 64 x 512 x 4096 numbers in bfloat16: read once, written once."""
    (row,) = (row for row in rows_of(opened("training")) if row.name == "triton_poi_fused_gelu_view_2")
    assert row.bandwidth_gb_s == pytest.approx(2 * 2 * 64 * 512 * 4096 / row.mean_us / 1e3, rel=1e-9)
    assert row.bandwidth_from == "inductor"


def test_without_shapes_the_output_code_tells_bytes_and_operations(opened: Open) -> None:
    """A layer of 256 to 1024 numbers for 8 x 128 positions, as a template, in float16."""
    (row,) = (
        row for row in rows_of(opened("template")) if row.name == "triton_tem_fused_addmm_gelu_t_view_6"
    )
    assert row.tflop_s == pytest.approx(2 * 1024 * 256 * 1024 / row.mean_us / 1e6)
    assert (row.tflop_from, row.bandwidth_from) == ("inductor", "inductor")


def test_attention_is_counted_as_torch_counts_it_less_what_a_mask_hides(
    opened: Open, recording: Recording
) -> None:
    counted = json.loads((recording("kernels") / "attention" / "flops.json").read_text())
    trace = opened("attention").trace
    (rows,) = opened("attention").of(kernel_launches)
    (work,) = opened("attention").of(launched_work)
    plain, causal = (2 * 4 * 16 * length * length * 128 for length in (1024, 1536))
    for way, masked in (
        ("flash", (plain, causal / 2)),
        ("efficient", (plain, causal / 2)),
        ("cudnn", (causal / 2,)),
    ):
        for backward in (False, True):
            kind = "backward" if backward else "forward"
            name = f"aten::_{way}_attention_{kind}"
            here = np.flatnonzero(
                (rows.op >= 0)
                & np.isin(trace.name[rows.op], [c for c, n in enumerate(trace.names) if n == name])
            )
            flops = np.unique(work.flop[here][~np.isnan(work.flop[here])]).tolist()
            assert flops == [flop * (2.5 if backward else 1) for flop in sorted(masked)]
            whole = sum(flop * (1 if flop == plain else 2) for flop in masked) * (2.5 if backward else 1)
            suffix = "_backward" if backward else ""
            assert whole == counted[f"aten._scaled_dot_product_{way}_attention{suffix}"]


def test_a_gather_runs_at_low_bandwidth(opened: Open) -> None:
    """The host is ahead: three steps of 0.16 ms launch 2.9 ms of work. So it is not launch bound."""
    assert rules(opened("low_bandwidth")) == {"kernel_low_bandwidth"}
    answer = opened("low_bandwidth").of(findings)
    (kernel,) = rows_of(opened("low_bandwidth"))
    assert answer.findings[0].row == f"kernels:{kernel.key}"
    assert answer.findings[0].saves_us == pytest.approx(3 * 956 * (1 - 0.117), rel=0.01), "three steps of it"
    assert kernel.twice_as_fast_percent == pytest.approx(50, abs=0.1), "of the steps on the GPU"
    used = opened("low_bandwidth").of(gpu_utilization)
    assert used.verdict is not None
    assert used.verdict.bound == "compute" and (used.verdict.share_percent or 0) > 99


def test_strict_numerics_forbid_tuning_a_kernel(recording: Recording) -> None:
    (profile,) = spans_in(recording("kernels") / "low_bandwidth")
    assert profile.summary is not None
    profile.summary.environment.settings["torch._inductor.config.numerics"] = "strict"
    assert profile.of(findings).findings[0].code == 'torch._inductor.config.numerics = "default"'


def test_a_healthy_training_run_has_nothing_to_change(opened: Open) -> None:
    assert [row for row in opened("training").of(findings).findings if row.asks_for_change] == []


@pytest.mark.parametrize("mode", ["no_names", "no_names_graphs"])
def test_kernels_without_names_are_known_by_their_launch(opened: Open, mode: str) -> None:
    """`unique_kernel_names` off. A CUDA graph launches all of its kernels at once: those stay unnamed."""
    answer = opened(mode).of(kernel_table)
    hint = span_report(opened(mode)).unnamed_triton_kernels
    unnamed, named = re.findall(r"([\d.]+ .s) (?:have|of this)", hint)
    graphs = mode == "no_names_graphs"
    assert named == ("0 µs" if graphs else unnamed)
    categories = {row.category for row in answer.rows if row.category.startswith("triton_")}
    usual = {"triton_pointwise", "triton_reduction", "triton_persistent_reduction"}
    assert categories == {"triton_other"} if graphs else categories <= usual
    for row in answer.rows:
        if not graphs and row.category.startswith("triton_"):
            assert row.compile_id == "0/0" and row.lines and row.artifact is not None, row.name
            details = kernel_details(opened(mode), "0", row.name, "0/0", row.graph_key or "")
            assert details.graph and details.source and "def triton_(" in details.source


def test_why_cuda_graphs_were_skipped(opened: Open) -> None:
    data = opened("skips").data
    assert data is not None
    reasons = " ".join(row.text for row in data.of(skipped_graphs))
    assert "cpu device" in reasons and "mutated inputs" in reasons
    answer = opened("skips").of(findings)
    assert [row.rule for row in answer.findings].count("cudagraphs_skipped") == 2


@pytest.mark.parametrize("mode", MODES)
def test_causes_of_idling_sum_to_it_to_the_nanosecond(opened: Open, mode: str) -> None:
    profile: Profile = opened(mode)
    for device, gaps in profile.of(idle_gaps).items():
        inner = gaps.inner()
        causes = causes_of(inner, profile.of(ThreadActivity))
        work = profile.of(gpu_work).index[profile.of(gpu_work).device == device]
        events = sorted(
            (int(profile.trace.ts[row]), int(profile.trace.ts[row] + profile.trace.dur[row])) for row in work
        )
        idle, end = 0, events[0][0]
        for begin, stop in events:
            idle += max(0, begin - end)
            end = max(end, stop)
        assert causes.sum() == idle
