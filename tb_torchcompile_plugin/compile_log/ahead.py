"""Compilations that torch gives no compile id: packages of AOTInductor, and exports. Here they get one.

`aot/0`, `aot/1` … and `export/0` … in the order in which they began in the process. What is written while AOTInductor
compiles on a thread belongs to its package. Logs of older torch do not say when that begins: there the graphs and
codes without an id are one package, until another graph follows on a code. An export is told by the program's call of
torch.export, and by the number of what describes its inputs, which is new in each.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from tb_torchcompile_plugin.compile_log import compile_rows, prose
from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.compile_log.frames import CompiledFrame
from tb_torchcompile_plugin.compile_log.record import Record
from tb_torchcompile_plugin.torch_names import caches as names
from tb_torchcompile_plugin.torch_names.artifacts import AOT_CODE, WRAPPER_CODE, name_of
from tb_torchcompile_plugin.torch_names.records import AOT_ROOTS, COMPILE_FILE, DESCRIBER, DUMP, kind_of


@dataclass
class Called:
    """The program's call that a compilation ahead of time is of. stack: the program's, outermost first."""

    compile_id: str
    function: str
    stack: list[dict[str, Any]]


class AheadOfTime:
    """Whose a record without a compile id is."""

    def __init__(self) -> None:
        self._numbers: Counter[str] = Counter()
        self._open: dict[int, str] = {}  # thread → the package that is compiled on it
        self._loose = ""  # the package of logs without spans
        self._loose_is_coded = False
        self._export: tuple[object, str] = (None, "")  # the last one: by which call, and its id
        self._describers: dict[str, object] = {}
        self.calls: dict[str, Called] = {}

    def marked(self, name: str, mark: str, compile_id: str, thread: int) -> str:
        """Whose a mark of a span is. compile_id: as far as is known. What workers do keeps its lane."""
        if compile_id and not names.is_ahead(compile_id):
            return compile_id
        if name == COMPILE_FILE:
            return ""
        if name in AOT_ROOTS and mark == "B":
            self._open[thread] = self._next(names.AOT)
            return self._open[thread]
        return self._open.pop(thread, "") if name in AOT_ROOTS else compile_id

    def owner(self, metadata: dict[str, Any], kind: str, thread: int, files: dict[int, str]) -> str:
        """The id of what the record is of, "" of neither a package nor an export. files: torch's numbers of them."""
        stack = metadata.get("stack")
        paths = _paths(stack, files) if isinstance(stack, list) else []
        place = names.export_call(paths)
        if kind in names.ISSUES:  # of draft export, which tells them without saying where it is
            return self._export[1]
        owner = self._open.get(thread) or (
            self._exported(metadata, stack, place)
            if place is not None
            else self._package(name_of(kind) or kind, metadata)
        )
        if owner and owner not in self.calls and paths:
            self._called(owner, stack, paths, place)
        return owner

    def _package(self, name: str, metadata: dict[str, Any]) -> str:
        dump = metadata.get(name)
        name = f"{name}_{dump['name']}" if isinstance(dump, dict) and dump.get("name") else name
        code, graph = names.is_code(name), names.begins_graph(name)
        if (code or graph) and (not self._loose or (graph and self._loose_is_coded)):
            self._loose, self._loose_is_coded = self._next(names.AOT), False
        self._loose_is_coded = self._loose_is_coded or code
        return self._loose if code or graph or names.follows_graph(name) else ""

    def _exported(self, metadata: dict[str, Any], stack: Any, place: int) -> str:
        """An export that begins again, as draft export does, is the same one."""
        call = [(row.get("filename"), row.get("line")) for row in stack[:place]]
        details = metadata.get(kind_of(metadata))
        describer = details.get(DESCRIBER) if isinstance(details, dict) else None
        known, compile_id = self._export
        if known != call or self._is_another(compile_id, describer, names.is_draft(stack[place])):
            compile_id = self._next(names.EXPORT)
        self._export = call, compile_id
        if describer is not None:
            self._describers[compile_id] = describer
        return compile_id

    def _is_another(self, compile_id: str, describer: object, draft: bool) -> bool:
        known = self._describers.get(compile_id)
        return not draft and describer is not None and known is not None and describer != known

    def _called(self, owner: str, stack: Any, paths: list[str], export: int | None) -> None:
        place = export if export is not None else names.torch_call(paths)
        place = len(paths) - 1 if place is None else place
        self.calls[owner] = Called(owner, str(stack[place].get("name") or ""), stack[:place])

    def _next(self, kind: str) -> str:
        compile_id = f"{kind}/{self._numbers[kind]}"
        self._numbers[kind] += 1
        return compile_id


def _paths(stack: list[dict[str, Any]], files: dict[int, str]) -> list[str]:
    return [str(files.get(row.get("filename"), row.get("filename"))) for row in stack]  # type: ignore[arg-type]


def add_code(frame: CompiledFrame, record: Record) -> None:
    """A dump of AOTInductor: it writes the code of a graph in two texts, in older torch in one."""
    details = record.metadata[DUMP]
    name, graphs = f"{DUMP}_{details.get('name')}", frame.graphs
    if name in WRAPPER_CODE:
        file = str(details.get("filename") or "")
        graphs.append(pb.Graph(key=frame.key, output_code_file=file, index=len(graphs)))
    if name in AOT_CODE and graphs:
        known = {kernel.name for kernel in graphs[-1].kernels}
        kernels = prose.generated_kernels(record.payload or "")
        graphs[-1].kernels.extend(kernel for kernel in kernels if kernel.name not in known)
    if name in WRAPPER_CODE:
        while frame.kernel_infos:
            compile_rows.add_kernel_info(graphs[-1], frame.kernel_infos.pop(0))


def export_issue(
    record: Record, key: pb.CompileKey, stack: list[pb.Frame], *, source: bool
) -> pb.ExportIssue:
    """A record of one of ISSUES. stack: of the user's code."""
    kind = kind_of(record.metadata)
    details = record.metadata[kind]
    row = pb.ExportIssue(key=key, kind=kind, stack=stack)
    row.subject = str(details.get("op") or details.get("expr") or "")
    value = details.get("reason") or details.get("result")
    if source and value is not None:
        row.details = str(value)
    return row
