"""One profiled span joined to the compile data of its worker: what the analyses of a trace start from.

Several questions need the same tables first: which events are GPU work, whose launch each is, which calls of compiled
regions there were. They are made when first asked for, and kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tb_torchcompile_plugin.analysis.eager_roots import EagerRoots
from tb_torchcompile_plugin.analysis.generated_code import GeneratedCode
from tb_torchcompile_plugin.analysis.generated_kernels import unique_graph_keys
from tb_torchcompile_plugin.analysis.gpu_utilization import GpuWork, gpu_work
from tb_torchcompile_plugin.analysis.graph_break_costs import GraphBreakCost, graph_break_costs
from tb_torchcompile_plugin.analysis.host_tree import HostTree, host_tree
from tb_torchcompile_plugin.analysis.idle_causes import Gaps, idle_gaps
from tb_torchcompile_plugin.analysis.intervals import Int64s
from tb_torchcompile_plugin.analysis.kernels import Launches, launches
from tb_torchcompile_plugin.analysis.launch_side import LaunchCalls, launch_calls
from tb_torchcompile_plugin.analysis.memory_moments import Moments, memory_moments
from tb_torchcompile_plugin.analysis.operator_calls import OperatorCalls, operator_calls
from tb_torchcompile_plugin.analysis.ownership import Ownership
from tb_torchcompile_plugin.analysis.regions import Call, region_calls
from tb_torchcompile_plugin.analysis.resumes import Resumes, resumes
from tb_torchcompile_plugin.analysis.step_utilization import Utilization, utilization
from tb_torchcompile_plugin.analysis.steps import Step, step_slices, steps
from tb_torchcompile_plugin.analysis.thread_activity import ThreadActivity
from tb_torchcompile_plugin.analysis.timeline import Timeline
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.reader.kineto import Trace
from tb_torchcompile_plugin.summary_pb2 import CompileSummary


@dataclass(eq=False)
class Profile:
    """A trace, and the compile data of its worker or None. Many threads may use it: at worst work is done twice."""

    trace: Trace
    data: CompileData | None

    @property
    def summary(self) -> CompileSummary | None:
        return self.data.summary if self.data else None

    @cached_property
    def work(self) -> GpuWork:
        """The GPU events."""
        return gpu_work(self.trace)

    @cached_property
    def ownership(self) -> Ownership:
        """To which compilation a moment of a host thread belongs."""
        return Ownership(self.trace, unique_graph_keys(self.summary) if self.summary else None)

    @cached_property
    def launches(self) -> list[Launches]:
        """The kernels of each device with the compilation that launched them."""
        return launches(self.trace, self.work, self.ownership, self.code)

    @cached_property
    def code(self) -> GeneratedCode:
        """What inductor generated, by graph: the source of a kernel and the user's lines."""
        return GeneratedCode(self.data)

    @cached_property
    def step_slices(self) -> Int64s:
        """Rows of the profiled steps' slices in order of time."""
        return step_slices(self.trace)

    @cached_property
    def steps(self) -> list[Step]:
        return steps(self.trace, self.work)

    @cached_property
    def resumes(self) -> Resumes | None:
        """Which regions are resume functions; None where nothing tells."""
        return resumes(self.trace, self.ownership, self.summary)

    @cached_property
    def calls(self) -> list[Call]:
        """Every call of a compiled region, as trees: the outermost ones, in order of time."""
        return region_calls(self.trace, self.ownership, self.resumes.ids if self.resumes else ())

    @cached_property
    def graph_break_costs(self) -> list[GraphBreakCost] | None:
        """What each break cost, dearest first; None where nothing tells resumes from called frames."""
        known = self.resumes
        return graph_break_costs(self.trace, self.calls, self.work, known) if known else None

    @cached_property
    def timeline(self) -> Timeline:
        """Its lanes, at every level of detail."""
        return Timeline(self)

    @cached_property
    def eager(self) -> EagerRoots:
        """The host operators that ran eager."""
        return EagerRoots(self.trace, self.work, self.calls)

    @cached_property
    def host_tree(self) -> HostTree:
        """What ran inside what on the host, as torch's profiler sees it."""
        return host_tree(self.trace)

    @cached_property
    def operator_calls(self) -> OperatorCalls:
        """Every call of an operator, label or CUDA function with its times, device work and memory."""
        return operator_calls(self.trace, self.host_tree, self.work.index)

    @cached_property
    def memory_moments(self) -> Moments:
        """Every allocation and free with who asked for it."""
        return memory_moments(self.trace, self.host_tree, self.ownership)

    @cached_property
    def threads(self) -> ThreadActivity:
        """What the host threads did."""
        return ThreadActivity(self.trace, self.calls)

    @cached_property
    def gaps(self) -> dict[int, Gaps]:
        """When each device idled."""
        return idle_gaps(self.trace, self.work)

    @cached_property
    def launch_calls(self) -> LaunchCalls:
        """The calls that gave the GPUs their work."""
        return launch_calls(self.trace, self.work)

    @cached_property
    def utilization(self) -> Utilization | None:
        """What each device did in each step; None without GPU events."""
        return utilization(
            self.trace, self.work, self.gaps, self.threads, self.launch_calls, self.step_slices
        )
