"""The report of any logdir: one clear warning per problem, and everything else is still shown."""

import gzip
import json
import os
import shutil
import subprocess
import sys

import pytest

import compile_records
from compile_records import write_log as log
from tb_torchcompile_plugin.analysis.causes import break_costs
from tb_torchcompile_plugin.analysis.runtime.span_report import span_report as span_report_of
from tb_torchcompile_plugin.api import report as answer
from tb_torchcompile_plugin.api.report import SpanReport, read_report
from tb_torchcompile_plugin.cli.command import main
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from terminal import deny
from traces import kernel, slice_, write_trace

pytestmark = pytest.mark.slow

EVENTS = [slice_(f"op{number}", number, 1) for number in range(200)] + [
    kernel("triton_poi_fused_add_0", 5, 2)
]


OF_CHROME = json.dumps({"traceEvents": [slice_("V8.GC", 1, 2, "v8")]}).encode()


def report(capsys, *arguments):
    """(exit status, the JSON object, the lines of stderr)."""
    status = main(["report", *map(str, arguments), "--json"])
    out, err = capsys.readouterr()
    return status, json.loads(out), err.splitlines()


def spans(document):
    return [span for run in document["runs"] for worker in run["workers"] for span in worker["spans"]]


def healthy(folder):
    """A logdir with one good trace next to what a test adds."""
    write_trace(folder, EVENTS, "good.1.pt.trace.json")
    return folder


def good_span(document):
    return next(span for span in spans(document) if span["trace_file"].startswith("good."))


def test_a_command_is_one_thread():
    """numpy would start one for each core, and they would spin."""
    code = (
        "import os; from tb_torchcompile_plugin.cli import main; main();"
        "import numpy; print(len(os.listdir('/proc/self/task')))"
    )
    usual = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    command = [sys.executable, "-c", code, "report", "/nowhere"]
    assert subprocess.run(command, env=usual, capture_output=True, text=True).stdout == "1\n"


COMMANDS = ("report {0} --full", "schema", "compare {0} {0} --fail-on 'step>3%'")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("redirection", "status", "errors"),
    [("> /dev/full", 1, 1), ("| head -c 1 > /dev/null", 0, 0), (">&-", 0, 0), ("> {0}/output", 0, 0)],
)
def test_any_standard_output_is_survived(recording, tmp_path, command, redirection, status, errors):
    program = f"{sys.executable} -m tb_torchcompile_plugin.cli {command.format(recording('breaks'))}"
    line = f"set -o pipefail; {program} {redirection.format(tmp_path)}"
    usual = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(["bash", "-c", line], env=usual, capture_output=True, text=True)
    assert (done.returncode, len(done.stderr.splitlines())) == (status, errors), done.stderr


@pytest.mark.parametrize("id", ["%FF%00/a/b/kernels/c", "./a/b/kernels/%FF", "x" * 100_000])
def test_an_id_that_cannot_be_read_is_a_short_error(recording, capsys, id):
    assert main(["show", id, "--logdir", str(recording("breaks"))]) == 2
    assert "is not an id" in (error := capsys.readouterr().err)
    assert len(error) < 500


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("bad.2.pt.trace.json", b"", "empty"),
        ("bad.2.pt.trace.json", b"this is no trace", ""),
        ("bad.2.pt.trace.json", b'{"nodes": [], "schema": "1.0.2-chakra.0.0.4"}', ""),
        ("bad.2.pt.trace.json.gz", b"\x1f\x8b\x08", ""),
        ("other.2.pt.trace.json", OF_CHROME, "not a PyTorch profiler trace"),
        ("good.3.pt.compile.pb", b"\xff\xff\xff", ""),
        ("dedicated_log_torch_trace_x.log", b"\xff\xfe nothing of ours\n", ""),
    ],
)
def test_what_cannot_be_read_is_named_and_the_rest_is_shown(tmp_path, capsys, name, data, said):
    (healthy(tmp_path) / name).write_bytes(data)
    status, document, err = report(capsys, tmp_path)
    assert status == 0 and good_span(document)["events"] == 201
    (line,) = err
    assert name in line and said in line and line.startswith("warning: ")


