"""Compare every answer of the routes and commands with the committed hashes, so that a refactoring changes none.

    python tools/snapshot.py check [RECORDING ...]            exit 1 and list the answers that differ
    python tools/snapshot.py update [RECORDING ...]           accept today's answers
    python tools/snapshot.py show RECORDING ANSWER            print one answer, indented
    python tools/snapshot.py diff REVISION RECORDING ANSWER   print how it differs from that of a git revision

A recording is the path of an archive without its ending: `2.11.0/breaks` below tests/data, or `large/ddp` in the
folder that TB_TORCHCOMPILE_RECORDINGS names. Recordings above 100 MB are left out without `--huge`. An answer is
`route run worker span`, as `check` prints it. Only HTTP and the command line are used, so that `show` also works with
the package of another revision, which is on PYTHONPATH then.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from time import sleep
from typing import Any
from unittest.mock import patch
from urllib.parse import urlencode

ROOT = Path(__file__).parents[1]
HASHES = ROOT / "tests" / "data" / "snapshot.json"
DATA = ROOT / "tests" / "data"
VARIABLE = "TB_TORCHCOMPILE_RECORDINGS"
PREFIX = "/data/plugin/torch_compile/"
HUGE_BYTES = 10_000_000  # of an archive: 815 MB of trace are 42 MB of .tar.xz, the next smaller one has 4 MB
MAX_KERNELS = 20  # drawers per span: the most expensive kernels, whose rows come first
MAX_ARTIFACTS = 60  # texts per worker
MAX_PAIRS = 3  # comparisons of neighbouring runs per logdir

OF_LOGDIR = ("runs", "sheets", "all_runs")
OF_WORKER = ("compile", "compile_time", "compilations", "recompiles", "exports", "findings", "baseline")
OF_RUN = ("rank_differences", "job")
OF_RANK = ("rank_findings", "rank_what_if")
OF_SPAN = (
    *("span", "overview", "timeline", "eager", "operators", "operators_by_shape"),
    *("operators_by_call_site", "operators_by_label", "operators_by_compilation", "functions", "memory"),
    *("modules", "your_code", "kernels", "gpu_utilization", "collectives", "cuda_graphs"),
    *("dynamic_shapes", "step", "ledger", "what_if", "payback", "findings", "compilations", "recompiles"),
)
MEASURES = ("late_us", "exposed_wait_us", "compute_us", "idle_us", "compile_us")

Texts = dict[str, str]
Answer = tuple[str, bytes]  # its name in the snapshot, its bytes


class Served:
    """One logdir behind TensorBoard's own WSGI application, as the tab asks it."""

    def __init__(self, logdir: Path) -> None:
        from tensorboard.backend.application import TensorBoardWSGI
        from tensorboard.plugins.base_plugin import TBContext
        from werkzeug.test import Client

        from tb_torchcompile_plugin.plugin.loader import TorchCompileLoader

        flags = argparse.Namespace(logdir=str(logdir), logdir_spec="")
        plugin = TorchCompileLoader().load(TBContext(logdir=str(logdir), flags=flags))
        assert plugin is not None
        self.plugin = plugin
        self._client = Client(TensorBoardWSGI([plugin], ""))
        self._logdir = str(logdir).encode()

    def ask(self, route: str, ids: Texts) -> bytes:
        """The body of an answer, whatever its status; waits while it is being computed."""
        while (response := self._client.get(f"{PREFIX}{route}?{urlencode(ids)}")).status_code == 202:
            sleep(0.01)
        return bytes(response.get_data()).replace(self._logdir, b"LOGDIR")

    def rows(self, route: str, ids: Texts) -> Any:
        """The same as JSON; {} where there is no such answer."""
        answer = json.loads(self.ask(route, ids))
        return {} if "error" in answer else answer


def answers(served: Served, logdir: Path) -> Iterator[Answer]:
    """Every answer about a logdir, in the order in which they are asked."""
    with _profiles_shared():
        yield from _answers(served, logdir)


