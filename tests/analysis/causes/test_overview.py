"""overview.py: the first sentence of the tab."""

from pathlib import Path
from typing import Any

import pytest

from profiles import answered, data_of, profile_with
from tb_torchcompile_plugin.analysis.causes.overview import overview
from tb_torchcompile_plugin.analysis.compile.compile_time import (
    CompileOverlap,
    compile_overlap,
    overlap_headline,
)
from tb_torchcompile_plugin.analysis.runtime.span_report import compile_report, compiled_sentence, span_report
from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.compile_data import CompileData
from traces import Event, launch, slice_

NOTHING = CompileOverlap(0, "the profiled steps")


def compiled(compile_id: str, **fields: object) -> pb.Compilation:
    return pb.Compilation(key=pb.CompileKey(compile_id=compile_id), duration_ns=2_000_000_000, **fields)  # type: ignore[arg-type]


def log(*rows: pb.Compilation) -> CompileData:
    return data_of(pb.CompileSummary(compilations=rows))


LOG = (compiled("0/0"), compiled("0/0", direction=pb.BACKWARD), compiled("1/0"))


def profile(
    folder: Path,
    data: CompileData | None,
    overlap: CompileOverlap | None = None,
    work_us: tuple[int, ...] = (157,),
    steps: tuple[int, ...] = (7086, 5597, 5379),
) -> Profile:
    """Steps of these lengths (µs); in each a kernel of so many µs on each device."""
    events, at = [], 0
    for number, length in enumerate(steps):
        events.append(slice_(f"ProfilerStep#{number}", at, length, "user_annotation"))
        events.append(slice_("aten::add", at, 99))
        for device, us in enumerate(work_us):
            events += launch("k", at + 9 + device, at + 20, us, device=device)
        at += length
    made = profile_with(folder, events or [slice_("aten::add", 0, 21_000)], data)
    return answered(made, compile_overlap, overlap)


def test_it_says_step_busy_share_and_compile_time(tmp_path: Path) -> None:
    said = overview(profile(tmp_path, log(*LOG), NOTHING)).headline
    assert said.startswith("Host-bound: 6.02 ms per step, GPU busy 2.61 %. ")
    assert said.endswith(" Mean of 3 steps. 2 compilations took 6.00 s, none inside the profiled steps.")


def test_it_names_the_steps_that_compiled(tmp_path: Path) -> None:
    some = CompileOverlap(1.2e6, "ProfilerStep#2")
    made = profile(tmp_path, log(*LOG), some)
    assert ", including 1.20 s inside ProfilerStep#2." in overview(made).headline
    assert overlap_headline(made) == "1.20 s of the compile time falls into ProfilerStep#2."


def test_it_claims_nothing_that_is_unknown(tmp_path: Path) -> None:
    assert overview(profile(tmp_path, log(*LOG))).headline.endswith("2 compilations took 6.00 s.")
    said = overview(profile(tmp_path, None, work_us=())).headline
    assert " per step, all on the CPU. " in said and said.endswith(" No compile data.")
    assert compiled_sentence(log()) == "Nothing was compiled."


def test_a_span_without_steps_is_one_window(tmp_path: Path) -> None:
    some = CompileOverlap(3000, "this span")
    made = profile(tmp_path, log(*LOG), some, steps=())
    assert overview(made).headline.startswith("21.0 ms in this span, all on the CPU. No compiled code runs")
    assert overview(made).headline.endswith("including 3.00 ms inside this span.")
    assert overlap_headline(made) == "3.00 ms of the compile time falls into this span."


@pytest.mark.parametrize(
    ("events", "header", "said"),
    [
        ([slice_("Torch-Compiled Region: 0/0", 0, 9)], {}, True),
        ([slice_("Torch-Compiled Region: 0/0", 0, 9)], {"deviceProperties": [{"id": 0}]}, False),
        ([slice_("aten::mm", 0, 9)], {}, False),
    ],
)
def test_who_could_have_named_kernels_is_told_how(
    tmp_path: Path, events: list[Event], header: dict[str, Any], said: bool
) -> None:
    hint = span_report(profile_with(tmp_path, events, **header)).unnamed_cpu_kernels
    assert ("TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1" in hint) is said
    assert bool(hint) is said


def test_several_devices_have_a_range(tmp_path: Path) -> None:
    made = profile(tmp_path, None, work_us=(157, 2047))
    assert "2 GPUs busy 2.61–34.0 %" in overview(made).headline


def test_what_is_counted_over_all_compilations() -> None:
    """Frames, not rows; ids begin anew with each epoch."""
    dynamo, more, other = (
        pb.Phase(name=name, exclusive_ns=s * 10**9)
        for name, s in (("dynamo", 1), ("dynamo", 2), ("other", 9))
    )
    anew = pb.Compilation(key=pb.CompileKey(compile_id="0/0", epoch=1), phases=[dynamo])
    hit = compiled("0/0", phases=[other, more])
    report = compile_report(log(hit, compiled("0/0", direction=pb.BACKWARD), anew))
    assert report.distinct_compilations == 2
    assert report.phases_s == pytest.approx({"dynamo": 3, "other": 9})
    assert [row.key for row in report.compilations] == ["0/0,0,forward", "0/0,0,backward", "0/0,1,forward"]


def test_several_backwards_of_one_frame_are_told_apart() -> None:
    backwards = (compiled("4/0", direction=pb.BACKWARD, start_ns=n) for n in (2, 3))
    rows = [compiled("4/0", start_ns=1), *backwards]
    answer = compile_report(log(*rows)).compilations
    values = [(row.key, row.part, row.parts) for row in answer]
    assert values == [("4/0,0,forward", 0, 1), ("4/0,0,backward", 0, 2), ("4/0,0,backward~2", 1, 2)]
