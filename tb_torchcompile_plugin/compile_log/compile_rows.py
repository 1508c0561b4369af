"""What does torch say about one compilation? Rows of the summary, and the frames that gather them.

Functions that take `source` put nothing that quotes the user's code into a row without it. Standard library and
protobuf only.
"""

import contextlib
import json
import re
import textwrap
from dataclasses import dataclass, field
from typing import Any

from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.compile_log.record import CompileSpan, nanoseconds
from tb_torchcompile_plugin.torch_names import graph_breaks
from tb_torchcompile_plugin.torch_names import records as metric_names
from tb_torchcompile_plugin.torch_names.artifacts import CPP, TRITON, kernel_definitions
from tb_torchcompile_plugin.torch_names.caches import is_ahead_of_time, is_export
from tb_torchcompile_plugin.torch_names.kernels import Category, category_of, has_triton_prefix
from tb_torchcompile_plugin.torch_names.python_frames import first_traceback, traceback_frames

# In place of a text that was left out on purpose.
WITHHELD = 'not stored: capture="summary"'


def parse_graph_break(text: str) -> pb.GraphBreak:
    """Parse the text of a `dynamo_graph_break_reason` record, or a key of the `graph_break` counters.

    Fields are empty where torch does not say.
    """
    stacks = [(text.find(head), head) for head in graph_breaks.STACK_HEADS if head in text]
    start, title = min(stacks, default=(len(text), ""))
    head = text[:start]
    parsed = pb.GraphBreak(reason=_reason_of(head), stack=parse_traceback(text[start + len(title) :]))
    if explanation := graph_breaks.EXPLANATION.search(head):
        parsed.explanation = _prose(explanation["text"])
    parsed.hints.extend(_prose(hint["text"]) for hint in graph_breaks.HINT.finditer(head))
    if docs := graph_breaks.DOCS.search(head):
        parsed.docs_url = docs["url"]
    if match := graph_breaks.BREAK_AT.search(head):
        parsed.file, parsed.line = match["file"], int(match["line"])
    elif parsed.stack:
        parsed.file, parsed.line = parsed.stack[-1].file, parsed.stack[-1].line
    return parsed


def _prose(text: str) -> str:
    """Return the first paragraph on one line; what follows it (torch 2.13 quotes code there) keeps its lines."""
    first, _, rest = text.partition("\n\n")
    return "\n".join([" ".join(first.split()), textwrap.dedent(rest).strip()]).strip()


def _reason_of(head: str) -> str:
    """Return one line: the one above "Explanation:" is torch's own name of the break; the first may be a preamble."""
    lines = head.splitlines()
    for above, line in zip(["", *lines], lines, strict=False):
        if line.lstrip().startswith("Explanation:") and above.strip():
            labelled = graph_breaks.REASON.match(above.strip())
            return labelled["reason"].strip() if labelled else above.strip()
    if match := graph_breaks.REASON.search(head):
        return match["reason"].strip()
    return next(
        (line.strip() for line in lines if line.strip() and not graph_breaks.BREAK_AT.search(line)), ""
    )


def parse_traceback(text: str) -> list[pb.Frame]:
    """Return the frames of a Python traceback, outermost first, up to the first line that belongs to none."""
    return [
        pb.Frame(file=frame.file, line=frame.line, function=frame.function, source=frame.source or None)
        for frame in traceback_frames(first_traceback(text))
    ]


def parse_recompile_reasons(payload: str) -> list[str]:
    """Return the reasons of a `recompile_reasons` record: a JSON list, or a bare string if there is only one."""
    text = payload.strip()
    reasons = [text] if text else []
    if text.startswith(("[", '"')):
        with contextlib.suppress(ValueError):
            decoded = json.loads(text)
            reasons = decoded if isinstance(decoded, list) else [decoded]
    return [str(reason).strip() for reason in reasons]


def withhold_source(text: str) -> str:
    """Return a guard or a recompile reason without the user's code; names of variables stay.

    The code follows the `#`, or is in a traceback; strings that the code compares with or looks up are left out, too.
    """
    guard = re.split(r"\s*#|\s*\bUser stack trace:|\n", text, maxsplit=1)[0]
    return graph_breaks.STRING.sub(lambda match: match["name"] or "'…'", guard)


