"""The gate and the baseline as commands: statuses, files, and recordings in which one thing was made worse."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gates import a_run, add_break, add_recompile, judged, slow_down
from tb_torchcompile_plugin.analysis.compare.gate import gate, read_settings
from tb_torchcompile_plugin.analysis.compare.measures import METRICS, Measure, MeasuredItem
from tb_torchcompile_plugin.cli.command import main
from tb_torchcompile_plugin.cli.compare import MAX_BYTES, escaped, junit, markdown
from tb_torchcompile_plugin.reader.memo import Memo
from traces import kernel, slice_, write_trace

pytestmark = pytest.mark.slow

COUNTS = ("breaks>0", "skipped>0", "recompiles>0", "graphs>0", "guards>0", "kernels>0", "cache_misses>0")
TIMES = ("step>3%", "compile>20%", "kernel:triton_*>10%")


def compare(base: Path, head: Path, *conditions: str, **options: str) -> int:
    """The exit status."""
    words = [word for one in conditions for word in ("--fail-on", one)]
    words += [word for name, value in options.items() for word in (f"--{name}", value)]
    return main(["compare", str(base), str(head), *words])


@pytest.mark.parametrize(
    ("name", "conditions"),
    [
        ("resnet18", (*COUNTS, *TIMES)),
        ("breaks", (*COUNTS, *TIMES)),
        ("ddp", (*COUNTS, *TIMES)),
        ("recompiles", COUNTS),
        ("resnet18_eager", ("step>3%", "kernel>10%")),
    ],
)
def test_a_recording_equals_itself(recording, capsys, name, conditions):
    folder = recording(name)
    assert compare(folder, folder, *conditions) == 0
    assert f"Passed: none of {len(conditions)} conditions holds." in capsys.readouterr().out


def test_a_baseline_replaces_its_run(recording, tmp_path):
    folder, file = recording("breaks"), tmp_path / "base.tbtc"
    assert main(["baseline", "save", str(folder), str(file)]) == 0
    assert compare(file, folder, *COUNTS, *TIMES) == compare(folder, file, *COUNTS, *TIMES) == 0
    assert compare(file, file, *COUNTS, *TIMES) == 0


def test_eager_against_compiled(recording, capsys):
    """Faster in kernels, equal in steps; what an eager run compiled is not known, and that is no pass."""
    eager, compiled = recording("resnet18_eager"), recording("resnet18")
    assert compare(eager, compiled, "step>3%", "kernel>10%") == 0
    out = capsys.readouterr().out
    assert "Kernel time per step: 2.27 ms → 1.65 ms, −613 µs (−27.1 %)." in out
    assert compare(eager, compiled, "step>3%", "breaks>0") == 4
    out = capsys.readouterr().out
    assert "1 of 2 conditions cannot be checked (breaks>0)" in out and "no compile data" in out
    assert compare(eager, compiled, "step>3%", "breaks>0", allow="unknown") == 0
    assert compare(compiled, eager, "kernel>10%") == 3
    assert "Kernel time per step: 1.65 ms → 2.27 ms" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "fails", "where", "why"),
    [
        (add_break, ["breaks>0"], "train/model.py:12", "Failed to trace builtin operator"),
        (add_recompile, ["recompiles>0"], "", "0/0: s == 2.5"),
        (slow_down("triton_red", 1.2), ["kernel:triton_*>10%"], "models/resnet.py:", "triton_red"),
    ],
)
def test_one_thing_that_is_worse_is_red_and_named(
    recording, tmp_path, capsys, change: Callable[[Path], None], fails, where, why
):
    shutil.copytree(recording("resnet18"), tmp_path / "worse")
    change(tmp_path / "worse")
    checked = ("step>3%", "breaks>0", "recompiles>0", "kernels>0", "kernel:triton_*>10%")
    base = tmp_path / "base.tbtc"
    main(["baseline", "save", str(recording("resnet18")), str(base)])
    main(["baseline", "save", str(tmp_path / "worse"), str(tmp_path / "worse.tbtc")])
    for head in (tmp_path / "worse", tmp_path / "worse.tbtc"):
        assert compare(base, head, *checked, junit=str(tmp_path / "j.xml")) == 3
        failed = [
            one.get("name")
            for one in ElementTree.parse(tmp_path / "j.xml").iter("testcase")
            if len(one.findall("failure"))
        ]
        assert failed == fails
        out = capsys.readouterr().out
        assert where in out and why in out
    assert compare(tmp_path / "worse.tbtc", base, *checked) == 0  # fixed


def test_files_for_others(recording, tmp_path, monkeypatch):
    shutil.copytree(recording("resnet18"), tmp_path / "worse")
    add_break(tmp_path / "worse")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "summary.md").write_text("# Before\n")
    config = '[gate]\nname = "resnet18 on H200"\nfail_on = ["breaks>0", "guards>5%"]\n'
    (tmp_path / "tb_torchcompile.toml").write_text(config)
    files = {"config": "tb_torchcompile.toml", "markdown": "summary.md", "junit": "gate.xml"}
    assert compare(recording("resnet18"), tmp_path / "worse", "step>3%", **files) == 3
    text = (tmp_path / "summary.md").read_text()
    assert text.startswith("# Before\n### ❌ torch.compile: resnet18 on H200\n")
    assert "- train/model.py:12: graph break: Failed to trace builtin operator\n" in text
    assert "\ntb-torchcompile compare resnet18 worse --fail-on 'breaks>0' --fail-on 'guards>5%'" in text
    assert str(tmp_path) not in text and str(recording("resnet18")) not in text
    suite = ElementTree.parse(tmp_path / "gate.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "0")
    assert [case.get("name") for case in suite] == ["breaks>0", "guards>5%", "step>3%"]


def test_what_is_called_like_markup_stays_text(tmp_path):
    evil = "|a|\n# b <script>x</script> [c](d) `e` *f* _g_ @h ![i](j) \x1b[31m <!-- "
    broken = MeasuredItem(evil, evil, evil, 1, 1)
    measures: dict[str, Any] = {name: Measure(why_unknown=evil) for name in METRICS} | {"breaks": Measure(0)}
    base = a_run(**measures)
    head = a_run(evil, **measures | {"breaks": Measure(1, items=[broken])})
    report = gate([base], head, read_settings(["breaks>0", "step>3%"], [], evil))
    text = markdown(report, ["a`b", "x y"])
    assert "<script>" not in text and "\x1b" not in text and "\n# b" not in text and "](d)" not in text
    assert "\ntb-torchcompile compare 'a`b' 'x y' --fail-on" in text
    rows = [one for one in text.splitlines() if one.startswith("| breaks")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [7]
    cases = ElementTree.fromstring(junit(report)).iter("testcase")
    assert [case.get("name") for case in cases] == ["breaks>0", "step>3%"]


@pytest.mark.parametrize("torch", ["2.13", "2.14"])
def test_markdown_has_the_command_to_reproduce_it(torch):
    base, head = (a_run(torch=of, breaks=Measure(0)) for of in ("2.13", torch))
    settings = read_settings(["breaks>0", "step>3%"], ["gpu", "unknown"], "")
    command = (
        "tb-torchcompile compare a b --fail-on 'breaks>0' --fail-on 'step>3%' --allow gpu --allow unknown"
    )
    assert command in markdown(gate([base], head, settings), ["a", "b"]).splitlines()


def test_markdown_is_never_more_than_github_shows():
    names = [f"kernel:{number}{'x' * 500}>1%" for number in range(2000)]
    run = a_run()
    text = markdown(judged(run, run, *names), ["a", "b"])
    assert len(text.encode()) <= MAX_BYTES and text.endswith("the size of a summary.\n")
    assert escaped("a\nb") == "a b"


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_closed_pipe_does_not_change_the_verdict(recording, as_json):
    folder = str(recording("breaks"))
    words = [sys.executable, "-m", "tb_torchcompile_plugin.cli", "compare", folder, folder]
    words += ["--fail-on", "breaks>=0"]
    with subprocess.Popen([*words, *as_json], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (3, b"")


def test_fewer_breaks_in_a_damaged_log_are_not_known(recording, tmp_path, capsys):
    log = next(recording("breaks").glob("*.log"))
    for name, data in (("base", log.read_bytes()), ("head", _damaged(log.read_bytes()))):
        (tmp_path / name).mkdir()
        (tmp_path / name / log.name).write_bytes(data)
    assert compare(tmp_path / "base", tmp_path / "head", "breaks>0", "compile>50%") == 4
    assert "candidate: 1 record of the compile data could not be read" in capsys.readouterr().out


def _damaged(log: bytes) -> bytes:
    """Within the last of its breaks."""
    return log[: log.rindex(b"dynamo_graph_break_reason") + 10]


def test_nothing_runs_on_when_the_verdict_is_there(recording, monkeypatch):
    """A thread that is inside of numpy when the process ends would make its status that of SIGABRT."""
    monkeypatch.setattr(Memo, "begin", lambda *_: pytest.fail("a thread was started"))
    folder = recording("resnet18")
    assert compare(folder, folder, "step>3%") == 0
    assert main(["compare", str(folder), str(folder)]) == main(["what-if", str(folder)]) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--fail-on", "stepp>3%"],
        ["--fail-on", "breaks>1ms"],
        ["--allow", "everything"],
        ["--config", "nosuch.toml"],
        ["--config", "bad.toml"],
        ["--config", "empty.toml"],
    ],
)
def test_wrong_arguments_are_two_and_one_line(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    write_trace(tmp_path, [slice_("op", 0, 1)])
    (tmp_path / "bad.toml").write_text("[gate")
    (tmp_path / "empty.toml").write_text("")
    assert main(["compare", ".", ".", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert any(one.strip("-").split(">")[0] in line for one in arguments[1:])


def test_nothing_readable_is_one(tmp_path, capsys):
    write_trace(tmp_path, [slice_("op", 0, 1), kernel("k", 0, 1)])
    (tmp_path / "bad.tbtc").write_text("no baseline")
    for base in (tmp_path / "nosuch", tmp_path / "bad.tbtc"):
        assert compare(base, tmp_path, "breaks>0") == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert base.name in line


def test_a_baseline_alone_is_compared_without_conditions(recording, tmp_path, capsys):
    file = str(tmp_path / "base.tbtc")
    assert main(["baseline", "save", str(recording("breaks")), str(recording("breaks")), file]) == 0
    assert re.search(r"base\.tbtc: 2 runs, [\d.]+ kB", capsys.readouterr().out)
    assert main(["compare", file, str(recording("breaks")), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["outcome"] == "passed" and len(report["baseline"]) == 2 and report["conditions"] == []
    assert main(["compare", str(recording("breaks")), file]) == 2
    assert "contains 2" in capsys.readouterr().err
    assert main(["baseline", "save", str(recording("breaks")), str(tmp_path / "base.bin")]) == 2


def test_another_gpu_has_status_four_and_is_named(recording, tmp_path, capsys):
    shutil.copytree(recording("resnet18"), tmp_path / "other")
    (path,) = (tmp_path / "other").glob("*.pt.trace.json")
    path.write_text(path.read_text().replace("NVIDIA H200", "NVIDIA H100"))
    assert compare(recording("resnet18"), tmp_path / "other", "step>3%") == 4
    assert "The baseline ran on NVIDIA H200, the candidate on NVIDIA H100" in capsys.readouterr().out
    assert compare(recording("resnet18"), tmp_path / "other", "step>3%", allow="gpu") == 0


def test_a_run_that_fell_back_to_the_cpu_is_four(tmp_path, capsys):
    step = [slice_("ProfilerStep#1", 0, 90, "user_annotation"), slice_("op", 3, 4)]
    card = {"id": 0, "name": "H200"}
    for name, work, cards in (("base", [kernel("k", 20, 30)], [card]), ("head", [], [])):
        write_trace(tmp_path / name, [*step, *work], deviceProperties=cards)
    assert compare(tmp_path / "base", tmp_path / "head", "step>3%") == 4
    assert "The baseline ran on H200, the candidate on CPU" in capsys.readouterr().out


def test_of_a_job_all_ranks_count(recording, tmp_path, capsys):
    """One of the two recompiled twice."""
    assert compare(recording("ddp"), recording("ddp"), "recompiles>0") == 0
    out = capsys.readouterr().out
    assert re.search(r"^Recompiles +2 +2 ", out, re.MULTILINE) and "The candidate ran on 2 ranks" in out
    assert re.search(r"^Guards +1,707 +1,707 ", out, re.MULTILINE)
    assert compare(recording("breaks"), recording("ddp"), "recompiles>0") == 4
    words = " ".join(capsys.readouterr().out.split())
    assert "Ranks: 1 of 1 recorded in the baseline, 2 of 2 recorded in the candidate." in words
    shutil.copytree(recording("ddp"), tmp_path / "one")
    for file in (*(tmp_path / "one").glob("*rank_1_*"), *(tmp_path / "one").glob("rank1.*")):
        file.unlink()
    assert compare(recording("ddp"), tmp_path / "one", "recompiles>0") == 4
    assert "1 of 2 recorded in the candidate" in capsys.readouterr().out


@pytest.mark.parametrize("logs", [True, False])
def test_a_job_of_which_only_digests_are_left(recording, tmp_path, capsys, logs):
    """Its steps are those of the traces. Counts are those of its logs: a digest does not say what was lost."""
    head = tmp_path / "head"
    shutil.copytree(recording("ddp"), head)
    assert main(["index", str(head)]) == 0
    for file in (*head.glob("*.pt.trace.json*"), *(() if logs else head.glob("*.log"))):
        file.unlink()
    assert compare(recording("ddp"), head, "step>3%") == 0
    assert compare(head, head, "step>3%") == 0
    assert re.search(r"^Step time +(\d.*s) +\1 ", capsys.readouterr().out, re.MULTILINE)
    assert compare(recording("ddp"), head, "recompiles>0") == (0 if logs else 4)
    assert ("there is no compile data" in capsys.readouterr().out) != logs
    base = tmp_path / "base.tbtc"
    assert main(["baseline", "save", str(head), str(base)]) == 0 == compare(base, head, "step>3%")
