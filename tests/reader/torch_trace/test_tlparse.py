"""tlparse and this project read the same logs: compile ids, texts, metrics, graph breaks, restarts and failures.

Runs where `tlparse` is on the PATH (`pip install tlparse==0.4.3`, which needs no torch).
"""

import html
import json
import re
import shutil
import subprocess
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from recordings import Recording
from tb_torchcompile_plugin.compile_log.summary_pb2 import BACKWARD, CompileSummary
from tb_torchcompile_plugin.reader.torch_trace.structured_log import read_log
from tb_torchcompile_plugin.torch_names.records import CONFIG_FIELDS

TLPARSE = shutil.which("tlparse")
pytestmark = pytest.mark.skipif(
    TLPARSE is None, reason="tlparse is not installed: pip install tlparse==0.4.3"
)

# Files of one directory by compile id: name → how many.
Texts = dict[str, Counter[str]]


# Not all of old_logs: of torch 2.4 tlparse gives types of failures as "<class …>", and where autograd is compiled
# it has names of its own for two texts ("!0/-/-", "eval_with_key").
OLD = ["old_logs/2.6.0/basic", "old_logs/2.8.0/basic", "old_logs/2.8.0/ddp"]


@pytest.mark.parametrize(
    "program", ["breaks", "resnet18", "recompiles", "ddp", "resnet18_compile", "max_autotune", *OLD]
)
def test_the_same_as_tlparse(recording: Recording, tmp_path: Path, program: str) -> None:
    name, _, inside = program.partition("/")
    logs = recording(name) / inside
    for number, log in enumerate(sorted(logs.rglob("dedicated_log_torch_trace_*.log"))):
        folder = tmp_path / str(number)
        subprocess.run(
            [str(TLPARSE), str(log), "-o", str(folder), "--overwrite", "--no-browser"],
            check=True,
            capture_output=True,
        )
        summary = read_log(str(log))
        theirs, ours = _texts_of_tlparse(folder), _texts(summary)
        _check_metrics(theirs, summary)
        assert {key: dict(names) for key, names in theirs.items()} == ours
        assert _restarts_of_tlparse(folder) == _restarts(summary)


def _texts_of_tlparse(folder: Path) -> Texts:
    texts: Texts = defaultdict(Counter)
    for title, entry in json.loads((folder / "compile_directory.json").read_text()).items():
        compile_id = re.sub(r"_\d+$", "", title.strip("[]"))  # with the attempt, from 1
        for artifact in entry["artifacts"]:
            if not (folder / artifact["url"]).stat().st_size:
                continue
            name = re.sub(r"_\d+\.\w+$", "", artifact["name"])
            texts[compile_id][re.sub(r"^(inductor_output_code)_.*", r"\1", name)] += 1
    return texts


def _texts(summary: CompileSummary) -> dict[str, dict[str, int]]:
    """Settings are texts of their own here, part of the metrics' page there."""
    texts: Texts = defaultdict(Counter)
    for artifact in summary.artifacts:
        if artifact.name not in CONFIG_FIELDS:
            texts[artifact.key.compile_id or "-/-"][artifact.name] += 1
    return {key: dict(names) for key, names in texts.items()}


def _check_metrics(theirs: Texts, summary: CompileSummary) -> None:
    """Metrics are pages there, and rows here: taken out of `theirs`."""
    for compile_id, names in theirs.items():
        for name, backward in (("compilation_metrics", False), ("bwd_compilation_metrics", True)):
            rows = [row for row in summary.compilations if row.metrics and row.key.compile_id == compile_id]
            assert names.pop(name, 0) == sum((row.direction == BACKWARD) == backward for row in rows)
    for compile_id in [key for key, names in theirs.items() if not names]:
        del theirs[compile_id]


def _restarts_of_tlparse(folder: Path) -> Counter[tuple[str, str]]:
    """(compile id, kind) of each row of its table of failures and restarts."""
    page = folder / "failures_and_restarts.html"
    rows = re.findall(r"<tr>(.*?)</tr>", page.read_text(), re.DOTALL) if page.exists() else []
    cells = [re.findall(r"<td>(.*?)</td>", row, re.DOTALL) for row in rows]
    plain = [[html.unescape(re.sub("<.*?>", "", cell)).strip() for cell in row] for row in cells if row]
    return Counter((re.sub(r"_\d+$", "", row[0].strip("[]")), row[1]) for row in plain)


def _restarts(summary: CompileSummary) -> Counter[tuple[str, str]]:
    restarted = Counter(
        (row.key.compile_id, "RestartAnalysis") for row in summary.compilations if row.restart_reasons
    )
    failed = Counter(
        (row.key.compile_id, row.failure.type) for row in summary.compilations if row.HasField("failure")
    )
    return restarted + failed