def _answers(served: Served, logdir: Path) -> Iterator[Answer]:
    runs = served.rows("runs", {})["runs"]
    for run in runs:
        for worker in run["workers"]:
            yield from _of_worker(served, {"run": run["run"], "worker": worker["worker"]}, worker["spans"])
        if run["ranks"] > 1:
            yield from _of_job(served, run)
    yield from _comparisons(served, runs)
    yield from (_asked(served, route, {}) for route in OF_LOGDIR)
    yield from _printed(logdir, [run["run"] for run in runs])


def _asked(served: Served, route: str, ids: Texts, *variants: Texts) -> Answer:
    """Return one answer, or the concatenated answers to several questions with different parameters."""
    bodies = [served.ask(route, {**ids, **texts}) for texts in variants or ({},)]
    return " ".join((route, *filter(None, ids.values()))), b"\n".join(bodies)


def _of_worker(served: Served, ids: Texts, spans: Sequence[Any]) -> Iterator[Answer]:
    for span in spans:
        yield from _of_span(served, {**ids, "span": span["span"]})
    for route in OF_WORKER:
        yield _asked(served, route, ids)
    compiled = served.rows("compile", ids).get("compilations", ())
    frames = {(str(row["epoch"]), row["compile_id"]) for row in compiled}
    keys = [{"epoch": epoch, "compile_id": name} for epoch, name in sorted(frames)]
    if not keys:
        return
    yield _asked(served, "compilation", ids, *keys)
    yield _asked(served, "guards", ids, *keys)
    details = [served.rows("compilation", {**ids, **key}) for key in keys]
    artifacts = [artifact for row in details for artifact in row.get("artifacts", ())][:MAX_ARTIFACTS]
    texts = [{"id": str(artifact["id"])} for artifact in artifacts]
    code = [{"id": str(row["id"])} for row in artifacts if row["name"] == "inductor_output_code"]
    if texts:
        yield _asked(served, "artifact", ids, *texts)
    if code:
        yield _asked(served, "code_kernels", {**ids, "span": spans[-1]["span"] if spans else ""}, *code)


def _of_span(served: Served, ids: Texts) -> Iterator[Answer]:
    for route in OF_SPAN:
        yield _asked(served, route, ids)
    kernels = served.rows("kernels", ids).get("rows", ())[:MAX_KERNELS]
    names = ("device", "name", "compile_id", "graph_key")
    if kernels:
        yield _asked(
            served, "kernel", ids, *({name: str(row[name] or "") for name in names} for row in kernels)
        )
    fixes = [fix["id"] for fix in served.rows("what_if", ids).get("fixes", ())]
    if fixes:
        together = ["\n".join(fixes), *fixes]
        yield _asked(served, "what_if", {**ids, "fixes": "each"}, *({"fixes": fix} for fix in together))
    yield from _of_timeline(served, ids)


def _of_timeline(served: Served, ids: Texts) -> Iterator[Answer]:
    timeline = served.rows("timeline", ids)
    if not timeline:
        return
    start, end = timeline["extent"]
    middle, width = (start + end) // 2, max((end - start) // 20, 1)
    whole = {"from": str(start), "to": str(end)}
    part = {"from": str(middle), "to": str(middle + width)}
    rows = [{"row": str(row)} for row in (0, 7, 100, 1000, 5000)]
    yield _asked(served, "timeline_window", ids, {**whole, "width": "900"}, {**part, "width": "900"})
    yield _asked(served, "timeline_slice", ids, *rows)
    yield _asked(served, "timeline_search", ids, {"q": "a"}, {"q": "kernel"}, {"q": "aten", **part})
    yield _asked(served, "timeline_range", ids, whole, part)
    yield _asked(served, "timeline_trim", ids, part)
    yield _asked(served, "memory", {**ids, "window": "part"}, part)


def _of_job(served: Served, run: Any) -> Iterator[Answer]:
    ids = {"run": run["run"]}
    for route in OF_RUN:
        yield _asked(served, route, ids)
    yield _asked(served, "job_map", ids, *({"measure": measure} for measure in MEASURES))
    yield _asked(served, "compare_jobs", {**ids, "run2": run["run"]})
    job = served.rows("job", ids)
    ranks = [{"rank": str(rank)} for rank in job["map"]["ranks"]] if job else []
    for route in OF_RANK if ranks else ():
        yield _asked(served, route, ids, *ranks)


