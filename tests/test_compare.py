"""compare.py and step_breakdown.py: two spans side by side, and every part of the difference named."""

import json

import pytest

from tb_torchcompile_plugin.analysis.compare import compare
from tb_torchcompile_plugin.analysis.profile import Profile
from tb_torchcompile_plugin.analysis.step_breakdown import step_breakdowns
from tb_torchcompile_plugin.cli import main
from tb_torchcompile_plugin.reader.kineto import read_trace
from traces import kernel, launch, slice_, write_trace


def profile(folder):
    (path,) = folder.glob("*.pt.trace.json*")
    return Profile(read_trace(str(path)), None)


@pytest.fixture(scope="module")
def sides(recording):
    return profile(recording("resnet18_eager")), profile(recording("resnet18"))


def ns(time_us):
    return round(time_us * 1000)


def test_the_parts_of_a_step_sum_to_it(sides):
    for side in sides:
        for step, row in zip(side.steps, step_breakdowns(side)):
            assert sum(ns(part.time_us) for part in row.parts) == ns(step.wall_us) == ns(row.wall_us)
            gpu = sum(ns(part.time_us) for part in row.parts if part.kind == "gpu")
            assert gpu == ns(step.gpu_busy_us)  # one device


def test_overlapping_kernels_count_once(tmp_path):
    """Computation before communication before copies; the rest of the step is idle."""
    events = [
        slice_("ProfilerStep#1", 0, 100, "user_annotation"),
        *launch("triton_poi_fused_add_0", 1, 10, 20),
        kernel("ncclDevKernel_AllReduce", 20, 20),
        kernel("Memcpy HtoD", 35, 10, cat="gpu_memcpy"),
    ]
    write_trace(tmp_path, events)
    (row,) = step_breakdowns(profile(tmp_path))
    times = {part.part: part.time_us for part in row.parts if part.kind == "gpu"}
    assert times == {"triton_pointwise": 20, "communication": 10, "memcpy": 5}
    assert sum(part.time_us for part in row.parts) == 100


def test_without_a_gpu_a_step_is_what_its_thread_does(tmp_path):
    write_trace(tmp_path, [slice_("ProfilerStep#1", 0, 100, "user_annotation"), slice_("aten::mm", 10, 50)])
    (row,) = step_breakdowns(profile(tmp_path))
    assert row.device is None and {part.kind for part in row.parts} == {"host"}
    assert sum(part.time_us for part in row.parts) == 100


def test_the_difference_is_accounted_for(sides):
    found = compare(*sides)
    assert found.step_time is not None
    assert sum(part.delta_us for part in found.parts) == pytest.approx(found.step_time.delta_us, abs=1e-6)
    for side in ("a", "b"):
        rows = sum(getattr(row, f"{side}_us") for row in found.kernel_categories)
        kernels = sum(getattr(row, side).time_us for row in found.kernels)
        (total,) = (getattr(figure, side) for figure in found.figures if figure.name == "gpu_time_us")
        assert ns(rows) == ns(kernels) == ns(total)


def test_three_noisy_steps_prove_nothing(sides):
    """13.6 and 13.0 ms: the eager steps alone differ by 5 ms."""
    time = compare(*sides).step_time
    assert time is not None and time.within_noise
    assert time.noise_us is not None and time.noise_us > 6000


def test_what_is_unknown_stays_unknown(sides):
    figures = {figure.name: figure for figure in compare(*sides).figures}
    assert (figures["compile_s"].a, figures["compile_s"].delta) == (None, None)


def test_the_command(recording, capsys, tmp_path):
    a, b = str(recording("resnet18_eager")), str(recording("resnet18"))
    assert main(["compare", a, b, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["a"]["worker"] == "vm_1119" and document["b"]["worker"] == "vm_424"
    assert "within the noise of 3 and 3 steps" in document["verdict"]
    assert main(["compare", a, b]) == 0
    out = capsys.readouterr().out
    assert document["verdict"] in out.replace("\n", " ") and "the parts sum to its time" in out
    assert main(["compare", a, str(tmp_path)]) == 1
    assert "there is no trace in it" in capsys.readouterr().err


def test_without_steps_whole_spans_are_compared(tmp_path, capsys):
    for name, dur in (("a", 5), ("b", 9)):
        (tmp_path / name).mkdir()
        write_trace(tmp_path / name, [kernel("k", 0, dur)])
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["comparison"]["step_time"] is None and document["comparison"]["parts"] == []
    assert document["verdict"].startswith("One side has no profiled steps")
