"""Steps of a millisecond that are to be mended: rounds that add up gradients, small collectives."""

from typing import Any

from tb_torchcompile_plugin.analysis.causes.registry import fixes
from tb_torchcompile_plugin.analysis.causes.scenario import predicted_fixes
from tb_torchcompile_plugin.analysis.causes.what_if import WhatIf
from tb_torchcompile_plugin.profile.profile import Profile
from traces import AUTOGRAD, Event, in_steps, launch, slice_

STEP_US = 1000
NODE = "autograd::engine::evaluate_function: AccumulateGrad"
REDUCER = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
ROUND_US = 100
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def steps(*make: Event, number: int = 3) -> list[Event]:
    return in_steps(*make, every=STEP_US, number=number)


def fix(profile: Profile, kind: str) -> WhatIf:
    (row,) = [row for row in profile.of(predicted_fixes) if row.kind == kind]
    return row


def kinds(profile: Profile) -> set[str]:
    return {one.kind for one in profile.of(fixes)}


def accumulated(many: int, *, optimizing: bool = False, reduced: bool = False, grid: int = 1) -> list[Event]:
    """So many rounds of 100 µs: a forward of 40 and a backward of 40, a kernel of 10 in each; gradients reduced for 15
    in each of them. Then an optimizer, at the end of the step or in each round."""
    events: list[Event] = []
    for place in range(many):
        at = 20 + ROUND_US * place
        events += [
            slice_("model", at, 40, "user_annotation"),
            *launch("forward", at + 5, at + 10, 10, grid=[grid, 1, 1]),
            slice_(REDUCER if reduced else NODE, at + 45, 40, tid=AUTOGRAD),
            *launch("backward", at + 50, at + 55, 10, AUTOGRAD, grid=[grid, 1, 1]),
        ]
        if reduced:
            events.append(slice_("c10d::allreduce_", at + 62, 12, tid=AUTOGRAD))
            events += launch(REDUCE, at + 73, at + 75, 15, AUTOGRAD)
        if optimizing:
            events.append(slice_("Optimizer.step#SGD.step", at + 86, 8, "user_annotation"))
            events += launch("step", at + 88, at + 90, 3)
    return [*events, *launch("last", 980, 985, 5)]


def moved(many: int, elements: int, around: str) -> list[Event]:
    """So many collectives of 8 µs of the host, each of so many numbers of 4 bytes, inside of a label or an operator."""
    events: list[Event] = launch("first", 2, 5, 5)
    args: dict[str, Any] = {
        "Collective name": "allreduce",
        "dtype": "Float",
        "In msg nelems": elements,
        "Out msg nelems": elements,
    }
    for place in range(many):
        at = 20 + 10 * place
        if around:
            events.append(slice_(around, at, 9, "user_annotation" if "FSDP" in around else "cpu_op"))
        events += [
            slice_("c10d::allreduce_", at + 0.5, 8),
            slice_("record_param_comms", at + 1, 7, **args),
            *launch(REDUCE, at + 3, at + 6, 2),
        ]
    return [*events, *launch("last", 980, 985, 5)]
