"""Files of other versions, tools and layouts from public reports: read as what they are, or named and nothing else."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from compile_records import line, mark
from served import ask_span, make_client, make_plugin
from tb_torchcompile_plugin.cli.command import main
from tb_torchcompile_plugin.cli.text import NOTHING_COMPILED_SHOWS, NOTHING_IN_A_PART, NOTHING_TO_CHANGE
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.reader.trace.kineto import read_trace
from traces import in_steps, launch, slice_

CASES = Path(__file__).parents[1] / "data" / "cases"
Capture = pytest.CaptureFixture[str]
# by folder: what the line names, and what it says to do instead
OTHERS = {
    "ascend27_trace_view": ("torch_npu", "TORCH_TRACE"),
    "jax_trace": ("JAX", "torch.profiler"),
    "export_stacks": ("export_stacks", "export_chrome_trace"),
}


def report(folder: Path, capsys: Capture) -> dict[str, Any]:
    assert main(["report", str(folder), "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def workers(document: dict[str, Any]) -> list[tuple[str, int | None, list[str]]]:
    return [
        (worker["worker"], worker["rank"], [span["span"] for span in worker["spans"]])
        for worker in document["runs"][0]["workers"]
    ]


def only_span(document: dict[str, Any]) -> dict[str, Any]:
    (worker,) = document["runs"][0]["workers"]
    (span,) = worker["spans"]
    return dict(span)


@pytest.mark.parametrize("case", OTHERS)
@pytest.mark.parametrize("is_folder", [True, False])
def test_what_is_not_read_is_named_in_one_line(case: str, is_folder: bool, capsys: Capture) -> None:
    (file,) = (path for path in (CASES / case).rglob("*") if path.is_file())
    assert main(["report", str(CASES / case if is_folder else file)]) == 1
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert out == "" and file.name in line
    assert all(word in line for word in OTHERS[case])


def test_what_is_not_read_is_not_named_next_to_what_is(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "train.log").write_bytes((CASES / "torch_logs_text/train.log").read_bytes())
    write(tmp_path / "x.1.pt.trace.json", rank_events(0))
    assert main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().err == ""


def test_the_layout_of_torch_1_8_is_read(capsys: Capture) -> None:
    span = only_span(report(CASES / "kineto109_layout_1_8", capsys))
    (gpu,) = span["gpu"]
    assert gpu["busy_us"] == 30 * 700
    assert [(row["name"], row["wall_us"]) for row in span["steps"]] == [
        ("ProfilerStep#2", 9990),
        ("ProfilerStep#3", 9990),
        ("ProfilerStep#4", 9990),
    ]
    assert [(row["name"], row["launches"]) for row in span["kernels"]] == [("volta_sgemm_64x64_nt", 30)]


def test_windows_paths_keep_their_backslashes(capsys: Capture) -> None:
    folder = CASES / "pytorch98432_windows_paths"
    (file,) = folder.iterdir()
    assert {name for name in read_trace(str(file)).names if ".py" in name} == {
        r"C:\Users\user\train.py(17): step",
        r"D:\new\tools\run.py(3): <module>",
        r"torch\cuda\__init__.py(219): _lazy_init",
    }
    places = [place for row in report(folder, capsys)["findings"] for place in row["where"]]
    assert r"C:\Users\user\train.py:17" in places


def test_a_path_is_no_tab_only_where_the_file_has_raw_backslashes(tmp_path: Path) -> None:
    write(tmp_path / "x.json", [slice_("C:\tx", 1, 2, "user_annotation")])
    assert read_trace(str(tmp_path / "x.json")).names == ["C:\tx"]


def test_what_was_repaired_is_not_missing(tmp_path: Path, capsys: Capture) -> None:
    (file,) = (CASES / "pytorch130622_bytes").iterdir()
    (notice,) = read_trace(str(file)).notices
    assert not notice.is_missing_something and "invalid UTF-8" in notice.problem
    name, broken = b"aten::mm", b"aten::m\xffm"
    text = json.dumps({"traceEvents": [slice_("aten::mm", 1, 2)]}).encode()
    (tmp_path / "x.1.pt.trace.json").write_bytes(text.replace(name, broken))
    assert main(["report", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "repaired: 1" in err and NOTHING_IN_A_PART not in out


def test_a_damaged_name_is_repaired_and_marked(capsys: Capture) -> None:
    """The name of a C function, of which the profiler wrote bytes of other memory."""
    rows = report(CASES / "pytorch130622_bytes", capsys)["findings"]
    (row,) = [row for row in rows if row["rule"] == "library"]
    assert f"getpass.py(0): {5 * chr(0xFFFD)}/ (name repaired)" in row["title"]
    assert row["fix"].isprintable()


def test_an_unreadable_record_may_be_what_is_missing(capsys: Capture) -> None:
    assert main(["report", str(CASES / "attack_bidi_compile_id")]) == 0
    out, err = capsys.readouterr()
    assert "compilation_metrics of an unknown form: 1" in err and "Error" not in err
    assert "No recompiles in the records that could be read." in out
    assert "No graph breaks in the records that could be read." in out and "No findings: " not in out


def test_a_log_alone_does_not_show_where_a_step_goes(tmp_path: Path, capsys: Capture) -> None:
    marks = (mark("B", "entire_frame_compile", 0), mark("E", "entire_frame_compile", 7))
    (tmp_path / "dedicated_log_torch_trace_x.log").write_bytes(b"".join(map(line, marks)))
    assert main(["report", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("No trace was read. ") and NOTHING_TO_CHANGE not in out
    assert " ".join(out.split()).count(NOTHING_COMPILED_SHOWS) == 1


def test_a_pointer_of_git_lfs_is_named(tmp_path: Path, capsys: Capture) -> None:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 7\n"
    (tmp_path / "x.1.pt.trace.json").write_text(text)
    assert main(["report", str(tmp_path)]) == 1
    assert "Git LFS" in capsys.readouterr().err


def test_an_empty_trace_claims_nothing_of_a_device(tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path / "x.1.pt.trace.json", [])
    assert main(["report", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("No events were read.") and "CPU" not in out


def rank_events(rank: int) -> list[dict[str, Any]]:
    """Three operators with a kernel each, on the device of a rank."""
    events = in_steps(slice_("aten::mm", 10, 80), *launch("gemm", 20, 50, 600, device=rank), every=1000)
    return [event for event in events if not event["name"].startswith("ProfilerStep")]


def write(file: Path, events: list[dict[str, Any]], **metadata: Any) -> None:
    text = json.dumps({"traceEvents": events, **metadata}).encode()
    file.write_bytes(gzip.compress(text) if file.suffix == ".gz" else text)


def test_batches_of_vllm_are_steps(tmp_path: Path, capsys: Capture) -> None:
    names = ["execute_context_1(512)_generation_0(0)", "execute_new_0_cached_4"]
    labels = [slice_(name, 1000 * at, 900, "user_annotation") for at, name in enumerate(names)]
    write(tmp_path / "rank0.1.pt.trace.json", [*labels, *rank_events(0)])
    assert [row["name"] for row in only_span(report(tmp_path, capsys))["steps"]] == names


def test_inferred_steps_are_printed(tmp_path: Path, capsys: Capture) -> None:
    calls = [slice_("Optimizer.step#AdamW.step", 80 + 100 * at, 20, "user_annotation") for at in range(3)]
    write(tmp_path / "rank0.1.pt.trace.json", [*calls, slice_("aten::mm", 120, 30)])
    steps = [row["name"] for row in only_span(report(tmp_path, capsys))["steps"]]
    assert main(["report", str(tmp_path), "--full"]) == 0
    printed = capsys.readouterr().out
    assert len(steps) == 2 and all(name in printed for name in steps)


def test_steps_of_the_profiler_come_before_those_of_vllm(tmp_path: Path, capsys: Capture) -> None:
    batch = slice_("execute_context_1(512)_generation_0(0)", 100, 500, "user_annotation")
    write(tmp_path / "rank0.1.pt.trace.json", in_steps(batch, every=1000))
    names = [row["name"] for row in only_span(report(tmp_path, capsys))["steps"]]
    assert names == ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]


def test_ranks_of_one_worker_name_are_a_job(capsys: Capture) -> None:
    document = report(CASES / "same_worker_name", capsys)
    assert workers(document) == [("worker0_rank_0", 0, ["17000"]), ("worker0_rank_1", 1, ["17001"])]
    job = document["runs"][0]["job"]
    assert (job["ranks"], job["world_size"], job["missing_ranks"]) == (2, 2, [])


def test_a_finding_of_two_ranks_is_one_with_both(capsys: Capture) -> None:
    assert main(["report", str(CASES / "same_worker_name")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if "No compiled code" in line]) == 1
    values = [line[:35] for line in lines if "anks 0, 1" in line]
    assert values == ["Ranks 0, 1: Host time between opera", "  [warning] (ranks 0, 1) No compile"]
    assert "Ranks wait little for each other. Rank 0 waits most: 120 µs" in lines[0]


def test_ranks_without_a_trace_are_named(tmp_path: Path, capsys: Capture) -> None:
    for rank in (0, 2):
        info = {"rank": rank, "world_size": 4}
        write(tmp_path / f"w{rank}.1.pt.trace.json", rank_events(rank), distributedInfo=info)
    assert main(["report", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "\nRanks (2 of 4; " in out and "Not read: 2 ranks (1, 3)" in out


def test_ranks_in_folders_of_their_own_are_one_job(tmp_path: Path, capsys: Capture) -> None:
    for rank in (0, 1):
        (tmp_path / f"rank{rank}").mkdir()
        info = {"rank": rank, "world_size": 2}
        write(tmp_path / f"rank{rank}" / "w.1.pt.trace.json", rank_events(rank), distributedInfo=info)
    assert main(["report", str(tmp_path)]) == 0
    assert "The 2 runs are ranks of one job" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "rank0")]) == 0
    assert "ranks of one job" not in capsys.readouterr().out


def test_each_rank_of_one_worker_name_keeps_its_summaries(tmp_path: Path, capsys: Capture) -> None:
    for rank in (0, 1):
        info = {"rank": rank, "world_size": 2}
        write(tmp_path / f"w.{70 + rank}.pt.trace.json", rank_events(rank), distributedInfo=info)
        summary = CompileSummary(format_version=1)
        summary.compilations.add().key.compile_id = f"{rank}/0"
        (tmp_path / f"w.{70 + rank}.pt.compile.pb").write_bytes(summary.SerializeToString())
    document = report(tmp_path, capsys)
    assert workers(document) == [("w_rank_0", 0, ["70"]), ("w_rank_1", 1, ["71"])]
    compiled = [worker["compile"]["compilations"] for worker in document["runs"][0]["workers"]]
    assert [[row["compile_id"] for row in rows] for rows in compiled] == [["0/0"], ["1/0"]]


def test_stages_of_a_server_are_spans_of_a_worker(tmp_path: Path, capsys: Capture) -> None:
    for rank in (0, 1):
        info = {"rank": rank, "world_size": 2}
        for stage in ("EXTEND", "DECODE"):
            file = tmp_path / f"1747.5-TP-{rank}-{stage}.trace.json.gz"
            write(file, rank_events(rank), distributedInfo=info)
    document = report(tmp_path, capsys)
    stages = ["DECODE", "EXTEND"]
    assert workers(document) == [("1747.5-TP-0", 0, stages), ("1747.5-TP-1", 1, stages)]
    assert document["runs"][0]["job"]["ranks"] == 2


def merge(file: Path) -> None:
    """Write what SGLang's ProfileMerger writes of two ranks."""
    events = [
        event | {"pid": f"[TP{rank:02d}] {event['pid']}"} for rank in (0, 1) for event in rank_events(rank)
    ]
    write(file, events, distributedInfo={"rank": 0, "world_size": 2})


