"""What did torch.export have to assume, and what could it not do? Only draft export records it; torch.export raises."""

from typing import Annotated

import msgspec

from tb_torchcompile_plugin.analysis.formatting import plural
from tb_torchcompile_plugin.analysis.sheet import column_head
from tb_torchcompile_plugin.compile_log.record import forward_compilations, key_of, optional_number
from tb_torchcompile_plugin.compile_log.summary_pb2 import ExportIssue as ExportIssueMessage
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.caches import ISSUES, IssueKind, is_export

_NEXT_STEPS: dict[IssueKind, str] = {
    "missing fake kernel": "Register one with torch.library.register_fake",
    "wrong fake kernel": "Correct the fake kernel: it must return what the operator returns",
    "value of the example input used": "State the assumption with torch._check",
    "data-dependent value": "State the assumption with torch._check, or branch with torch.cond",
}


class ExportCall(msgspec.Struct, frozen=True):
    """One call of torch.export."""

    compile_id: str
    epoch: int
    function: str  # of torch
    file: str  # the program's line
    line: int | None
    issues: int


class ExportIssue(msgspec.Struct, frozen=True):
    """An assumption of an export, or something that it could not do."""

    compile_id: str
    epoch: int
    kind: Annotated[IssueKind, column_head("Issue")]
    subject: Annotated[str, column_head("Operator or expression", grow=True)]
    details: str  # the value that was assumed, or what did not agree
    file: str  # the user's line
    line: int | None  # None where torch does not name it
    times: int
    next_step: str


class Exports(msgspec.Struct, frozen=True):
    """The calls of torch.export and their issues."""

    sentences: tuple[str, ...]
    exports: tuple[ExportCall, ...]
    issues: tuple[ExportIssue, ...]


def exports(data: CompileData) -> Exports:
    """Return the exports in the order in which they began, and their issues, each once."""
    issues = _issues(data)
    exported = [row for row in forward_compilations(data.summary).values() if is_export(row.key.compile_id)]
    calls = tuple(
        ExportCall(
            compile_id=row.key.compile_id,
            epoch=row.key.epoch,
            function=row.function,
            file=row.file,
            line=optional_number(row, "line"),
            issues=sum(issue.compile_id == row.key.compile_id for issue in issues),
        )
        for row in sorted(exported, key=lambda row: (len(row.key.compile_id), row.key.compile_id))
    )
    if not calls:
        headline = "torch.export was not called."
    elif not issues:
        count = plural(len(calls), "export")
        headline = f"{count} without a reported issue: only draft_export reports issues."
    else:
        first = f"{issues[0].kind} ({issues[0].subject})"
        headline = f"{plural(len(calls), 'export')} with {plural(len(issues), 'issue')}: first {first}."
    return Exports((headline,), calls, tuple(issues))


def _issues(data: CompileData) -> list[ExportIssue]:
    """Merge equal issues. torch reports an assumed value twice, the second time with its line."""
    reported = [row for row in data.summary.export_issues if row.kind in ISSUES]
    with_line = {_subject(row) for row in reported if row.stack}
    groups = grouped(
        (row for row in reported if row.stack or _subject(row) not in with_line),
        lambda row: (_subject(row), (row.stack[-1].file, row.stack[-1].line) if row.stack else None),
    )
    issues = []
    for group in groups.values():
        row, kind = group[0], ISSUES[group[0].kind]
        issues.append(
            ExportIssue(
                compile_id=row.key.compile_id,
                epoch=row.key.epoch,
                kind=kind,
                subject=row.subject,
                details=row.details,
                file=row.stack[-1].file if row.stack else "",
                line=row.stack[-1].line if row.stack else None,
                times=len(group),
                next_step=_NEXT_STEPS[kind],
            )
        )
    return issues


def _subject(row: ExportIssueMessage) -> tuple[object, ...]:
    # The first letter of the kind: both kinds that begin with "value" are about one expression.
    return key_of(row.key), ISSUES[row.kind][0], row.subject
