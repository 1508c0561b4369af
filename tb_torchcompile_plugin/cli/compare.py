"""`tb-torchcompile compare BASELINE CANDIDATE` of two spans; `--fail-on`, a gate for CI; and `baseline save`.

The verdict of a gate is written as text, for a GitHub job summary and as JUnit's XML.
"""

import argparse
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from xml.etree import ElementTree

from tb_torchcompile_plugin import __version__
from tb_torchcompile_plugin.analysis.compare.baseline import SUFFIX, is_baseline, load, save
from tb_torchcompile_plugin.analysis.compare.gate import (
    ALLOWED,
    GateCause,
    GateCondition,
    GateReport,
    InvalidGateError,
    Verdict,
    format_value,
    gate,
    read_settings,
)
from tb_torchcompile_plugin.analysis.compare.measures import METRICS, MeasuredRun, RunSource, measure_run
from tb_torchcompile_plugin.analysis.compare.sides import Side, make_side
from tb_torchcompile_plugin.analysis.formatting import plural, size
from tb_torchcompile_plugin.api.catalog import Runs, newest_span, only_run
from tb_torchcompile_plugin.api.joined import no_job
from tb_torchcompile_plugin.api.session import Session, check, open_logdir
from tb_torchcompile_plugin.api.sheets import tables_of
from tb_torchcompile_plugin.api.starts import WithJobs, comparison
from tb_torchcompile_plugin.cli.text_table import (
    print_json,
    print_lines,
    print_table,
    stdout_console,
    write_text,
)
from tb_torchcompile_plugin.errors import visible
from tb_torchcompile_plugin.job.job import digest_files, job_of_digests
from tb_torchcompile_plugin.logdir.filesystem import is_remote


def recorded_runs(path: str, run: str = "") -> list[MeasuredRun]:
    """Return the runs at a path: the newest span of a logdir with all ranks of its job, or those of a baseline file.

    run: of a logdir with several. Raises UserError where nothing can be read, and WrongArgument.
    """
    if is_baseline(path):
        check(path)
        return load(path)
    return [measure_run(_recording(path, run))]


def _recording(path: str, only: str) -> RunSource:
    session = open_logdir(path)
    runs = only_run(session.runs(), only)
    digested = _digests_alone(session, runs)
    run, worker, span = (digested, "", "") if digested else newest_span(runs, path)
    name = visible(" ".join(filter(None, (os.path.basename(path.rstrip("/")), "" if run == "." else run))))
    compiled = session.ranks(run)
    if digested:
        if (job := job_of_digests(digest_files(session.catalog.workers(run)))) is None:
            raise no_job(run, [])
        return RunSource(name, [Side(None, compiled.get(rank)) for rank in job.numbers], job)
    if span and (traced := session.job(run, span)):
        return RunSource(name, [make_side(rank.profile) for rank in traced.ranks], traced)
    if not span and len(compiled) > 1:
        return RunSource(name, [Side(None, data) for data in compiled.values()])
    return RunSource(name, [session.side(run, worker, span)])


def _digests_alone(session: Session, runs: Runs) -> str:
    """Return the newest run whose job is known by digests alone, where no run has a trace; "" otherwise."""
    if any(worker.spans for run in runs.runs for worker in run.workers):
        return ""
    files = {run.run: digest_files(session.catalog.workers(run.run)) for run in runs.runs if run.ranks > 1}
    # Spans are named by the time at which they were written.
    newest = {name: max(file.span for file in digests) for name, digests in files.items() if digests}
    return max(newest, key=lambda name: newest[name], default="")


STATUS: dict[Verdict, int] = {"passed": 0, "failed": 3, "unknown": 4, "not_comparable": 4}
MAX_BYTES = 1 << 20  # GitHub's limit for the summary of one step of a job
_CUT = "\n\nThe rest was omitted because GitHub limits the size of a summary.\n"
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~$@-])")
_MARKS = {"passed": "✅", "failed": "❌", "unknown": "⚠️", "noise": "✅", "not_comparable": "⚠️"}
_WORDS = {"passed": "passed", "failed": "failed", "unknown": "inconclusive", "noise": "passed: noise"}
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def show_gate(arguments: argparse.Namespace, paths: Sequence[str], runs: Sequence[str]) -> int:
    """Print the verdict and write the files; return the exit status.

    paths: the baselines, and the candidate. runs: the name of a baseline run and of the candidate, "" for the newest.
    Raises InvalidGateError, and UserError where a run cannot be read or a file cannot be written.
    """
    settings = read_settings(arguments.fail_on, arguments.allow, arguments.name, arguments.config)
    base = [run for path in paths[:-1] for run in recorded_runs(path, runs[0])]
    (head, *more) = recorded_runs(paths[-1], runs[-1])
    if more:
        raise InvalidGateError(
            f"the candidate must be one run, but this baseline file contains {1 + len(more)}",
            file=paths[-1],
            next_step="Select one with --run",
        )
    report = gate(base, head, settings)
    for file, mode, text in (
        (arguments.markdown, "a", markdown(report, paths)),
        (arguments.junit, "w", junit(report)),
    ):
        if file:
            write_text(file, text, mode)
    (print_json if arguments.json else print_gate)(report)
    return STATUS[report.outcome]


