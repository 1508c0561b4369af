"""What did torch.export have to assume, and what could it not do? Draft export tells; torch.export only raises."""

from __future__ import annotations

import msgspec

from tb_torchcompile_plugin.analysis.formatting import plural
from tb_torchcompile_plugin.compile_log.record import forward_compilations, key_of, known_number
from tb_torchcompile_plugin.compile_log.summary_pb2 import ExportIssue as ExportIssueMessage
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.caches import ISSUES, IssueKind, is_export

_STEPS: dict[IssueKind, str] = {
    "missing fake kernel": "Register one: torch.library.register_fake",
    "wrong fake kernel": "Mend its fake kernel: it must give what the operator gives",
    "value of the example used": "State it: torch._check",
    "value only the data tells": "State it: torch._check, or branch with torch.cond",
}


class ExportCall(msgspec.Struct, frozen=True):
    """One call of torch.export: `function` of torch, at the program's line."""

    compile_id: str
    epoch: int
    function: str
    file: str
    line: int | None
    issues: int


class ExportIssue(msgspec.Struct, frozen=True):
    """subject: the operator, or the expression. details: the value that was taken, or what did not agree. times: how
    often it came. line: of the user's code, None where torch does not tell."""

    compile_id: str
    epoch: int
    kind: IssueKind
    subject: str
    details: str
    file: str
    line: int | None
    times: int
    next_step: str


class Exports(msgspec.Struct, frozen=True):
    says: tuple[str, ...]
    exports: tuple[ExportCall, ...]
    issues: tuple[ExportIssue, ...]


def exports(data: CompileData) -> Exports:
    """Exports in the order in which they began, and their issues, each once."""
    rows = _issues(data)
    calls = [row for row in forward_compilations(data.summary).values() if is_export(row.key.compile_id)]
    known = tuple(
        ExportCall(
            compile_id=row.key.compile_id,
            epoch=row.key.epoch,
            function=row.function,
            file=row.file,
            line=known_number(row, "line"),
            issues=sum(issue.compile_id == row.key.compile_id for issue in rows),
        )
        for row in sorted(calls, key=lambda row: (len(row.key.compile_id), row.key.compile_id))
    )
    return Exports((_headline(known, rows),), known, tuple(rows))


def _issues(data: CompileData) -> list[ExportIssue]:
    """torch tells a value that was taken twice, the second time with its line."""
    known = [row for row in data.summary.export_issues if row.kind in ISSUES]
    placed = {_about(row) for row in known if row.stack}
    rows = [row for row in known if row.stack or _about(row) not in placed]
    same = grouped(
        rows, lambda row: (*_about(row), *((row.stack[-1].file, row.stack[-1].line) if row.stack else ()))
    )
    return [_issue(each[0], len(each)) for each in same.values()]


def _about(row: ExportIssueMessage) -> tuple[object, ...]:
    return key_of(row.key), ISSUES[row.kind][0], row.subject


def _issue(row: ExportIssueMessage, times: int) -> ExportIssue:
    kind = ISSUES[row.kind]
    at = row.stack[-1] if row.stack else None
    return ExportIssue(
        compile_id=row.key.compile_id,
        epoch=row.key.epoch,
        kind=kind,
        subject=row.subject,
        details=row.details,
        file=at.file if at else "",
        line=at.line if at else None,
        times=times,
        next_step=_STEPS[kind],
    )


def _headline(known: tuple[ExportCall, ...], rows: list[ExportIssue]) -> str:
    if not known:
        return "torch.export was not called."
    begun = plural(len(known), "export")
    if not rows:
        return f"{begun}; torch tells of no issue: only draft_export looks for them."
    return f"{begun}; {plural(len(rows), 'issue')}, the first: {rows[0].kind} ({rows[0].subject})."
