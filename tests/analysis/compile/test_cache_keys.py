"""Two runs of a program whose cache keys differ: the part that differs is named first."""

from pathlib import Path

import pytest
from test_startup import OTHER_CODE, TUNED, process

from live import HAS_TORCH, run, summaries
from tb_torchcompile_plugin.analysis.compile.cache_keys import key_notes
from tb_torchcompile_plugin.compile_log.summary_pb2 import FORWARD, CompileSummary
from tb_torchcompile_plugin.reader.compile_data import CompileData


def data(summary: CompileSummary, torch_version: str = "2.13.0", file: str = "/m.py") -> CompileData:
    summary.environment.torch_version = torch_version
    for row in summary.compilations:
        row.file = file
    return CompileData(summary, "summary", "")


def test_one_setting() -> None:
    notes = key_notes(data(process()), data(process(key="b", setting=TUNED)))
    assert notes == ["The compile cache keys of 1 of 1 graph differ in setting max_autotune (False → True)"]


def test_hits_have_keys_too() -> None:
    (note,) = key_notes(data(process(hit=True)), data(process(hit=True, key="b", setting=TUNED)))
    assert note.endswith("differ in setting max_autotune (False → True)")


def test_one_line_of_a_program_in_another_folder() -> None:
    notes = key_notes(data(process()), data(process(key="b", code=OTHER_CODE), file="/copy/m.py"))
    assert notes == [
        "The compile cache keys of 1 of 1 graph differ in the code of the graph at m.py:4"
        "  # add = aten.add(x, 1) → add = aten.add(x, 2)"
    ]


def test_another_torch_explains_its_settings_and_graphs() -> None:
    a = process(more_parts=("[t1] torch_version: \0\1", "[s1] system_info[hash]: 1"))
    parts = ("[t2] torch_version: \0\2", "[s2] system_info[hash]: 2")
    b = process(key="b", code=OTHER_CODE, setting=TUNED, more_parts=parts)
    (note,) = key_notes(data(a), data(b, "2.14.1"))
    assert "the torch version (2.13.0 → 2.14.1), the code of the graph at m.py:4, setting" in note


def test_another_gpu() -> None:
    a, b = (
        process(key=name, more_parts=(f"[{name}] system_info[device]: {{'name': '{name}'}}",))
        for name in "AB"
    )
    assert key_notes(data(a), data(b)) == [
        "The compile cache keys of 1 of 1 graph differ in the device of the system ({'name': 'A'} → {'name': 'B'})"
    ]


def test_the_same_keys_and_unrelated_programs_are_not_mentioned() -> None:
    assert key_notes(data(process()), data(process())) == []
    assert key_notes(data(process()), data(process(key="b", setting=TUNED), file="/other.py")) == []
    assert key_notes(data(process()), None) == []


def test_parts_that_were_not_recorded() -> None:
    a, b = process(), process(key="b", setting=TUNED)
    del b.artifacts[:]
    assert key_notes(data(a), data(b)) == [
        "The compile cache keys of 1 of 1 graph differ, and the parts of these keys were not recorded"
    ]


PROGRAM = """
    import torch
    import torch._inductor.config as config
    from tb_torchcompile_plugin import CompileRecorder
    {setting}

    def f(x):
        return torch.{function}(x) + 1

    with CompileRecorder("{logdir}"):
        torch.compile(f)(torch.ones(8))
"""


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed; it is in the dev extra")
@pytest.mark.torch
def test_runs_of_torch_with_one_change(tmp_path: Path) -> None:
    for logdir, setting, function in (
        ("a", "", "sin"),
        ("option", "config.epilogue_fusion = False", "sin"),
        ("source", "", "cos"),
    ):
        run(PROGRAM.format(logdir=logdir, setting=setting, function=function), tmp_path)
    a, option, source = (
        CompileData(summaries(tmp_path / name)[-1], "summary", "") for name in ("a", "option", "source")
    )
    assert key_notes(a, option) == [
        "The compile cache keys of 1 of 1 graph differ in setting epilogue_fusion (True → False)"
    ]
    assert "differ in the code of the graph  # sin: " in key_notes(a, source)[0]


def graphs(*rows: tuple[str, int, str]) -> CompileData:
    """One FX graph of a function `forward` for each file, line and key."""
    summary = CompileSummary()
    for number, (file, line, key) in enumerate(rows):
        row = summary.compilations.add(file=file, line=line, function="forward", direction=FORWARD)
        row.key.compile_id = f"{number}/0"
        row.cache.add(cache="fx_graph", result="miss", key=key)
    return CompileData(summary, "summary", "")


@pytest.mark.parametrize(
    ("before", "now", "changed"),
    [
        ([("m.py", 1, "a"), ("m.py", 50, "b")], [("m.py", 1, "a"), ("m.py", 1, "x"), ("m.py", 50, "b")], ""),
        ([("m.py", 1, "a"), ("m.py", 50, "b")], [("m.py", 3, "a"), ("m.py", 52, "x")], "1 of 2 graphs"),
        ([("a/m.py", 1, "a"), ("b/m.py", 1, "b")], [("a/m.py", 1, "x"), ("b/m.py", 1, "b")], "1 of 2 graphs"),
        ([("a/m.py", 1, "a"), ("b/n.py", 1, "b")], [("c/m.py", 1, "a"), ("c/n.py", 1, "x")], "1 of 2 graphs"),
        ([("", 0, "a")], [("", 0, "x")], ""),  # nothing says that they are one
    ],
    ids=["a recompilation", "other lines", "files of one name", "another folder", "no file"],
)
def test_only_the_same_graphs_are_compared(
    before: list[tuple[str, int, str]], now: list[tuple[str, int, str]], changed: str
) -> None:
    notes = key_notes(graphs(*before), graphs(*now))
    assert [changed in note for note in notes] == ([True] if changed else [])