def print_gate(report: GateReport) -> None:
    """Print the verdict, each condition with its causes, and the numbers of both sides."""
    console = stdout_console()
    print_lines(
        console, report.verdict, f"Baseline: {', '.join(report.baseline)}", f"Candidate: {report.candidate}"
    )
    print_lines(console, *report.notes, *([f"On {report.on}."] if report.on else []))
    if report.outcome != "not_comparable":
        print_lines(console, *(f"Allowed: {difference}" for difference in report.differences))
    console.print()
    for row in report.conditions:
        print_lines(console, f"{row.outcome:8}{row.condition}")
        print_lines(console, row.sentence, *map(_in_a_line, row.causes), indent=" " * 8)
    console.print()
    print_table(console, "numbers", report.figures, None, ("label", "baseline", "candidate", "change"))
    for why in dict.fromkeys(row.why_unknown for row in report.figures if row.why_unknown):
        names = ", ".join(row.name for row in report.figures if row.why_unknown == why)
        print_lines(console, f"Unknown for {names}: {why}.")


def _in_a_line(cause: GateCause) -> str:
    """Return such as "train/model.py:12: graph break: Call to print"."""
    return ": ".join(filter(None, (cause.where, cause.text)))


def markdown(report: GateReport, paths: Sequence[str]) -> str:
    """Write a GitHub job summary, a merge request or a chat message.

    paths: of the baselines and the candidate, as they were given.
    """
    text = "\n".join(_lines(report, paths)) + "\n\n"
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= MAX_BYTES:
        return text
    return data[: MAX_BYTES - len(_CUT)].decode("utf-8", "ignore") + _CUT


def _lines(report: GateReport, paths: Sequence[str]) -> Iterator[str]:
    yield f"### {_MARKS[report.outcome]} torch.compile: {escaped(report.name or report.candidate)}\n"
    yield f"**{escaped(report.verdict)}**\n"
    yield from (f"- {escaped(_in_a_line(cause))}" for cause in report.causes)
    if report.conditions:
        yield "\n" + _row(("Condition", "Result", "Baseline", "Candidate", "Noise", "Details"))
        yield _row(("---", "---", "---:", "---:", "---:", "---"))
        yield from (_row(map(escaped, _cells(row))) for row in report.conditions)
    yield "\n<details><summary>All numbers</summary>\n"
    yield _row(("Metric", "Baseline", "Candidate", "Change"))
    yield _row(("---", "---:", "---:", "---:"))
    yield from (
        _row(map(escaped, (row.label, row.baseline, row.candidate, row.change))) for row in report.figures
    )
    yield "\n</details>\n"
    baseline, candidate = escaped(", ".join(report.baseline)), escaped(report.candidate)
    yield f"Baseline: {baseline}. Candidate: {candidate}. {escaped(report.on)}\n"
    yield from (f"{escaped(note)}\n" for note in report.notes)
    yield "To reproduce this result:\n"
    command = visible(shlex.join(["tb-torchcompile", "compare", *map(_relative, paths), *report.options]))
    # Nothing in the command ends a fence of this length.
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", command)), default=0))
    yield from (f"{fence}sh", command.replace("\n", " "), fence)


def _cells(row: GateCondition) -> tuple[str, ...]:
    values = (row.baseline, row.candidate, row.noise)
    base, head, noise = (format_value(METRICS[row.metric].unit, value) for value in values)
    outcome = f"{_MARKS[row.outcome]} {_WORDS[row.outcome]}"
    return row.condition, outcome, base, head, "" if row.noise is None else f"± {noise}", row.sentence


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escaped(text: str) -> str:
    """Escape a text: no markup, no HTML, no second line."""
    one_line = " ".join(visible(text).split())
    plain = one_line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", plain)


def _relative(path: str) -> str:
    """Return the path relative to the working directory; of a path outside of it the file name alone."""
    if is_remote(path) or not os.path.isabs(path):
        return path
    relative = os.path.relpath(path)
    return os.path.basename(path) if relative.startswith(os.pardir) else relative


