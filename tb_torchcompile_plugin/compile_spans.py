"""Begin and end marks of torch's compiler → spans, and the exclusive time of each phase.

torch writes a mark when a timed function starts and one when it ends, without saying which belong together.
They nest within one thread and one compile id (a *lane*), so a stack per lane pairs them. What ends without
a beginning is counted; what never ends is closed with its parent and flagged.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

PHASES: tuple[str, ...] = ("dynamo", "aot_autograd", "inductor", "triton", "autotune", "cache", "other")

# The whole compilation of a frame, and of a backward that is compiled when it first runs. torch 2.4 and 2.5 used
# the function names.
FRAME_ROOTS = frozenset({"entire_frame_compile", "_compile.compile_inner"})
BACKWARD_ROOTS = frozenset({"entire_backward_compile", "backward._backward_impl"})
# A backward may also be compiled inside its frame.
COMPILING_BACKWARD = BACKWARD_ROOTS | {"compile_fx.<locals>.bw_compiler"}

# Name, or its beginning, of a timed function → phase. Longer ones first where they overlap; see `phase_of`.
_EXACT = {
    "bytecode_tracing": "dynamo",
    "build_guards": "dynamo",
    "insert_deferred_runtime_asserts": "dynamo",
    "fullgraph_capture": "dynamo",
    "guard_collective": "dynamo",
    "compiler_collective": "dynamo",
    "get_fake_value": "dynamo",
    "TranslationValidator.validate": "dynamo",
    "create_aot_dispatcher_function": "aot_autograd",
    "min_cut_rematerialization_partition": "aot_autograd",
    "joint_graph_passes": "inductor",
    "inductor_compile": "inductor",
    "compile_fx_inner": "inductor",
    "fx_codegen_and_compile": "inductor",
    "code_gen": "inductor",
    "codegen_and_compile": "inductor",
    "additional_fake_tensor_prop": "inductor",
    "generate_kernel_code_from_nodes": "inductor",
    "compile_file": "triton",
    "reload_kernel_in_parent": "triton",
    "PyCodeCache.load_by_key_path": "triton",
    "AotCodeCompiler.compile": "triton",
    "inductor_codecache_torch_key": "cache",
    "benchmark_fused_nodes": "autotune",
    "benchmark_codegened_module": "autotune",
    "collective_compute_do_bench": "autotune",
    "gc": "other",
}
_PREFIXES: tuple[tuple[str, str], ...] = (
    ("compile_attempt_", "dynamo"),
    ("bytecode_hooks", "dynamo"),
    ("precompile_", "dynamo"),
    ("aot_", "aot_autograd"),
    ("invoke_subgraph_", "aot_autograd"),
    ("_recursive_", "inductor"),
    ("pass.", "inductor"),
    ("compile_fx", "inductor"),
    ("GraphLowering.", "inductor"),
    ("Scheduler.", "inductor"),
    ("PythonWrapperCodegen.", "inductor"),
    ("CppWrapper", "inductor"),
    ("fx.bucketing.", "inductor"),
    ("async_compile.", "triton"),
    ("StaticAutotunerFuture.", "triton"),
    ("CachingAutotuner.slow_precompile", "triton"),
    ("CachingAutotuner.precompile", "triton"),
    ("aoti_compile", "triton"),
    ("aoti_precompile", "triton"),
    ("CachingAutotuner.", "autotune"),
    ("AlgorithmSelectorCache.", "autotune"),
    ("TritonBundler.", "cache"),
    ("CacheBase.", "cache"),
    ("FxGraphCache.", "cache"),
    ("AOTAutogradCache.", "cache"),
    ("pgo.", "cache"),
    ("GraphPickler.", "cache"),
    ("CompiledArtifact.", "cache"),
)
_SUFFIXES: tuple[tuple[str, str], ...] = (
    ("_template_precompiling", "autotune"),
    ("_template_autotuning", "autotune"),
)
# Calls of the backend: AOTAutograd's own time if it runs inside, any other backend's otherwise.
_BACKEND_CALLS = frozenset({"backend_compile", "OutputGraph.call_user_compiler"})


def phase_of(name: str) -> str | None:
    """The phase of a timed function, or None where it belongs to the phase of the span around it."""
    if name in FRAME_ROOTS:
        return "dynamo"
    if name in BACKWARD_ROOTS:
        return "aot_autograd"
    if name in _EXACT:
        return _EXACT[name]
    for prefix, phase in _PREFIXES:
        if name.startswith(prefix):
            return phase
    for suffix, phase in _SUFFIXES:
        if name.endswith(suffix):
            return phase
    return None


@dataclass(slots=True)
class Span:
    """One timed function, open or ended. Times in ns; `duration_ns` is None while it is open."""

    name: str
    function: str
    start_ns: int
    phase: str
    lane: Hashable
    compile_id: str = ""
    epoch: int = 0
    thread: int = 0
    worker_process: bool = False
    duration_ns: int | None = None
    unfinished: bool = False
    kernel: str = ""  # that is autotuned
    choices: str = ""  # what torch says of the templates tried
    inside_ns: int = 0  # the sum of its direct children
    exclusive: dict[str, int] = field(default_factory=dict)  # phase → ns of itself and all inside it

    def phases(self) -> dict[str, int]:
        """Phase → exclusive ns, in the order of PHASES; they sum to `duration_ns` exactly."""
        assert self.duration_ns is not None
        if any(ns < 0 for ns in self.exclusive.values()):
            # The clock was set back while compiling: no split can be trusted, the sum still can.
            return {"other": self.duration_ns}
        return {phase: self.exclusive[phase] for phase in PHASES if self.exclusive.get(phase)}


class Lanes:
    """Pairs marks. `begin` and `end` take them in the order of the log; O(depth) each."""

    def __init__(self) -> None:
        self._open: dict[Hashable, list[Span]] = {}
        self.unmatched_ends = 0

    def begin(self, span: Span) -> None:
        stack = self._open.setdefault(span.lane, [])
        span.phase = phase_of(span.name) or phase_of(span.function) or (stack[-1].phase if stack else "other")
        stack.append(span)

    def end(self, lane: Hashable, name: str, end_ns: int) -> list[Span]:
        """The spans that this mark ends, inner ones first: the named one, and any inside it that never ended."""
        stack = self._open.get(lane, [])
        depth = next((i for i in range(len(stack) - 1, -1, -1) if stack[i].name == name), None)
        if depth is None:
            self.unmatched_ends += 1
            return []
        ended = []
        while len(stack) > depth:
            span = stack.pop()
            span.unfinished = len(stack) > depth
            self._close(span, end_ns, stack[-1] if stack else None)
            ended.append(span)
        if not stack:
            del self._open[lane]
        return ended

    @staticmethod
    def _close(span: Span, end_ns: int, parent: Span | None) -> None:
        span.duration_ns = max(0, end_ns - span.start_ns)
        if span.name in _BACKEND_CALLS:
            span.phase = "aot_autograd" if span.exclusive.get("aot_autograd") else "other"
        own = span.duration_ns - span.inside_ns
        span.exclusive[span.phase] = span.exclusive.get(span.phase, 0) + own
        if parent is not None:
            parent.inside_ns += span.duration_ns
            for phase, ns in span.exclusive.items():
                parent.exclusive[phase] = parent.exclusive.get(phase, 0) + ns

    def is_inside(self, lane: Hashable, names: frozenset[str]) -> bool:
        """Whether a span with one of these names is open in the lane."""
        return any(span.name in names for span in self._open.get(lane, ()))

    def still_open(self) -> list[Span]:
        """Spans without an end so far."""
        return [span for stack in self._open.values() for span in stack]