def generated_kernels(code: str) -> list[pb.GeneratedKernel]:
    """Return the kernels that inductor's output code defines, in order; calls into libraries are not among them."""
    kernels: dict[str, pb.GeneratedKernel] = {}
    for kernel in kernel_definitions(code):
        category: Category = category_of(kernel.name)
        if kernel.language.startswith(CPP):
            category = "cpp"
        elif kernel.language == TRITON and not has_triton_prefix(kernel.name):
            category = "triton_user"
        kernels.setdefault(kernel.name, pb.GeneratedKernel(name=kernel.name, category=category))
    return list(kernels.values())


def break_row(text: str, *, source: bool, count: int = 1) -> pb.GraphBreak:
    """Parse a graph break from torch's text, without any of the user's code unless `source`."""
    row = parse_graph_break(text)
    row.count = count
    if source:
        row.text = text
        return row
    if not row.docs_url and not row.explanation:  # torch's fixed names of breaks have one of them
        row.reason = f"Graph break ({WITHHELD})"
    row.explanation = ""
    del row.hints[:]
    for frame in row.stack:
        frame.ClearField("source")
    return row


def fill_from_metrics(row: pb.Compilation, metrics: dict[str, Any], *, source: bool) -> None:
    """Copy what torch's compilation metrics say into a row; what is known from spans stays."""
    row.function = row.function or text_of(metrics.get("co_name"))
    row.file = row.file or text_of(metrics.get("co_filename"))
    for target, name in metric_names.COUNTS:
        if metrics.get(name) is not None:
            setattr(row, target, int(metrics[name]))
    _fill_times(row, metrics)
    _fill_failure(row, metrics, source)
    row.metrics.update(metrics_json(metrics, source=source))
    if limit := metric_names.RECOMPILE_LIMIT_SET.search(text_of(metrics.get(metric_names.CONFIG_FIELDS[0]))):
        row.metrics[metric_names.RECOMPILE_LIMIT] = limit[1]


def metrics_json(metrics: dict[str, Any], *, source: bool) -> dict[str, str]:
    """Return every field that is not null, as JSON by name, but for the settings, which are stored as texts."""
    return {
        name: str(value) if type(value) is int else json.dumps(value, default=repr)  # most are numbers
        for name, value in metrics.items()
        if value is not None
        and name not in metric_names.CONFIG_FIELDS
        and (source or isinstance(value, int | float) or name in metric_names.SAFE_TEXTS)
    }


def _fill_times(row: pb.Compilation, metrics: dict[str, Any]) -> None:
    if not row.HasField("start_ns"):
        if metrics.get("start_time_us") is not None:
            row.start_ns = int(metrics["start_time_us"]) * 1000
        elif metrics.get("start_time") is not None:
            row.start_ns = nanoseconds(float(metrics["start_time"]) * 1e6)
    # The metrics of an export are of dynamo's part alone.
    if row.HasField("duration_ns") or is_export(row.key.compile_id):
        return
    is_forward = row.direction == pb.FORWARD
    for name, factor in metric_names.FORWARD_DURATIONS if is_forward else metric_names.BACKWARD_DURATIONS:
        if metrics.get(name) is not None:
            row.duration_ns = round(float(metrics[name]) * factor)
            return


def _fill_failure(row: pb.Compilation, metrics: dict[str, Any], source: bool) -> None:
    if metrics.get("fail_type"):
        kind, file = (text_of(metrics.get(name)) for name in ("fail_type", "fail_user_frame_filename"))
        reason = text_of(metrics.get("fail_reason"))
        row.failure.CopyFrom(pb.Failure(type=graph_breaks.exception_name(kind), file=file))
        row.failure.reason = reason if source else WITHHELD
        for frame in () if file else traceback_frames(reason.partition(graph_breaks.FOUND_FROM)[2]):
            row.failure.file, row.failure.line = frame.file, frame.line
        if metrics.get("fail_user_frame_lineno") is not None:
            row.failure.line = int(metrics["fail_user_frame_lineno"])
    del row.restart_reasons[:]
    reasons = metrics.get("restart_reasons") or []
    for reason in sorted(reasons) if isinstance(reasons, list | set | tuple | frozenset) else [reasons]:
        text = str(reason)
        row.restart_reasons.append(text if source else break_row(text, source=False).reason)