def _comparisons(served: Served, runs: Sequence[Any]) -> Iterator[Answer]:
    """Return pairs of neighbouring runs, or the only one with itself; with spans if both sides have them."""
    sides = [(run["run"], worker) for run in runs for worker in run["workers"][:1]]
    pairs = list(pairwise(sides)) or [(side, side) for side in sides]
    for (run, worker), (run2, worker2) in pairs[:MAX_PAIRS]:
        ids = {"run": run, "worker": worker["worker"], "run2": run2, "worker2": worker2["worker"]}
        if worker["spans"] and worker2["spans"]:
            ids |= {"span": worker["spans"][-1]["span"], "span2": worker2["spans"][-1]["span"]}
        yield _asked(served, "compare", ids)


def _printed(logdir: Path, runs: Sequence[str]) -> Iterator[Answer]:
    """What the commands print, and their exit status."""
    path = str(logdir)
    with _report_read_once():
        yield _command("report", [path])
        yield _command("report --full", [path, "--full"])
    yield _command("report --json", [path, "--json"])
    yield _command("what-if", [path])
    for run, run2 in (list(pairwise(runs)) or [(run, run) for run in runs])[:MAX_PAIRS]:
        yield _command("compare", [path, path, "--run", run, "--run", run2])


@contextlib.contextmanager
def _profiles_shared() -> Iterator[None]:
    """Share profiles between the server and the commands."""
    from tb_torchcompile_plugin.api.session import Session

    opened = Session.opened
    known: dict[str, Any] = {}

    def opened_once(self: Session, found: Any, trace: Any, data: Any) -> Any:
        key = f"{found.files} {trace.notices}"
        if key not in known:
            known[key] = opened(self, found, trace, data)
        return known[key]

    with patch.object(Session, "opened", opened_once):
        yield


@contextlib.contextmanager
def _report_read_once() -> Iterator[None]:
    """What shows the whole report of a logdir shows the one that was read first."""
    from tb_torchcompile_plugin.api import report

    read, known = report.read_report, dict[str, report.Report]()

    def read_once(logdir: str, *arguments: Any) -> report.Report:
        if logdir not in known:
            known[logdir] = read(logdir, *arguments)
        return known[logdir]

    with patch.object(report, "read_report", read_once):
        yield


def _command(name: str, arguments: Sequence[str]) -> Answer:
    from tb_torchcompile_plugin.cli import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        status = main([name.split()[0], *arguments])
    text = out.getvalue().replace(arguments[0], "LOGDIR")
    return " ".join((f"$ {name}", *arguments[3::2])), f"{text}\nexit status {status}\n".encode()


def recordings(huge: bool = False, committed_only: bool = False) -> dict[str, Path]:
    """The archives that are here, by name."""
    found = {f"{path.parents[1].name}/{path.stem[:-4]}": path for path in sorted(DATA.glob("*/*/*.tar.xz"))}
    folder = None if committed_only else os.environ.get(VARIABLE)
    for path in sorted(Path(folder).glob("*.tar.xz")) if folder else ():
        if huge or path.stat().st_size < HUGE_BYTES:
            found[f"large/{path.stem[:-4]}"] = path
    return found


@contextlib.contextmanager
def unpacked(archive: Path) -> Iterator[Path]:
    """A logdir of its own, and an empty cache of parsed traces."""
    variables = {"TB_TORCHCOMPILE_CACHE": "", "COLUMNS": "120", "NO_COLOR": "1"}
    before = {name: os.environ.get(name) for name in variables}
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(archive) as file:
            file.extractall(f"{folder}/logdir", filter="data")
        os.environ.update(variables, TB_TORCHCOMPILE_CACHE=f"{folder}/cache")
        try:
            yield Path(folder) / "logdir"
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


def hashes_of(archive: Path) -> dict[str, str]:
    """By answer."""
    with unpacked(archive) as logdir:
        return {name: hash_of(body) for name, body in answers(Served(logdir), logdir)}


def hash_of(body: bytes) -> str:
    """As it is committed."""
    return hashlib.blake2b(body, digest_size=5).hexdigest()


