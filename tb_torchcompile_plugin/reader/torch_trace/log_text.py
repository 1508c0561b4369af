"""The text of TORCH_LOGS: lines → the records of a TORCH_TRACE log → one CompileSummary for each process.

A text contains what its topics print, and no times. What it does not contain is unknown (`CompileData.is_unknown`).
"""

import contextlib
import json
import re
from collections import defaultdict
from typing import Any

from tb_torchcompile_plugin.compile_log.log import CompileLog
from tb_torchcompile_plugin.compile_log.record import LOG_TEXT, Record
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.logdir.filesystem import Part
from tb_torchcompile_plugin.logdir.log_text import log_heads
from tb_torchcompile_plugin.reader.torch_trace.structured_log import chunks
from tb_torchcompile_plugin.reader.trace.source import open_source
from tb_torchcompile_plugin.torch_names import artifacts, graph_breaks, log_lines, records

# Messages of one compilation and topic that are kept. Chosen by hand.
_MAX_MESSAGES = 1 << 16


def read_log_text(path: str) -> dict[Part, CompileSummary]:
    """Return what each process compiled. Raises UserError if the text has no lines about compilations."""
    messages: dict[Part, _Messages] = {}
    latest: dict[Part, Part] = {}  # by the same without the rank
    with contextlib.closing(open_source(path)) as source:
        for part, head in log_heads(chunks(source)):
            unranked = part._replace(rank=-1)
            if part == unranked:
                part = latest.get(unranked, part)
            if part not in messages:
                # Its first lines may be without the rank.
                messages[part] = messages.pop(unranked, _Messages())
            latest[unranked] = part
            messages[part].take(head)
    if not messages:
        raise UserError(
            "the text contains no lines of TORCH_LOGS",
            file=path,
            next_step="Set TORCH_LOGS=graph_breaks,recompiles,dynamic,guards for the run, or TORCH_TRACE to a folder, "
            "which records more",
        )
    return {part: log.summary(part) for part, log in messages.items()}