def test_each_rank_of_a_merged_profile_is_a_worker(tmp_path: Path, capsys: Capture) -> None:
    merge(tmp_path / "merged-1747.5.trace.json.gz")
    document = report(tmp_path, capsys)
    assert [row[1:] for row in workers(document)] == [(0, ["0"]), (1, ["0"])]
    assert document["runs"][0]["job"]["ranks"] == 2
    for worker in document["runs"][0]["workers"]:
        (gpu,) = worker["spans"][0]["gpu"]
        assert gpu["busy_us"] == 3 * 600


def test_a_merged_profile_next_to_its_ranks_is_not_read_again(tmp_path: Path, capsys: Capture) -> None:
    merge(tmp_path / "merged-1747.5.trace.json.gz")
    for rank in (0, 1):
        info = {"rank": rank, "world_size": 2}
        write(tmp_path / f"1747.5-TP-{rank}.trace.json.gz", rank_events(rank), distributedInfo=info)
    names = [name for name, _, _ in workers(report(tmp_path, capsys))]
    assert names == ["1747.5-TP-0.trace", "1747.5-TP-1.trace"]


@pytest.mark.parametrize("case", ["attack_device_null", "attack_huge_ts"])
def test_a_damaged_trace_can_be_exported_and_asked(case: str, tmp_path: Path, capsys: Capture) -> None:
    assert main(["export", str(CASES / case), str(tmp_path / "out.html")]) == 0
    client = make_client(make_plugin(CASES / case))
    ids = {"run": ".", "worker": "vm_1", "span": "1795230252555613000"}
    rows = [{**ids, "row": str(row)} for row in range(4)]
    for question, arguments in [
        *(("timeline_slice", row) for row in rows),
        ("timeline_trim", {**ids, "from": "0", "to": "1000000"}),
    ]:
        assert ask_span(client, arguments, question).status_code == 200, (question, arguments)


def test_marks_that_turn_letters_around_are_escaped_in_json(capsys: Capture) -> None:
    assert main(["report", str(CASES / "attack_bidi_compile_id"), "--json"]) == 0
    out = capsys.readouterr().out
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", out) and r"\\u202e" in out