def set_duration(row: pb.Compilation, span: CompileSpan) -> None:
    """Set the times and phases of a row from the span of the whole compilation."""
    row.start_ns, row.duration_ns, row.thread = span.row.start_ns, span.row.duration_ns, span.row.thread
    del row.phases[:]
    row.phases.extend(pb.Phase(name=name, exclusive_ns=ns) for name, ns in span.phases().items())


def add_autotuned(row: pb.PhaseSpan, arguments: dict[str, Any]) -> None:
    """Add which kernel a span autotuned, or which operator and shapes, and the result, from its end mark."""
    if arguments.get("kernel_name"):
        row.kernel = str(arguments["kernel_name"])
    elif arguments.get("autotune_shape"):
        row.kernel = f"{metric_names.tuned_operator(row.name)} ({arguments['autotune_shape']})"
    row.choices = text_of(arguments.get("autotune_choices_stats"))


def copy_place(row: pb.Compilation | pb.Recompile, forward: pb.Compilation) -> None:
    """Copy the place of a frame to its backward, or to its recompile."""
    row.file = forward.file
    if forward.HasField("line"):
        row.line = forward.line
    if isinstance(row, pb.Compilation):
        row.function = forward.function


def add_kernel_info(graph: pb.Graph, info: dict[str, dict[str, Any]]) -> None:
    """Add `triton_kernel_info` to a graph: configurations tried and compile time by kernel.

    The code is the reference for which kernels a graph has; only where none was found in it (a C++ wrapper) the
    names are taken from here.
    """
    if not graph.kernels:
        graph.kernels.extend(pb.GeneratedKernel(name=name, category=category_of(name)) for name in info)
    for kernel in graph.kernels:
        details = info.get(kernel.name) or {}
        if details.get("num_configs") is not None:
            kernel.num_configs = int(details["num_configs"])
        elif details.get("only_config") is not None:
            kernel.num_configs = 1
        if details.get("compile_time_us") is not None:
            kernel.compile_ns = int(details["compile_time_us"]) * 1000
        kernel.autotune = text_of(details.get("autotune_cache_state"))
        # "XBLOCK=128, num_warps=4" of [["XBLOCK", 128], ["num_warps", 4]].
        pairs = details.get("best_config") or details.get("only_config")
        pairs = pairs if isinstance(pairs, list | tuple) else []
        pairs = [pair for pair in pairs if isinstance(pair, list | tuple) and len(pair) == 2]
        kernel.config = ", ".join(f"{name}={value}" for name, value in pairs)


def text_of(value: object) -> str:
    """Return a string field that may be missing, null, or the word "None"."""
    return "" if value is None or value == "None" else str(value)


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
    # Of cache records, and of kernels as AOTInductor writes them, that came before their code.
    cache_keys: list[str] = field(default_factory=list)
    kernel_infos: list[dict[str, Any]] = field(default_factory=list)
    recompile: pb.Recompile | None = None
    attempt: int | None = None
    for_inference: bool = False  # AOTAutograd said so: it has no backward

    def forward_row(self) -> pb.Compilation:
        """Return the row of the frame, a new one for what a stray record says."""
        if self.forward is None:
            self.forward = pb.Compilation(key=self.key, direction=pb.FORWARD)
        return self.forward

    def begun(self) -> pb.Compilation:
        """Return the row of the frame, from a record that proves its compilation."""
        self.is_compilation = bool(self.key.compile_id)
        return self.forward_row()

    def put(
        self, summary: pb.CompileSummary, first: pb.Compilation | None = None, *, may_be_older: bool = False
    ) -> None:
        """Add the rows of this frame.

        first: the row of the first compilation of the same code. may_be_older: its backwards may be of another frame,
        which had this id before torch was reset; so they get no name from this one.
        """
        forward = self.forward if self.is_compilation else None
        if forward is not None:
            if self.attempt is not None:
                forward.attempts = self.attempt + 1
            # Without metrics (the process died, or is still compiling) the innermost frame names the place.
            if forward.stack and not forward.file:
                frame = forward.stack[-1]
                forward.function, forward.file, forward.line = frame.function, frame.file, frame.line
            if first is not None and not forward.file:
                copy_place(forward, first)
            summary.compilations.append(forward)
        for row in self.backwards:
            if forward is not None and not row.function and not may_be_older:
                copy_place(row, forward)
            summary.compilations.append(row)
        if self.recompile is not None:
            if forward is not None:
                copy_place(self.recompile, forward)
            summary.recompiles.append(self.recompile)
        summary.graphs.extend(self.graphs)


