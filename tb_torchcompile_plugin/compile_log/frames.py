"""What a compile log gathers about each compile id, until it is asked for a summary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tb_torchcompile_plugin.compile_log import compile_rows
from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.compile_log.compile_rows import Recovered
from tb_torchcompile_plugin.torch_names.caches import is_ahead


@dataclass
class CompiledFrame:
    """All that is known of one compile id in one epoch."""

    key: pb.CompileKey
    marks: set[str] = field(default_factory=set)  # of its beginning that were seen
    finished: bool = False
    is_compilation: bool = False  # and not only the owner of a stray record
    forward: pb.Compilation | None = None
    backwards: list[pb.Compilation] = field(default_factory=list)
    backwards_measured: int = 0
    graphs: list[pb.Graph] = field(default_factory=list)
    cache_keys: list[str] = field(default_factory=list)  # of cache records that came before their code
    kernel_infos: list[dict[str, Any]] = field(
        default_factory=list
    )  # that came before their code, as AOTInductor's do
    recompile: pb.Recompile | None = None
    attempt: int | None = None
    for_inference: bool = False  # AOTAutograd said so: it has no backward

    def forward_row(self) -> pb.Compilation:
        """The row of the frame, or a place for what a stray record says."""
        if self.forward is None:
            self.forward = pb.Compilation(key=self.key, direction=pb.FORWARD)
        return self.forward

    def begun(self) -> pb.Compilation:
        """The row of the frame, from a record that proves its compilation."""
        self.is_compilation = bool(self.key.compile_id)
        return self.forward_row()

    def take_recovered(self, row: pb.Compilation) -> None:
        """A compilation that was over before recording began."""
        self.finished = True
        if row.direction == pb.FORWARD:
            self.forward, self.is_compilation = row, True
        else:
            self.backwards.append(row)
            self.backwards_measured += 1

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
        self, summary: pb.CompileSummary, first: pb.Compilation | None = None, *, may_be_older: bool = False
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

    def name_graph(self, key: str) -> pb.Graph | None:
        """A cache record follows the code of its graph; only in old versions a hit comes before it: then None."""
        for graph in reversed(self.graphs):
            if not graph.graph_key:
                graph.graph_key = key
                return graph
        self.cache_keys.append(key)
        return None


class CompiledFrames:
    """The frames of one process by epoch and compile id. `epoch` is the newest: ids restart with torch's reset."""

    def __init__(self) -> None:
        self._frames: dict[tuple[int, str], CompiledFrame] = {}
        self.epoch = 0

    def __iter__(self) -> Iterator[CompiledFrame]:
        return iter(self._frames.values())

    def find(self, epoch: int, compile_id: str) -> CompiledFrame | None:
        return self._frames.get((epoch, compile_id))

    def at(self, epoch: int, compile_id: str) -> CompiledFrame:
        """That frame; a new one if it is the first that is heard of it."""
        frame = self._frames.get((epoch, compile_id))
        if frame is None:
            key = pb.CompileKey(compile_id=compile_id, epoch=epoch)
            frame = self._frames[epoch, compile_id] = CompiledFrame(key)
        return frame

    def now(self, compile_id: str) -> CompiledFrame:
        """The frame that has this id in the newest epoch."""
        return self.at(self.epoch_of(compile_id), compile_id)

    def epoch_of(self, compile_id: str) -> int:
        """The newest; ids of what was compiled ahead of time do not restart."""
        return 0 if is_ahead(compile_id) else self.epoch

    def key(self, compile_id: str) -> pb.CompileKey:
        """Of a record that has this id now."""
        return pb.CompileKey(compile_id=compile_id, epoch=self.epoch_of(compile_id))

    def called_ahead(self, compile_id: str, thread: int) -> pb.Compilation:
        """The row of a compilation ahead of time, from any record of it."""
        frame = self.now(compile_id)
        known = frame.is_compilation
        row = frame.begun()
        row.thread = row.thread if known else thread
        return row

    def begin(self, compile_id: str, mark: str, attempt: int = 0) -> CompiledFrame:
        """The frame of an id whose compilation begins. If it has begun before, torch was reset: a new epoch."""
        frame = self.now(compile_id)
        if compile_id and not is_ahead(compile_id) and frame.begins_again(mark, attempt):
            self.epoch += 1
            frame = self.now(compile_id)
        frame.marks.add(mark)
        return frame

    def start_from(self, recovered: Recovered) -> None:
        """Takes rows from before recording began, or from a pause of it, in the order of their compilation.

        An id that was compiled before begins a new epoch, also for the rows: they count epochs from their own start.
        The keys of all rows are put right.
        """
        epochs: dict[tuple[int, str], int] = {}  # of the rows → of this log
        for row in recovered.compilations:
            key = (row.key.epoch, row.key.compile_id)
            if row.direction == pb.FORWARD:
                self.epoch += self.now(row.key.compile_id).is_compilation
                epochs[key] = self.epoch
            row.key.epoch = epochs.get(key, self.epoch)
            self.at(row.key.epoch, row.key.compile_id).take_recovered(row)
        for recompile in recovered.recompiles:
            self._of_recovered(recompile.key, epochs).recompile = recompile
        for graph in recovered.graphs:
            self._of_recovered(graph.key, epochs).graphs.append(graph)

    def _of_recovered(self, key: pb.CompileKey, epochs: dict[tuple[int, str], int]) -> CompiledFrame:
        key.epoch = epochs.get((key.epoch, key.compile_id), key.epoch)
        return self.at(key.epoch, key.compile_id)

    def put(self, summary: pb.CompileSummary) -> None:
        """Adds the rows of all frames, compilations in order of time."""
        for frame in self:
            frame.put(summary, first=self._first_of(frame), may_be_older=self._may_be_older(frame))
        summary.compilations.sort(key=lambda row: row.start_ns or 0)

    def _first_of(self, frame: CompiledFrame) -> pb.Compilation | None:
        """The first compilation of the same code. One that hits the recompile limit says neither name nor place."""
        if is_ahead(frame.key.compile_id):
            return None
        first = self.find(frame.key.epoch, f"{frame.key.compile_id.rpartition('/')[0]}/0")
        return first.forward if first is not None else None

    def _may_be_older(self, frame: CompiledFrame) -> bool:
        """Whether a backward under this id may be of a frame from before torch was reset, which still lacks its own."""
        older = (self.find(epoch, frame.key.compile_id) for epoch in range(frame.key.epoch))
        return bool(frame.backwards) and any(other and other.awaits_backward() for other in older)
