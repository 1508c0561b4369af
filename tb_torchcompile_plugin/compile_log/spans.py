"""Begin and end marks of torch's compiler → spans, and the exclusive time of each phase.

torch writes a mark when a timed function starts and one when it ends, without saying which belong together.
They nest within one thread and one compile id (a *lane*), so a stack per lane pairs them. An end without
a beginning is counted; what never ends is closed with its parent and flagged.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

from tb_torchcompile_plugin.compile_log import summary_pb2 as pb
from tb_torchcompile_plugin.torch_names.records import BACKEND_CALLS, PHASES, Phase, phase_of


@dataclass(slots=True)
class CompileSpan:
    """One timed function, open or ended."""

    row: pb.PhaseSpan  # its duration is set when it ends
    lane: Hashable
    phase: Phase = "other"
    inside_ns: int = 0  # the sum of its direct children
    exclusive: dict[Phase, int] = field(default_factory=dict)  # phase → ns of itself and all inside it

    def phases(self) -> dict[Phase, int]:
        """Return exclusive ns by phase, in the order of PHASES; they sum to the duration exactly."""
        if any(ns < 0 for ns in self.exclusive.values()):
            # The clock was set back while compiling: no split can be trusted, the sum still can.
            return {"other": self.row.duration_ns}
        return {phase: self.exclusive[phase] for phase in PHASES if self.exclusive.get(phase)}


class OpenSpans:
    """Pairs marks. `begin` and `end` take them in the order of the log; O(depth) each."""

    def __init__(self) -> None:
        self._open: dict[Hashable, list[CompileSpan]] = {}

    def begin(self, span: CompileSpan) -> None:
        """Open a span."""
        stack = self._open.setdefault(span.lane, [])
        around = stack[-1].phase if stack else "other"
        span.phase = phase_of(span.row.name) or phase_of(span.row.function) or around
        stack.append(span)

    def end(self, lane: Hashable, name: str, end_ns: int) -> list[CompileSpan]:
        """Return the spans that this mark ends, inner ones first: the named one, and any inside that never ended.

        Nothing is returned if none is open.
        """
        stack = self._open.get(lane, [])
        depth = next((i for i in range(len(stack) - 1, -1, -1) if stack[i].row.name == name), None)
        if depth is None:
            return []
        ended = []
        while len(stack) > depth:
            span = stack.pop()
            span.row.unfinished = len(stack) > depth
            span.row.duration_ns = max(0, end_ns - span.row.start_ns)
            if span.row.name in BACKEND_CALLS:
                span.phase = "aot_autograd" if span.exclusive.get("aot_autograd") else "other"
            own = span.row.duration_ns - span.inside_ns
            span.exclusive[span.phase] = span.exclusive.get(span.phase, 0) + own
            if stack:
                stack[-1].inside_ns += span.row.duration_ns
                for phase, ns in span.exclusive.items():
                    stack[-1].exclusive[phase] = stack[-1].exclusive.get(phase, 0) + ns
            ended.append(span)
        if not stack:
            del self._open[lane]
        return ended

    def is_inside(self, lane: Hashable, names: frozenset[str]) -> bool:
        """Whether a span with one of these names is open in the lane."""
        return any(span.row.name in names for span in self._open.get(lane, ()))

    def still_open(self) -> list[CompileSpan]:
        """Return the spans without an end so far."""
        return [span for stack in self._open.values() for span in stack]
