"""What a compile log gathers about one compile id, until it is asked for a summary."""

from __future__ import annotations

from dataclasses import dataclass, field

from tb_torchcompile_plugin import compile_rows
from tb_torchcompile_plugin.summary_pb2 import (
    FORWARD,
    Compilation,
    CompileKey,
    CompileSummary,
    Graph,
    Recompile,
)


@dataclass
class CompiledFrame:
    """All that is known of one compile id in one epoch."""

    key: CompileKey
    marks: set[str] = field(default_factory=set)  # of its beginning that were seen
    finished: bool = False
    is_compilation: bool = False  # and not only the owner of a stray record
    forward: Compilation | None = None
    backwards: list[Compilation] = field(default_factory=list)
    backwards_measured: int = 0
    graphs: list[Graph] = field(default_factory=list)
    cache_keys: list[str] = field(default_factory=list)  # of cache records that came before their code
    recompile: Recompile | None = None
    attempt: int | None = None
    for_inference: bool = False  # AOTAutograd said so: it has no backward

    def forward_row(self) -> Compilation:
        """The row of the frame, or a place for what a stray record says."""
        if self.forward is None:
            self.forward = Compilation(key=self.key, direction=FORWARD)
        return self.forward

    def begun(self) -> Compilation:
        """The row of the frame, from a record that proves its compilation."""
        self.is_compilation = bool(self.key.compile_id)
        return self.forward_row()

    def begins_again(self, mark: str, attempt: int = 0) -> bool:
        """Whether this mark of a beginning is that of another compilation under the same id.

        torch 2.6 writes `dynamo_start` before the spans begin, 2.11 after: only the same mark twice, or one after the
        end, tells. A restarted attempt is the same compilation.
        """
        return attempt == 0 and (self.finished or mark in self.marks)

    def awaits_backward(self) -> bool:
        """Whether a backward of it may still be compiled, as far as is known."""
        return self.is_compilation and not self.backwards and not self.for_inference

    def put(
        self, summary: CompileSummary, first: Compilation | None = None, *, may_be_older: bool = False
    ) -> None:
        """Adds the rows of this frame. first: the row of the first compilation of the same code.

        may_be_older: its backwards may be of another frame, that had this id before torch was reset; so they get no
        name from this one.
        """
        forward = self.forward if self.is_compilation else None
        if forward is not None:
            if self.attempt is not None:
                forward.attempts = self.attempt + 1
            compile_rows.place_from_stack(forward)
            if first is not None and not forward.file:
                compile_rows.copy_place(forward, first)
            summary.compilations.append(forward)
        for row in self.backwards:
            if forward is not None and not row.function and not may_be_older:
                compile_rows.copy_place(row, forward)
            summary.compilations.append(row)
        if self.recompile is not None:
            if forward is not None:
                compile_rows.copy_place(self.recompile, forward)
            summary.recompiles.append(self.recompile)
        summary.graphs.extend(self.graphs)

    def name_graph(self, key: str) -> None:
        """A cache record follows the code of its graph; only in old versions a hit comes before it."""
        for graph in reversed(self.graphs):
            if not graph.graph_key:
                graph.graph_key = key
                return
        self.cache_keys.append(key)
