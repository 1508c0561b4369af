"""One profiled span joined to the compile data of its worker: what the analyses of a trace start from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileSummary
from tb_torchcompile_plugin.logdir.discovery import File, SpanFile
from tb_torchcompile_plugin.reader.cache.answers import AnswerSource
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.memo import Memoized
from tb_torchcompile_plugin.reader.trace.kineto import Trace

# The model of a span is built from its first calls. One number for every trace, alone or in its job of any size, so
# that a rank has the same step in all views. Measured on resnet18_compile: 25 µs and 2 kB for each call of a rank,
# which is 1.6 GB for the 64 ranks whose traces may be read for one job.
MAX_MODEL_CALLS = 12_000


class BaselineRun(NamedTuple):
    """A span of another run of the same program."""

    run: str
    files: tuple[File, ...]
    read: "Callable[[], Profile]"  # opens its trace; raises UserError


CaptureTrace = tuple[File, Callable[[], Trace]]  # raises UserError


@dataclass(eq=False)
class Profile(Memoized):
    """A trace, and the compile data of its worker or None.

    Analyses are functions of it. Several need the answers to the same ones first: which events are GPU work, whose
    launch each is.
    """

    trace: Trace
    data: CompileData | None
    span: SpanFile | None = None  # None for a trace from nowhere
    most_calls: int = MAX_MODEL_CALLS  # with more calls, the first steps represent all
    files: tuple[File, ...] = ()  # files that it was read from, () if results are not cached
    baseline_run: BaselineRun | None = None  # eager where this one is compiled and the other way round
    captures: tuple[CaptureTrace, ...] = ()  # traces of capturing the CUDA graphs that it replays

    @property
    def source(self) -> AnswerSource:
        """What the answers about it are computed from."""
        run = self.baseline_run
        return AnswerSource((*self.files, *(run.files if run else ())), run.run if run else "")

    @property
    def summary(self) -> CompileSummary | None:
        """What its worker compiled."""
        return self.data.summary if self.data else None
