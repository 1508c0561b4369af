"""Which kernels ran, of which category, which compilation launched them, and what did launching cost?

GPU work by device; on the CPU inductor's C++ kernels, where torch was asked to name them. The categories of a device
sum to its summed GPU event time exactly, and so do its kernel rows.

A launch is one call into the CUDA or HIP runtime or driver that put work on a GPU; the replay of a CUDA graph is one.
Its first GPU event shows how long the work took to begin: *latency* where the stream was idle when the call began,
*queue wait* where it was still busy.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.generated_code.generated_code import GeneratedCode
from tb_torchcompile_plugin.profile.columns import Int64s, Mask, distinct, groups_of_equal, mask_at, mask_of
from tb_torchcompile_plugin.profile.compiled.ownership import Ownership, add_packages
from tb_torchcompile_plugin.profile.compiled.regions import generated_code
from tb_torchcompile_plugin.profile.gpu_work import GpuWork, busy_until, gpu_work
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.trace.kineto import Trace
from tb_torchcompile_plugin.torch_names import caches, kernels, slices

Device = int | Literal["cpu"]

_CERTAIN = [code for code, name in enumerate(kernels.CATEGORIES) if kernels.is_certain(name)]


class Launches(msgspec.Struct, frozen=True):
    """The kernels of one device as columns."""

    device: Device
    index: Int64s
    name: Int64s
    category: Int64s  # index into `torch_names.kernels.CATEGORIES`
    compile_id: Int64s  # code of `Ownership`, -1 unknown
    graph_key: Int64s
    dur: Int64s
    launch: Int64s  # the call that launched it, -1 where the trace does not have it
    op: Int64s  # the host operator around that call, -1 unknown
    backward: Mask  # launched by autograd's backward


def kernel_launches(profile: Profile) -> list[Launches]:
    """Return every kernel, memcpy and memset with the compilation that launched it, one entry a device."""
    work = profile.of(gpu_work)
    by_device = [_gpu(profile, work.where(work.device == device)) for device in np.unique(work.device)]
    cpu = _cpu(profile)
    return [*by_device, *([cpu] if len(cpu.index) else [])]


def ran_packages(profile: Profile) -> bool:
    """Return whether compiled code without a region may have run: of a package of AOTInductor, or a loaded function.

    torch does not label the calls of functions that torch.compiler.precompile loaded.
    """
    if profile.summary and any(call.kind == caches.LOAD_CALL for call in profile.summary.compiler_calls):
        return True
    owners = (code for rows in profile.of(kernel_launches) for code in np.unique(rows.compile_id).tolist())
    return any(code >= 0 and caches.is_package(profile.of(Ownership).names[code]) for code in owners)


def groups(rows: Launches) -> list[Int64s]:
    """Return the indices in `rows` of the launches of each kernel row, in order of time as the trace has them."""
    return list(
        groups_of_equal(np.arange(len(rows.name)), rows.graph_key, rows.compile_id, rows.category, rows.name)
    )


def _gpu(profile: Profile, work: GpuWork) -> Launches:
    trace, ownership, code = profile.trace, profile.of(Ownership), profile.of(generated_code)
    call = trace.launch_of()[work.index]
    op = trace.op_of()[work.index]
    launch = np.where(call >= 0, call, op)
    parent = np.where(call >= 0, trace.parent[call], op)
    names = _names(trace, work.index, parent)
    compile_id, graph_key = ownership.compile_ids(launch), ownership.graph_keys(launch)
    # Of kernels launched before the trace begins, or by an engine's CUDA graph, the graph is the only one that defines
    # such a kernel.
    is_lost = (launch < 0) | (compile_id < 0) & mask_of(trace.names, slices.is_replay)[trace.name[launch]]
    for name in np.unique(names[is_lost]).tolist():
        if graph := code.defined_once.get(trace.names[name]):
            rows = (names == name) & is_lost
            compile_id[rows] = ownership.code(graph.compile_id)
            graph_key[rows] = ownership.code(graph.graph_key) if graph.graph_key else -1
    add_packages(trace, names, launch, compile_id, ownership, code)
    return Launches(
        device=int(work.device[0]),
        index=work.index,
        name=names,
        category=_categories_of(trace, work, names, launch, code),
        compile_id=compile_id,
        graph_key=graph_key,
        dur=trace.dur[work.index],
        launch=launch,
        op=parent,
        backward=ownership.is_backward(launch),
    )


def _cpu(profile: Profile) -> Launches:
    trace, ownership, code = profile.trace, profile.of(Ownership), profile.of(generated_code)
    host = trace.select(cat=(slices.OPERATOR,))
    called = np.flatnonzero(mask_at(trace.name[host], len(trace.names))).tolist()
    cpp = [name for name in called if kernels.category_of(trace.names[name], slices.OPERATOR) == "cpp"]
    index = host[mask_at(np.array(cpp, np.int64), len(trace.names))[trace.name[host]]]
    names, compile_id = trace.name[index].astype(np.int64), ownership.compile_ids(index)
    add_packages(trace, names, index, compile_id, ownership, code)
    return Launches(
        device="cpu",
        index=index,
        name=names,
        category=np.full(len(index), kernels.CATEGORIES.index("cpp"), np.int64),
        compile_id=compile_id,
        graph_key=ownership.graph_keys(index),
        dur=trace.dur[index],
        launch=index,
        op=index,
        backward=ownership.is_backward(index),
    )


def _names(trace: Trace, index: Int64s, parent: Int64s) -> Int64s:
    """Return the name of each kernel; of one without a name of its own that of its launch.

    Without `unique_kernel_names` inductor's are all called `triton_`.
    """
    names = trace.name[index].astype(np.int64)
    anonymous = [code for code in np.unique(names).tolist() if kernels.is_anonymous(trace.names[code])]
    if not anonymous:
        return names
    generated = [code for code, name in enumerate(trace.names) if kernels.has_triton_prefix(name)]
    caller = np.where(parent >= 0, trace.name[parent], -1)
    return np.where(np.isin(names, anonymous) & np.isin(caller, generated), caller, names)


def _categories_of(trace: Trace, work: GpuWork, names: Int64s, launch: Int64s, code: GeneratedCode) -> Int64s:
    """Return the category of each kernel.

    Names of the user's own Triton kernels are of no kind: the generated code or one of their launches shows what they
    are.
    """
    index, generated = work.index, code.user_kernels
    category = np.array([kernels.CATEGORIES.index(name) for name in work.categories], np.int64)[work.category]
    renamed = names != trace.name[index]
    for name in np.unique(names[renamed]).tolist():
        category[renamed & (names == name)] = kernels.CATEGORIES.index(kernels.category_of(trace.names[name]))
    asked = np.flatnonzero(~np.isin(category, _CERTAIN) & (launch >= 0))
    calls = launch[asked]
    callers = trace.parent[calls]
    caller_names = np.where(callers >= 0, trace.name[callers], -1)
    unique, _ = distinct(trace.name[index[asked]], trace.name[calls], caller_names, category[asked])
    users = {name for name in np.unique(trace.name[index]).tolist() if trace.names[name] in generated}
    for kernel, call, caller, kind in unique.T.tolist():
        caller_name = trace.names[caller] if caller >= 0 else ""
        through_driver = slices.is_driver_launch(trace.names[call])
        if kernels.is_user_triton(trace.names[kernel], through_driver, caller_name, kernels.CATEGORIES[kind]):
            users.add(kernel)
    is_users = np.isin(trace.name[index], list(users)) & ~np.isin(category, _CERTAIN)
    return np.where(is_users, kernels.CATEGORIES.index("triton_user"), category)


@dataclass(frozen=True, eq=False)
class LaunchCalls:
    """The launches of a trace in order of time, as columns."""

    call: Int64s  # row of the call
    start: Int64s
    dur: Int64s
    event: Int64s  # row of the first GPU event that it launched
    events: Int64s  # how many it launched
    replay: Mask  # whether it replayed a graph
    idle: Mask  # whether the stream was idle when the call began

    def between(self, begin: int, end: int) -> "LaunchTotals":
        """Return the launches whose call begins in the window [begin, end)."""
        low, high = np.searchsorted(self.start, (begin, end)).tolist()
        return LaunchTotals(high - low, int(self.dur[low:high].sum()), int(self.replay[low:high].sum()))


class LaunchTotals(NamedTuple):
    """Launches in a window."""

    launches: int
    time_ns: int  # of their calls
    replays: int  # of graphs


def launch_calls(profile: Profile) -> LaunchCalls:
    """Return every call that launched GPU work, of all host threads."""
    trace, work = profile.trace, profile.of(gpu_work)
    order = np.argsort(trace.ts[work.index], kind="stable")
    index = work.index[order]
    _, stream = distinct(work.device[order], trace.stream[index])
    free = busy_until(stream, trace.ts[index] + trace.dur[index])
    launch = trace.launch_of()[index]
    has_call = launch >= 0
    call, first, events = np.unique(launch[has_call], return_index=True, return_counts=True)
    by_time = np.argsort(trace.ts[call], kind="stable")
    call, first, events = call[by_time], np.flatnonzero(has_call)[first[by_time]], events[by_time]
    return LaunchCalls(
        call=call,
        start=trace.ts[call],
        dur=trace.dur[call],
        event=index[first],
        events=events,
        replay=mask_of(trace.names, slices.is_replay)[trace.name[call]],
        idle=free[first] <= trace.ts[call],
    )
