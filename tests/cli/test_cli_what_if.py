"""`tb-torchcompile what-if`: what could be fixed, in a terminal."""

import json
import re
import shutil
from pathlib import Path

import pytest

from recordings import Recording
from terminal import Run, command_line
from traces import in_steps, launch, slice_, write_trace


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return command_line(capsys, "what-if")


def test_fixes_that_are_picked_are_predicted_together(run: Run, recording: Recording) -> None:
    status, out, _ = run(recording("resnet18"), "--fix", "cuda_graphs", "--fix", "eager", "--fix", "guards")
    assert status == 0
    assert re.search(
        r"^With 3 fixes, a step takes about 1\.\d+ ms \(.+\) instead of 13\.0 ms\.", out, re.MULTILINE
    )
    assert 'torch.compile(model, mode="reduce-overhead")' in out
    titles = [line.partition(": ")[0] for line in out.splitlines() if line.startswith("the step ")]
    assert titles == ["the step now"] * 2 + ["the step after"] * 2


def test_json_is_the_answer_of_the_route(run: Run, recording: Recording) -> None:
    status, out, _ = run(recording("resnet18"), "--fix", "cuda_graphs", "--json")
    answer = json.loads(out)
    assert status == 0 and answer["selected"] == ["cuda_graphs"]
    assert answer["combined"] == next(
        row["predicted"] for row in answer["fixes"] if row["id"] == "cuda_graphs"
    ) | {"after_us": pytest.approx(answer["combined"]["after_us"])}


def test_an_id_of_no_fix_is_a_wrong_argument(run: Run, recording: Recording) -> None:
    status, out, err = run(recording("resnet18"), "--fix", "cuda_grpahs")
    (line,) = err.splitlines()
    assert (status, out) == (2, "")
    assert "there is no fix 'cuda_grpahs' in this span" in line and "'cuda_graphs', 'eager'" in line


def test_the_begin_of_an_id_will_do_where_only_one_begins_so(run: Run, recording: Recording) -> None:
    status, out, _ = run(recording("resnet18"), "--fix", "cuda_gr…", "--json")
    assert status == 0 and json.loads(out)["selected"] == ["cuda_graphs"]
    assert run(recording("resnet18"), "--fix", "operator:")[0] == 2


@pytest.mark.slow
def test_run_worker_and_span_are_chosen(run: Run, recording: Recording, tmp_path: Path) -> None:
    for name in ("resnet18", "breaks"):
        shutil.copytree(recording(name), tmp_path / name)
    _, out, _ = run(tmp_path, "--run", "resnet18", "--json")
    _, other, _ = run(tmp_path, "--run", "breaks", "--json")
    assert json.loads(out)["step"] != json.loads(other)["step"]
    _, first, _ = run(tmp_path, "--run", "breaks")
    worker, span = first.splitlines()[0].split("  ")[1:]
    chosen = ["--worker", worker.removeprefix("worker "), "--span", span.removeprefix("span ")]
    assert run(tmp_path, *chosen)[1] == first
    status, _, err = run(tmp_path, "--run", "beaks")
    assert status == 2 and "there is no run 'beaks'" in err and "'breaks'" in err


def test_without_a_gpu_the_reason_for_no_prediction_is_printed(run: Run, tmp_path: Path) -> None:
    status, out, _ = run(write_trace(tmp_path, [slice_("aten::mm", 0, 5)]))
    assert status == 0 and "No fix is predicted." in out and "no GPU work" in out


def test_without_a_trace_there_is_nothing_to_walk(run: Run, recording: Recording) -> None:
    (log,) = recording("breaks").glob("dedicated_log*")
    status, _, err = run(log)
    assert status == 1 and "it contains no trace" in err


def test_ids_are_whole(run: Run, tmp_path: Path) -> None:
    """However long: they are what `--fix` asks for."""
    name = f"mylib::{'an_operator_with_a_long_name_' * 4}"
    make = [slice_(name, 10, 9_000), *launch("k", 9_500, 9_600, 100)]
    status, out, _ = run(write_trace(tmp_path, in_steps(*make, every=20_000)))
    (head,) = [line for line in out.splitlines() if line.startswith("Sentence")]
    ids = "".join(line[head.rindex("Id") :].strip() for line in out.splitlines())
    assert status == 0 and f"operator:{name}::0" in ids