def committed() -> dict[str, dict[str, str]]:
    """By recording and answer."""
    if not HASHES.exists():
        return {}
    return {name: dict(_flat(rows)) for name, rows in json.loads(HASHES.read_text()).items()}


def _flat(rows: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Answer and hash, from rows of `route=hash` words by what they are about."""
    for ids, words in rows.items():
        for word in words.split("; "):
            route, _, value = word.rpartition("=")
            yield f"{route} {ids}".strip(), value


def changed(name: str, archive: Path) -> list[str]:
    """Which answers about a recording are not those of the snapshot: new, missing or other bytes."""
    return differences(name, hashes_of(archive))


def differences(name: str, now: dict[str, str]) -> list[str]:
    """The same, of answers that were asked already."""
    before = committed().get(name, {})
    return [answer for answer in sorted({*now, *before}) if now.get(answer) != before.get(answer)]


def show(archive: Path, wanted: str) -> str:
    """One answer, its JSON indented. Raises SystemExit where there is none of this name."""
    with unpacked(archive) as logdir:
        asked = answers(Served(logdir), logdir)
        body = next((body for name, body in asked if name == wanted), None)
    if body is None:
        raise SystemExit(f"there is no answer {wanted!r}")
    return "\n".join(map(_indented, body.decode(errors="replace").splitlines()))


def _indented(line: str) -> str:
    try:
        return json.dumps(json.loads(line), indent=1, ensure_ascii=False)
    except ValueError:
        return line


def at_revision(revision: str, recording: str, wanted: str) -> str:
    """The same answer by the package of a git revision."""
    with tempfile.TemporaryDirectory() as folder:
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", folder, revision], check=True)
        try:
            command = [sys.executable, __file__, "--huge", "show", recording, wanted]
            environment = {**os.environ, "PYTHONPATH": folder}
            return subprocess.run(
                command, check=True, stdout=subprocess.PIPE, text=True, env=environment
            ).stdout
        finally:
            subprocess.run([*git, "remove", "--force", folder], check=True)


def main() -> int:
    """Run the command line; see the module's docstring."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--huge", action="store_true", help="also recordings above 100 MB")
    parser.add_argument("command", choices=("check", "update", "show", "diff"))
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    known, names = recordings(arguments.huge), arguments.names
    for name in {"show": names[:1], "diff": names[1:2]}.get(arguments.command, names):
        if name not in known:
            parser.error(f"there is no recording {name!r}: {', '.join(known)}")
    if arguments.command == "show":
        print(show(known[names[0]], names[1]))
        return 0
    if arguments.command == "diff":
        revision, recording, wanted = names
        before = at_revision(revision, recording, wanted).splitlines()
        now = show(known[recording], wanted).splitlines()
        print("\n".join(difflib.unified_diff(before, now, revision, "now", lineterm="")) or "no difference")
        return 0
    return _compare_all({name: known[name] for name in names or known}, arguments.command == "update")


def _compare_all(wanted: dict[str, Path], update: bool) -> int:
    differing = 0
    for name, archive in wanted.items():
        if update:
            _write({**committed(), name: hashes_of(archive)})
            continue
        lines = changed(name, archive)
        differing += len(lines)
        print(f"{name}: {len(lines) or 'no'} answers differ", *lines, sep="\n    ", flush=True)
    return int(differing > 0)


def _write(hashes: dict[str, dict[str, str]]) -> None:
    """One line per recording and subject, which names the hash of each route."""
    recordings = (f"{json.dumps(name)}: {_rows(hashes[name])}" for name in sorted(hashes))
    HASHES.write_text("{\n" + ",\n".join(recordings) + "\n}\n")


def _rows(answers: dict[str, str]) -> str:
    by_ids: dict[str, list[str]] = {}
    for answer in sorted(answers):
        route, _, ids = answer.partition(" ")
        if route == "$":  # a command: its name is all of it
            route, ids = answer, ""
        by_ids.setdefault(ids, []).append(f"{route}={answers[answer]}")
    lines = (f"  {json.dumps(ids)}: {json.dumps('; '.join(words))}" for ids, words in sorted(by_ids.items()))
    return "{\n" + ",\n".join(lines) + "\n }"


if __name__ == "__main__":
    sys.exit(main())