class _Messages:
    """The messages of one process, joined from their lines, as records."""

    def __init__(self) -> None:
        self._log = CompileLog(payloads=True)
        self._head: tuple[bytes | None, ...] = ()
        self._lines: list[str] = []
        # By compile id: what metrics would contain, and messages that were seen.
        self._metrics: dict[str, dict[str, Any]] = {}
        self._seen: dict[str, set[str]] = {}
        self._texts: dict[tuple[str, str], list[str]] = defaultdict(list)  # by compile id and topic

    def take(self, line: re.Match[bytes]) -> None:
        head = line.group("time", "place", "id", "attempt", "topic")
        # A progress bar may follow on the same line.
        text = line.string[line.end() :].partition(b"\r")[0].decode("utf-8", "replace")
        if head != self._head or log_lines.BEGINS.match(text):
            self._end_message()
            self._head = head
        self._lines.append(text)

    def summary(self, part: Part) -> CompileSummary:
        self._end_message()
        self._end_epoch()
        summary = self._log.summary()
        summary.environment.capture, summary.environment.pid = LOG_TEXT, int(part.label)
        if part.rank >= 0:
            summary.environment.rank = part.rank
        return summary

    def _end_message(self) -> None:
        if not (lines := self._lines):
            return
        self._lines, (compile_id, attempt, topic) = [], ((part or b"").decode() for part in self._head[2:])
        if failed := log_lines.FAILED.match(lines[0]):
            self._take_failure(compile_id or self._id_of(failed), failed, "\n".join(lines))
        elif compile_id:
            self._take_message(compile_id, attempt, topic, lines)

    def _take_message(self, compile_id: str, attempt: str, topic: str, lines: list[str]) -> None:
        self._begin(compile_id)
        if topic == "graph_breaks":
            self._take_break(compile_id, "\n".join(lines))
        elif topic in ("recompiles", "recompiles_verbose"):
            self._take_recompile(compile_id, lines)
        elif topic:
            self._take_text(compile_id, topic, "\n".join(lines))
        else:
            self._take_limit(compile_id, "\n".join(lines))
            for line in lines:
                self._take_line(compile_id, int(attempt or 0), line)

    def _begin(self, compile_id: str, message: str = "") -> None:
        """Note that a frame is compiled; if a message that is printed once was seen before, torch was reset."""
        if message and message in self._seen.get(compile_id, ()):
            self._end_epoch()
        if compile_id not in self._seen:
            self._seen[compile_id], self._metrics[compile_id] = set(), {}
            self._add(compile_id, {records.DYNAMO_START: {}})
        self._seen[compile_id].add(message)

    def _end_epoch(self) -> None:
        for (compile_id, topic), messages in self._texts.items():
            self._add(compile_id, {records.ARTIFACT: {"name": topic}}, "\n".join(messages))
        for compile_id, metrics in self._metrics.items():
            self._add(compile_id, {records.METRICS: metrics, "attempt": metrics.pop("attempt", None)})
        for state in (self._texts, self._metrics, self._seen):
            state.clear()

    def _add(self, compile_id: str, metadata: dict[str, Any], payload: str | None = None) -> None:
        numbers = reversed(compile_id.lstrip("!").split("/"))
        self._log.add(Record({**dict(zip(reversed(records.ID_FIELDS), numbers)), **metadata}, payload))

    def _take_break(self, compile_id: str, text: str) -> None:
        if log_lines.BEGINS.match(text):
            text = log_lines.REPEATED.sub("Graph break", text)
            self._add(compile_id, {records.ARTIFACT: {"name": artifacts.GRAPH_BREAK}}, text)
        else:
            self._log.records.unreadable["a message without its beginning"] += 1

    def _take_recompile(self, compile_id: str, lines: list[str]) -> None:
        """Add a recompile. It names its function, and the versions that were compiled before."""
        self._begin(compile_id, "recompile")
        reasons: list[str] = []
        versions = [compile_id]
        for match in filter(None, map(log_lines.REASON.match, lines)):
            if entry := graph_breaks.ENTRY.match(match["text"]):
                versions.append(entry["entry"])
            if entry or not reasons:
                reasons.append(match["text"])
            else:
                reasons[-1] += "\n" + match["text"]
        for version in versions:
            self._begin(version)
            self._learn_place(version, log_lines.RECOMPILING.match(lines[0]))
        self._add(compile_id, {records.ARTIFACT: {"name": artifacts.RECOMPILE}}, json.dumps(reasons))

    def _learn_place(self, compile_id: str, match: re.Match[str] | None) -> None:
        if match and match["file"]:
            self._metrics[compile_id] |= _place(match)

    def _take_text(self, compile_id: str, topic: str, text: str) -> None:
        title, _, code = text.partition("\n")
        if topic == "output_code" and title.startswith("Output code:"):
            self._add(compile_id, {records.OUTPUT_CODE: {}}, code)
        elif topic == "guards" and "TREE_GUARD_MANAGER" in text:
            self._add(compile_id, {artifacts.GUARDS: {}}, text.strip())
        elif graph_breaks.is_cudagraph_skip(text):
            self._add(compile_id, {records.CUDAGRAPH_SKIP: {}}, text)
        elif len(messages := self._texts[compile_id, topic]) < _MAX_MESSAGES:
            messages.append(text)

    def _take_limit(self, compile_id: str, text: str) -> None:
        if limit := log_lines.LIMIT.match(text):
            self._learn_place(compile_id, limit)
            self._metrics[compile_id] |= {"fail_type": graph_breaks.UNSUPPORTED, "fail_reason": text}
            self._metrics[compile_id][records.RECOMPILE_LIMIT] = int(limit["limit"])

    def _id_of(self, failed: re.Match[str]) -> str:
        """Return the last compilation at its place, that which had begun, or a new id: torch prints none with it."""
        place = _place(failed)
        for compile_id, metrics in reversed(self._metrics.items()):
            is_begun = self._seen[compile_id] & {log_lines.BEGUN, log_lines.DONE} == {log_lines.BEGUN}
            if place.items() <= metrics.items() or (is_begun and "co_name" not in metrics):
                return compile_id
        return f"?{len(self._metrics)}/0"

    def _take_failure(self, compile_id: str, failed: re.Match[str], text: str) -> None:
        self._begin(compile_id)
        self._learn_place(compile_id, failed)
        error = log_lines.EXCEPTION.search(text.rpartition(log_lines.TRACEBACK)[2])
        kind, reason = error.groups() if error else ("Exception", "")
        if kind != graph_breaks.UNSUPPORTED:  # which its graph break or limit shows
            # torch raises other errors unless they are suppressed.
            failure = {"fail_type": kind, "fail_reason": reason, records.SUPPRESS_ERRORS: True}
            self._metrics[compile_id] |= failure

    def _take_line(self, compile_id: str, attempt: int, line: str) -> None:
        """Take a message of TORCH_LOGS=dynamic or dynamo, or a warning of dynamo."""
        if tracing := log_lines.TRACING.match(line):
            self._begin(compile_id, "" if attempt else tracing["verb"])
            self._learn_place(compile_id, tracing)
        elif symbol := log_lines.SYMBOL.match(line):
            self._add(compile_id, {records.SYMBOLS[0]: symbol.groupdict(), "attempt": attempt})
        elif changed := log_lines.CHANGED.match(line):
            event = {"name": records.CHANGED_SHAPE, "ph": "i", "args": changed.groupdict()}
            self._add(compile_id, {records.CHROMIUM_EVENT: event, "attempt": attempt})
        elif line in (log_lines.BEGUN, log_lines.DONE):
            self._seen[compile_id].add(line)
        metrics = self._metrics[compile_id]
        metrics["attempt"] = max(attempt, metrics.get("attempt", 0))


def _place(match: re.Match[str]) -> dict[str, Any]:
    place = {"co_name": match["function"], "co_filename": match["file"]}
    return {**place, "co_firstlineno": int(match["line"])}