@pytest.mark.parametrize("packed", [False, True])
def test_a_truncated_trace_shows_what_came_before_the_cut(tmp_path, capsys, packed):
    plain = write_trace(tmp_path, EVENTS * 40, "x.json")
    data = gzip.compress(plain.read_bytes()) if packed else plain.read_bytes()
    plain.unlink()
    name = "cut.2.pt.trace.json" + ".gz" * packed
    (healthy(tmp_path) / name).write_bytes(data[: len(data) // 2])
    status, document, (line,) = report(capsys, tmp_path)
    (cut,) = [span for span in spans(document) if span["trace_file"] == name]
    assert status == 0 and (0 if packed else 3000) < cut["events"] < 40 * 201 and name in line


def test_a_summary_of_a_newer_version_gives_way_to_an_older_one(tmp_path, capsys):
    folder = healthy(tmp_path)
    older = CompileSummary(format_version=1)
    older.compilations.add().key.compile_id = "0/0"
    (folder / "good.1.pt.compile.pb").write_bytes(older.SerializeToString())
    (folder / "good.2.pt.compile.pb").write_bytes(CompileSummary(format_version=99).SerializeToString())
    status, document, (line,) = report(capsys, folder)
    (worker,) = document["runs"][0]["workers"]
    assert status == 0 and [row["compile_id"] for row in worker["compile"]["compilations"]] == ["0/0"]
    assert "good.2.pt.compile.pb" in line and "pip install" in line


def test_a_log_with_invalid_utf8_keeps_its_other_records(tmp_path, capsys, recording):
    (log,) = recording("breaks").glob("*.log")
    data = log.read_bytes()
    place = data.index(b"\nV", 2000) + 60
    (tmp_path / log.name).write_bytes(data[:place] + b"\xff\xfe" + data[place:])
    status, document, err = report(capsys, tmp_path)
    (worker,) = document["runs"][0]["workers"]
    assert status == 0 and len(worker["compile"]["graph_breaks"]) == 4
    assert worker["compile"]["records"]["unreadable"]["invalid UTF-8"] == 1
    (line,) = err
    assert log.name in line and "invalid UTF-8: 1" in line


def test_a_folder_without_permission(tmp_path, capsys, monkeypatch):
    locked = healthy(tmp_path) / "locked"
    locked.mkdir()
    deny(monkeypatch, locked)
    status, document, err = report(capsys, tmp_path)
    assert status == 0 and good_span(document)["events"] == 201
    (line,) = err
    assert "locked" in line and "Permission denied" in line


def test_nothing_readable_is_exit_one_with_one_clear_line(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 1
    assert "no trace" in capsys.readouterr().err
    (tmp_path / "w.1.pt.trace.json").write_bytes(b"")
    assert main(["report", str(tmp_path)]) == 1
    assert main(["report", str(tmp_path / "gone")]) == 1
    assert "gone" in capsys.readouterr().err


def test_a_pipe_is_refused_before_anybody_waits_on_it(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe.json")
    assert main(["report", str(tmp_path / "pipe.json")]) == 1
    assert "pipe" in capsys.readouterr().err
    assert main(["report", os.devnull]) == 1


@pytest.mark.parametrize("name", ["trace.json", "compiled_module_profile.json", "anything"])
def test_one_trace_of_any_name(tmp_path, capsys, name):
    status, document, err = report(capsys, write_trace(tmp_path, EVENTS, name))
    (span,) = spans(document)
    assert (status, err) == (0, []) and span["trace_file"] == name and span["events"] == 201


def test_one_log_of_any_name(tmp_path, capsys, recording):
    (log,) = recording("breaks").glob("*.log")
    shutil.copy(log, tmp_path / "tt.txt")
    status, document, _ = report(capsys, tmp_path / "tt.txt")
    (worker,) = document["runs"][0]["workers"]
    assert status == 0 and worker["spans"] == [] and worker["worker"] == "pid_1027"
    assert worker["compile"]["source"] == "torch_trace" and not worker["compile"]["compile_times_complete"]


def test_the_text_has_the_first_sentences_of_the_panels(capsys, recording):
    logdir = str(recording("breaks"))
    (worker,) = read_report(logdir).runs[0].workers
    (span,) = worker.spans
    assert isinstance(span, SpanReport) and worker.compile
    panels = ["graph_breaks", "regions", "kernels"]
    sentences = [span.overview.headline, *(span.headlines[panel] for panel in panels)]
    sentences += [worker.compile.headlines[panel] for panel in ("compile_time", "recompiles")]
    assert main(["report", logdir, "--full"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert all(sentence and sentence in out for sentence in sentences)


def test_the_text_distinguishes_ids_after_a_reset(tmp_path, capsys):
    records = [*compile_records.a_compilation(), *compile_records.a_compilation("0/0", 5000)]
    (tmp_path / "dedicated_log_torch_trace_x.log").write_bytes(b"".join(map(compile_records.line, records)))
    assert main(["report", str(tmp_path), "--full"]) == 0
    rows = capsys.readouterr().out.partition("\ncompilations")[2].partition("\n\n")[0].splitlines()
    ids = [row.split("  ")[0] for row in rows if row.startswith("0/0")]
    assert ids == ["0/0", "0/0 (after reset 1)"]


def test_a_terminal_obeys_nothing_that_a_program_is_called(tmp_path, capsys):
    *begin, metrics, end = compile_records.a_compilation()
    fields = metrics.metadata["compilation_metrics"]
    fields |= {"co_name": "\x1b[31mred", "co_filename": "/\x1b]0;title\x07.py"}
    fields |= {"fail_type": "E\x9b2J", "fail_reason": "\x1b[2J"}
    broken = compile_records.artifact("dynamo_graph_break_reason", "Graph break\nReason: \x1b[1mbold")
    (tmp_path / "\x1b[7m").mkdir()
    log = tmp_path / "\x1b[7m" / "dedicated_log_torch_trace_x.log"
    log.write_bytes(b"".join(map(compile_records.line, [*begin, broken, metrics, end])) + b"V1")
    assert main(["report", str(tmp_path), "--full"]) == 0
    out, err = capsys.readouterr()
    assert "\\x1b[31mred" in out and "\\x1b[2J" in out and "\\x1b[7m" in err
    assert not {"\x1b", "\x07", "\x9b"} & set(out + err)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_name_that_is_no_utf8_is_shown_and_read_all_the_same(tmp_path, capsys):
    folder = os.fsencode(tmp_path) + b"/r\xffn"
    os.mkdir(folder)
    write_trace(tmp_path, EVENTS, "good.1.pt.trace.json").rename(
        os.fsdecode(folder + b"/\xfe.1.pt.trace.json")
    )
    (tmp_path / os.fsdecode(b"r\xffn/\xfd.json")).write_bytes(b'{"traceEvents": [')
    status, document, err = report(capsys, tmp_path)
    (run,) = document["runs"]
    assert status == 0 and run["run"] == r"r\xffn"
    assert [worker["worker"] for worker in run["workers"]] == [r"\xfd", r"\xfe"]
    assert [span["trace_file"] for span in spans(document)] == [r"\xfd.json", r"\xfe.1.pt.trace.json"]
    assert spans(document)[1]["events"] == 201 and any(r"r\xffn/\xfd.json" in line for line in err)
    assert main(["report", str(tmp_path), "--full"]) == 0


@pytest.mark.parametrize("error", [RecursionError("too deep"), TypeError("not a number")])
def test_a_defect_in_one_span_costs_that_span_only(tmp_path, capsys, monkeypatch, error):
    write_trace(healthy(tmp_path), EVENTS, "odd.1.pt.trace.json")
    sound = span_report_of

    def span_report(profile):
        if profile.span.file.name.startswith("odd"):
            raise error
        return sound(profile)

    monkeypatch.setattr(break_costs, "span_report", span_report)
    status, document, (line,) = report(capsys, tmp_path)
    assert status == 0 and good_span(document)["events"] == 201
    assert "odd.1" in line and type(error).__name__ in line and "report it" in line


def test_a_defect_in_the_compile_side_leaves_the_spans(tmp_path, capsys, monkeypatch):
    log(healthy(tmp_path), "x", pid=5)

    def compile_report(data):
        raise KeyError("x")

    monkeypatch.setattr(answer, "compile_report", compile_report)
    status, document, (line,) = report(capsys, tmp_path)
    assert status == 0 and good_span(document)["events"] == 201 and "KeyError" in line


def test_one_run_of_several_is_reported(tmp_path, capsys):
    for name in ("before", "after"):
        healthy(tmp_path / name)
    status, document, err = report(capsys, tmp_path, "--run", "after")
    assert (status, err) == (0, []) and [run["run"] for run in document["runs"]] == ["after"]
    assert main(["report", str(tmp_path), "--run", "nosuch"]) == 2
    assert "Available: 'after', 'before'" in capsys.readouterr().err