def junit(report: GateReport) -> str:
    """Write JUnit's XML, which GitLab, Jenkins and others show: one test case per condition.

    A condition that holds is a failure, one that cannot be checked an error; without conditions there is one case:
    whether the runs can be compared.
    """
    cases: list[tuple[str, str, str, Sequence[GateCause]]]
    cases = [(row.condition, row.outcome, row.sentence, row.causes) for row in report.conditions]
    if not cases:
        outcome = "unknown" if report.outcome == "not_comparable" else "passed"
        cases = [("comparable", outcome, report.verdict, ())]
    name = f"torch.compile: {_xml(report.name or report.candidate)}"
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(root, "testsuite", name=name)
    for title, outcome, sentence, causes in cases:
        case = ElementTree.SubElement(suite, "testcase", classname=name, name=_xml(title))
        if outcome in ("failed", "unknown"):
            kind = "failure" if outcome == "failed" else "error"
            problem = ElementTree.SubElement(case, kind, message=_xml(sentence))
            problem.text = _xml("\n".join((sentence, *map(_in_a_line, causes))))
        else:
            ElementTree.SubElement(case, "system-out").text = _xml(sentence)
    suite.set("tests", str(len(suite)))
    for kind, count in (("failures", "testcase/failure"), ("errors", "testcase/error")):
        suite.set(kind, str(len(suite.findall(count))))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _xml(text: str) -> str:
    """Return the text without the characters that XML does not allow, escaped or not."""
    return _NOT_XML.sub(lambda match: f"\\x{ord(match[0]):02x}", visible(text))


def add_gate(compare: argparse.ArgumentParser) -> None:
    """Add the options that make a gate of `compare`."""
    compare.add_argument(
        "--fail-on",
        metavar="CONDITION",
        action="append",
        default=[],
        help="exit with status 3 if this condition holds, such as 'step>3%%', 'breaks>0' or 'kernel:triton_*>10%%'; "
        "can be repeated",
    )
    compare.add_argument(
        "--config", metavar="FILE", default="", help="read conditions from the table [gate] of this TOML file"
    )
    compare.add_argument(
        "--allow",
        metavar="WHAT",
        action="append",
        default=[],
        help="do not fail because of this difference, or because a metric is unknown; can be repeated: "
        f"{', '.join(ALLOWED)}",
    )
    compare.add_argument(
        "--name", default="", help="name of the program in the written files (default: name of the run)"
    )
    for name, content in (
        ("markdown", "the verdict as Markdown, for example for a GitHub job summary (appends to the file)"),
        ("junit", "one test case per condition, as JUnit XML"),
    ):
        compare.add_argument(f"--{name}", metavar="FILE", default="", help=f"write {content}")


def is_gate(arguments: argparse.Namespace) -> bool:
    """Return whether the options ask for a verdict, and not only for tables."""
    options = "fail_on", "config", "allow", "name", "markdown", "junit"
    return any(getattr(arguments, name) for name in options)


def add_baseline(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    baseline = commands.add_parser(
        "baseline", help="save the measurements of a run in a small file, to compare later runs with it"
    )
    actions = baseline.add_subparsers(required=True, metavar="ACTION")
    saving = actions.add_parser("save", help="write a baseline file of at most 200 kB")
    saving.add_argument(
        "runs", metavar="RUN", nargs="+", help="a folder or one trace; several show the noise between runs"
    )
    saving.add_argument("file", metavar="FILE", help=f"the baseline file to write: NAME{SUFFIX}")
    saving.add_argument(
        "--run", dest="only_run", metavar="NAME", default="", help="save only this run of each folder"
    )
    saving.set_defaults(run=_save_baseline)


def _save_baseline(arguments: argparse.Namespace) -> None:
    file: str = arguments.file
    if not file.endswith(SUFFIX):
        raise InvalidGateError(
            f"the name of a baseline file must end with {SUFFIX}",
            file=file,
            next_step="Pass the file as last argument",
        )
    runs = [run for path in arguments.runs for run in recorded_runs(path, arguments.only_run)]
    size_bytes = save(runs, file, __version__)
    print(f"{file}: {plural(len(runs), 'run')}, {size(size_bytes)}")


_MAX_ROWS = 25  # chosen by eye: a table on one screen


def show_comparison(a: tuple[str, str], b: tuple[str, str], as_json: bool) -> None:
    """Print the newest spans of both compared. a, b: a logdir, and its run or "" for any.

    Raises UserError where one has no trace, and WrongArgument.
    """
    sessions = [Session([("", logdir)], ahead=False) for logdir, _ in (a, b)]
    newest = [newest_span(session.runs(), *side) for session, side in zip(sessions, (a, b))]
    compared = comparison(*zip(sessions, newest))
    if as_json:
        print_json(compared)
    else:
        _print_comparison(compared)


def _print_comparison(report: WithJobs) -> None:
    console = stdout_console()
    for side, name in (("Baseline", report.baseline), ("Candidate", report.candidate)):
        file = name.trace_file or "no trace, only compile data"
        print_lines(console, f"{side}: run {name.run}  worker {name.worker}  {file}")
    print_lines(console, *([report.jobs.verdict] if report.jobs else []), report.verdict)
    print_lines(console, *filter(None, [report.break_even]), *report.notes)
    console.print()
    print_table(console, "figures", report.figures, None)
    of = "per step" if report.step_time else "of the span"
    print_table(console, f"time {of} by part", report.parts, None)
    for answer in filter(None, (report.jobs, report)):
        for table in tables_of(type(answer)):
            if any(column.key == "outcome" for column in table.columns):
                title = table.title if table.rows == "compilations" else f"{table.title} {of}"
                print_table(console, title.lower(), getattr(answer, table.rows), _MAX_ROWS)