class CompiledFrames:
    """The frames of one process by epoch and compile id: ids restart when torch is reset."""

    def __init__(self) -> None:
        self._frames: dict[tuple[int, str], CompiledFrame] = {}
        self.epoch = 0  # the newest

    def find(self, epoch: int, compile_id: str) -> CompiledFrame | None:
        """Return the frame if there is one."""
        return self._frames.get((epoch, compile_id))

    def at(self, epoch: int, compile_id: str) -> CompiledFrame:
        """Return the frame, a new one for its first record."""
        if (frame := self._frames.get((epoch, compile_id))) is None:
            key = pb.CompileKey(compile_id=compile_id, epoch=epoch)
            frame = self._frames[epoch, compile_id] = CompiledFrame(key)
        return frame

    def now(self, compile_id: str) -> CompiledFrame:
        """Return the frame of this id in the newest epoch; ids of what was compiled ahead of time do not restart."""
        return self.at(0 if is_ahead_of_time(compile_id) else self.epoch, compile_id)

    def count_begun(self) -> int:
        """Return the number of compilations that have begun. A backward belongs to its forward."""
        begun = (frame for frame in self._frames.values() if frame.is_compilation or frame.backwards)
        return sum(not is_export(frame.key.compile_id) for frame in begun)

    def begin(self, compile_id: str, mark: str, attempt: int = 0) -> CompiledFrame:
        """Return the frame of an id whose compilation begins. If it has begun before, torch was reset: a new epoch.

        torch 2.6 writes `dynamo_start` before the spans begin, 2.11 after: only the same mark twice, or one after the
        end, shows another compilation under the same id. A restarted attempt is the same compilation.
        """
        frame = self.now(compile_id)
        begins_again = attempt == 0 and (frame.finished or mark in frame.marks)
        if compile_id and not is_ahead_of_time(compile_id) and begins_again:
            self.epoch += 1
            frame = self.now(compile_id)
        frame.marks.add(mark)
        return frame

    def start_from(self, recovered: pb.CompileSummary) -> None:
        """Take rows from before recording began, or from a pause of it, in the order of their compilation.

        An id that was compiled before begins a new epoch, also for the rows: they count epochs from their own start.
        The keys of all rows are corrected.
        """
        epochs: dict[tuple[int, str], int] = {}  # of the rows → of this log
        for row in recovered.compilations:
            epoch_and_id = (row.key.epoch, row.key.compile_id)
            if row.direction == pb.FORWARD:
                self.epoch += self.now(row.key.compile_id).is_compilation
                epochs[epoch_and_id] = self.epoch
            row.key.epoch = epochs.get(epoch_and_id, self.epoch)
            frame = self.at(row.key.epoch, row.key.compile_id)
            frame.finished = True
            if row.direction == pb.FORWARD:
                frame.forward, frame.is_compilation = row, True
            else:
                frame.backwards.append(row)
                frame.backwards_measured += 1
        keys = [row.key for row in recovered.recompiles] + [row.key for row in recovered.graphs]
        for key in keys:
            key.epoch = epochs.get((key.epoch, key.compile_id), key.epoch)
        for recompile in recovered.recompiles:
            self.at(recompile.key.epoch, recompile.key.compile_id).recompile = recompile
        for graph in recovered.graphs:
            self.at(graph.key.epoch, graph.key.compile_id).graphs.append(graph)

    def put(self, summary: pb.CompileSummary) -> None:
        """Add the rows of all frames, compilations in order of time."""
        for frame in self._frames.values():
            epoch, compile_id = frame.key.epoch, frame.key.compile_id
            # The first compilation of the same code: one that hits the recompile limit has no name and place.
            first_id = f"{compile_id.rpartition('/')[0]}/0"
            first = None if is_ahead_of_time(compile_id) else self.find(epoch, first_id)
            # A backward may be of a frame from before torch was reset, which has none yet.
            older = [self.find(number, compile_id) for number in range(epoch)] if frame.backwards else []
            may_be_older = any(
                row and row.is_compilation and not row.backwards and not row.for_inference for row in older
            )
            frame.put(summary, first=first.forward if first else None, may_be_older=may_be_older)
        summary.compilations.sort(key=lambda row: row.start_ns or 0)
