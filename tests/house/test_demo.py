"""`make demo`: what it needs, what it checks, and the whole of it once."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import demo

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"

ROW: list[dict[str, Any]] = [{}]
COMPILED = {
    "compilations": ROW,
    "distinct_compilations": 1,
    "graph_breaks": ROW,
    "recompiles": ROW,
    "generated_kernels": ROW,
    "compile_times": {"f": [1.0]},
}
WORKERS = [{"worker": "w", "spans": [{"span": "1"}]}]
RUNS = {"runs": [{"run": name, "workers": WORKERS} for name in (demo.RECORDED_HERE, *demo.SHIPPED)]}
SPAN = {"steps": ROW, "kernel_categories": ROW}
TABS = {"torch_compile": {"enabled": True}, "pytorch_profiler": {"enabled": True}}


def prerequisites(python: str = sys.executable, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["/bin/sh", str(SCRIPTS / "prerequisites.sh"), python]
    everything = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, env=everything, check=False)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a server would answer, by the last part of the address; a test may change it."""
    table: dict[str, Any] = {
        "plugins_listing": TABS,
        "index.js": "export function render",
        "runs": RUNS,
        "compile": COMPILED,
        "span": SPAN,
    }
    table["asked"] = asked = []

    def fetch(url: str) -> bytes:
        asked.append(url)
        answer = table[urlsplit(url).path.rpartition("/")[2]]
        if isinstance(answer, list):
            answer = answer.pop(0)
        return answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()

    monkeypatch.setattr(demo, "fetch", fetch)
    monkeypatch.setattr(demo, "PATIENCE_S", 0)
    monkeypatch.setattr("time.sleep", lambda _: None)
    return table


class TestPrerequisites:
    def test_nothing_is_missing_here(self) -> None:
        answer = prerequisites()
        assert (answer.returncode, answer.stderr) == (0, "")

    def test_a_missing_compiler_is_named_with_its_package(self) -> None:
        answer = prerequisites(CXX="/nowhere/g++")
        assert answer.returncode == 1
        assert "a C++ compiler ('/nowhere/g++')" in answer.stderr
        assert "Install it with:" in answer.stderr

    def test_a_missing_python_is_named(self) -> None:
        answer = prerequisites("python3-of-nowhere")
        assert answer.returncode == 1
        assert "there is no 'python3-of-nowhere'" in answer.stderr

    @pytest.mark.parametrize(
        ("fails_on", "named"),
        [
            ("version_info", "Missing: Python 3.10 or newer"),
            ("ensurepip", "Missing: the venv module of python3."),
            ("Python.h", "Missing: the headers of python3."),
        ],
    )
    def test_what_an_unfit_python_lacks_is_named(self, tmp_path: Path, fails_on: str, named: str) -> None:
        python = tmp_path / "python"
        python.write_text(
            "#!/bin/sh\n"
            f'case "$2" in *print*) ;; *"{fails_on}"*) exit 1 ;; esac\n'
            f'exec {sys.executable} "$@"\n'
        )
        python.chmod(0o755)
        answer = prerequisites(str(python))
        assert answer.returncode == 1
        assert named in answer.stderr
        assert answer.stderr.count("Missing:") == 1

    def test_node_is_not_needed_to_install_or_skip(self, tmp_path: Path) -> None:
        """Without Node.js a frontend step says that it is left out, and `make` goes on."""
        for tool in ("dirname", "sh"):
            (tmp_path / tool).symlink_to(shutil.which(tool) or tool)
        command = ["/bin/sh", str(SCRIPTS / "node.sh"), "the frontend's checks", "false"]
        answer = subprocess.run(
            command, capture_output=True, text=True, env={"PATH": str(tmp_path)}, check=False
        )
        assert answer.returncode == 0
        assert "Left out: the frontend's checks. It needs Node.js 20.19 or newer" in answer.stderr


class TestCheck:
    def test_says_what_answered(self, answers: dict[str, Any]) -> None:
        answers["span"] = [{"progress": {"file": "x"}}, SPAN]
        demo.PATIENCE_S = 5
        assert "1 profiler cycle, 1 compilation, 1 graph break, 1 recompile." in demo.check("http://x/")
        spans = [parse_qs(urlsplit(url).query)["span"] for url in answers["asked"] if "/span?" in url]
        assert spans == [["1"], ["1"]]

    @pytest.mark.parametrize(
        ("route", "answer", "complaint"),
        [
            ("plugins_listing", {**TABS, "torch_compile": {"enabled": False}}, "not active: torch_compile"),
            ("plugins_listing", {"torch_compile": {"enabled": True}}, "not active: pytorch_profiler"),
            ("index.js", "Not found", "not the entry module"),
            ("runs", {"runs": RUNS["runs"][:2]}, "not listed: shipped_h200_fixed, shipped_h200_graph_breaks"),
            ("compile", {**COMPILED, "graph_breaks": []}, "no graph_breaks"),
            ("compile", {**COMPILED, "recompiles": []}, "no recompiles"),
            ("span", {**SPAN, "kernel_categories": []}, "one profiler cycle with steps and kernels"),
            ("span", {"progress": {"file": "slow.json"}}, "slow.json is still being read"),
        ],
    )
    def test_complains_about_what_is_missing(
        self, answers: dict[str, Any], route: str, answer: object, complaint: str
    ) -> None:
        answers[route] = answer
        with pytest.raises(demo.DemoFailed, match=complaint):
            demo.check("http://x/")

    def test_a_tensorboard_that_does_not_start_is_quoted(self, tmp_path: Path) -> None:
        python = tmp_path / "python"
        python.write_text("#!/bin/sh\necho 'no such thing' >&2\nexit 1\n")
        python.chmod(0o755)
        with (
            pytest.raises(demo.DemoFailed, match="did not start:\nno such thing"),
            demo.tensorboard(tmp_path, python=str(python)),
        ):
            pass


@pytest.mark.torch
@pytest.mark.slow
def test_the_whole_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What `make demo CHECK=1` runs once everything is installed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "argv", ["demo.py", "--check", "--logdir", str(tmp_path / "logdir")])
    assert demo.main() == 0
    captured = capfd.readouterr()
    assert "The TORCH COMPILE tab answers: 1 profiler cycle, " in captured.out
    assert "warning" not in (captured.out + captured.err).lower()
    runs = {run.name: {path.name for path in run.iterdir()} for run in (tmp_path / "logdir").iterdir()}
    assert runs.keys() == {demo.RECORDED_HERE, *demo.SHIPPED}
    traces = [name for name in runs[demo.RECORDED_HERE] if name.endswith(".pt.trace.json")]
    assert len(traces) == 1
    assert {name.replace(".trace.json", ".compile.pb") for name in traces} <= runs[demo.RECORDED_HERE]
