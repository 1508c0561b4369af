"""What is recorded about one compile id?"""

import json
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

import msgspec

from tb_torchcompile_plugin.analysis.compile import recompiles as recompile_rows
from tb_torchcompile_plugin.analysis.compile.compilations import Compilation, compilations
from tb_torchcompile_plugin.analysis.compile.cuda_graph_recordings import skips_of_graphs
from tb_torchcompile_plugin.analysis.compile.graph_breaks import GraphBreak, graph_breaks
from tb_torchcompile_plugin.analysis.formatting import at_line, plural
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileKey
from tb_torchcompile_plugin.errors import NotFound, Notice, UserError, quoted
from tb_torchcompile_plugin.generated_code.output_code import Artifact, artifacts
from tb_torchcompile_plugin.reader.compile_data import CompileData, read_payload
from tb_torchcompile_plugin.torch_names import graph_breaks as names
from tb_torchcompile_plugin.torch_names.artifacts import GUARDS

_TRACEBACK = "exception_stack_trace"  # among torch's metrics
Row = TypeVar("Row", Compilation, GraphBreak, recompile_rows.Recompile)


class Guard(msgspec.Struct, frozen=True):
    """One check before a compiled frame is run again."""

    text: str  # its line as torch wrote it, without the tree's bars
    kind: str  # "TENSOR_MATCH"
    source: str | None  # what is guarded ("L['x']"), None for what is global
    user_line: str | None  # the code that made torch guard it, and its location


class GuardChecks(msgspec.Struct, frozen=True):
    """What is checked at each call of one compile id, in this order. Thousands, for a large model."""

    sentence: str
    guards: list[Guard]
    warnings: list[Notice]


class Elements(NamedTuple):
    """The elements of one list or dict that are checked one by one."""

    source: str  # the container
    many: int
    line: str  # "m.py:3", the code that made torch guard them; "" where unknown


class CompilationDetails(msgspec.Struct, frozen=True):
    """Everything recorded about one compile id."""

    compile_id: str
    epoch: int
    rows: list[Compilation]  # its forward and its backwards
    traceback: str | None  # of the failure
    graph_breaks: list[GraphBreak]
    recompile: recompile_rows.Recompile | None
    guard_checks: int | None  # length of `GuardChecks.guards`; None where the guard tree was not stored
    shapes: recompile_rows.SymbolicShapes
    cudagraph_skip_reasons: list[str]
    artifacts: list[Artifact]
    warnings: list[Notice]


def compilation(data: CompileData, epoch: int, compile_id: str) -> CompilationDetails:
    """Return the details of one compile id; raises NotFound where nothing was recorded of it."""
    rows, texts = _recorded(data, epoch, compile_id)
    key = CompileKey(epoch=epoch, compile_id=compile_id)
    warnings: list[Notice] = []
    return CompilationDetails(
        compile_id=compile_id,
        epoch=epoch,
        rows=rows,
        traceback=_traceback(data, texts, key, warnings) if any(row.failure for row in rows) else None,
        graph_breaks=_select(data.of(graph_breaks), epoch, compile_id),
        recompile=next(iter(_select(data.of(recompile_rows.recompiles), epoch, compile_id)), None),
        guard_checks=len(guards(_last_text(data, texts, GUARDS, warnings) or "")) or None,
        shapes=data.of(recompile_rows.symbolic_shapes, epoch, compile_id),
        cudagraph_skip_reasons=[
            row.text for skipped, row in data.of(skips_of_graphs) if skipped == (epoch, compile_id)
        ],
        artifacts=texts,
        warnings=warnings,
    )


