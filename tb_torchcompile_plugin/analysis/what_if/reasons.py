"""Can anything be predicted of a recording? Only where its calls lead to GPU work, and the model gives it back."""

from __future__ import annotations

from tb_torchcompile_plugin.profile.gpu_work import gpu_work
from tb_torchcompile_plugin.profile.model.clock import clock, recorded_clock
from tb_torchcompile_plugin.profile.model.gpu_queue import gpu_queue
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane
from tb_torchcompile_plugin.profile.model.model import Replayed, model, replay
from tb_torchcompile_plugin.profile.profile import Profile

MOST_PERCENT = 2.0  # that the replayed step may differ from the recorded one


def why_nothing(profile: Profile) -> str | None:
    """Why nothing is predicted, as a sentence; None where something is."""
    if profile.trace.is_cut_off:
        return "The trace is cut off, and a part of it does not tell how long a step takes."
    if not len(profile.of(gpu_work).index) and profile.trace.notices:
        return (
            "No work of a GPU is in what could be read of this trace: nothing is predicted from a part of it."
        )
    if not len(profile.of(gpu_work).index):
        return "No work of a GPU was recorded: predicted is how the host and a GPU wait for each other."
    if len(profile.of(host_lane)) < 2 or not len(profile.of(gpu_queue)):
        return "The calls that launched the GPU's work were not recorded, so what held it up is not known."
    if not profile.of(recorded_clock).step:
        return (
            "The calls that launched the GPU's work follow each other in no time: there is nothing to gain."
        )
    error = profile.of(replay_error_percent)
    if error > MOST_PERCENT:
        return f"Replayed as it was recorded, a step is {error:.1f} % off: nothing is predicted from that."
    return None


def replay_error_percent(profile: Profile) -> float:
    """How far the replayed length of a step is from the recorded one."""
    lane, queue, recorded = profile.of(host_lane), profile.of(gpu_queue), profile.of(recorded_clock).step
    again = clock(lane, queue, profile.of(replayed)).step
    return 100 * abs(again - recorded) / recorded


def replayed(profile: Profile) -> Replayed:
    """The steps as they were recorded, walked."""
    return replay(profile.of(model))