def guard_checks(data: CompileData, epoch: int, compile_id: str) -> GuardChecks:
    """Return the guards of one compile id; raises NotFound where nothing was recorded of it."""
    rows, texts = _recorded(data, epoch, compile_id)
    warnings: list[Notice] = []
    checks = guards(_last_text(data, texts, GUARDS, warnings) or "")
    count = next((row.guards for row in rows if row.guards not in (None, len(checks))), None)
    sentence = "They are evaluated in this order at each call, until one fails."
    if count is not None:
        sentence += (
            f" Dynamo requested {plural(count, 'guard')} (guard_count): some need no check, some share one, some need "
            "several."
        )
    return GuardChecks(sentence, checks, warnings)


def _recorded(data: CompileData, epoch: int, compile_id: str) -> tuple[list[Compilation], list[Artifact]]:
    rows = _select(data.of(compilations), epoch, compile_id)
    texts = data.of(artifacts, epoch, compile_id)
    if not rows and not texts:
        raise NotFound(f"there is no compilation {quoted(compile_id)} (epoch {epoch})", next_step="Reload")
    return rows, texts


def _select(rows: Iterable[Row], epoch: int, compile_id: str) -> list[Row]:
    return [row for row in rows if (row.epoch, row.compile_id) == (epoch, compile_id)]


def _traceback(
    data: CompileData, texts: list[Artifact], key: CompileKey, warnings: list[Notice]
) -> str | None:
    if traceback := _last_text(data, texts, names.ERROR, warnings):
        return traceback
    messages = (*data.summary.compilations, *data.summary.runtime_metrics)
    recorded = [row for row in messages if row.key == key and _TRACEBACK in row.metrics]
    values = [json.loads(row.metrics[_TRACEBACK]) for row in sorted(recorded, key=lambda row: row.direction)]
    lines = values[0] if values and isinstance(values[0], list) else values
    return "\n".join(str(line) for line in lines) or None


def _last_text(data: CompileData, texts: list[Artifact], name: str, warnings: list[Notice]) -> str | None:
    """Read the newest artifact of this name; None where there is none or, with a warning, where it is unreadable."""
    last = max((text for text in texts if text.name == name), key=lambda text: text.id, default=None)
    if last is None:
        return None
    try:
        return read_payload(data, last.id)
    except UserError as error:
        warnings.append(error.notice)
        return None


def guards(dump: str) -> list[Guard]:
    """Parse the checks of a `dynamo_cpp_guards_str` payload, in the order in which they are made."""
    checks: list[Guard] = []
    sources: dict[int, str | None] = {}
    nodes: list[list[str]] = []  # a guard whose text has several lines is one
    for line in dump.splitlines():
        if names.TREE_NODE.match(line):
            nodes.append([line])
        elif nodes and line.strip() and not line.startswith(names.TREE_AFTER):
            nodes[-1].append(line)
    for node in filter(None, (names.TREE_NODE.match("\n".join(lines)) for lines in nodes)):
        depth, label, rest = len(node["bars"]) // 2, node["label"], node["rest"] or ""
        if label.endswith("Manager"):
            source = names.TREE_SOURCE.search(rest)
            sources[depth] = source["source"] if source else None
            continue
        comment = names.TREE_COMMENT.split(rest, maxsplit=1)[1:]
        checks.append(
            Guard(
                text=f"{label}: {rest}" if rest else label,
                kind=label,
                source=sources.get(depth - 1),
                user_line=comment[0].strip() if comment else None,
            )
        )
    return checks


def most_guarded_container(checks: Iterable[Guard]) -> Elements | None:
    """Return the container of which most elements are compared with earlier values; None without any."""
    elements = [
        (match["container"], check.user_line or "")
        for check in checks
        if check.kind == names.COMPARED
        and check.source
        and (match := names.TREE_ELEMENT.fullmatch(check.source))
    ]
    if not elements:
        return None
    ((container, count),) = Counter(container for container, _ in elements).most_common(1)
    lines = Counter(line for other, line in elements if other == container)
    match = names.TREE_PLACE.search(lines.most_common(1)[0][0])
    return Elements(container, count, at_line(match["file"], int(match["line"])) if match else "")
