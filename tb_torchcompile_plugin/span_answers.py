"""What a `Session` answers about one span, panel by panel. Kept apart from the reading of traces.

A question is a name (also its route) and a function from a `Profile` to what leaves. The answer to each is made when
it is first asked for and kept as long as its profile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import msgspec

from tb_torchcompile_plugin import report as answer
from tb_torchcompile_plugin.analysis.collectives import collectives
from tb_torchcompile_plugin.analysis.hot_spots import hot_spots
from tb_torchcompile_plugin.analysis.kernel_details import kernel_table
from tb_torchcompile_plugin.analysis.memory import memory
from tb_torchcompile_plugin.analysis.modules import modules
from tb_torchcompile_plugin.analysis.operators import SPLITS, operators
from tb_torchcompile_plugin.analysis.profile import Profile
from tb_torchcompile_plugin.findings_report import findings_report
from tb_torchcompile_plugin.gpu_report import gpu_report
from tb_torchcompile_plugin.logdir import Span
from tb_torchcompile_plugin.made_once import MadeOnce
from tb_torchcompile_plugin.step_report import step_report

Question = Callable[[Span, Profile], msgspec.Struct]


def _split(split: str) -> Question:
    return lambda _, profile: operators(profile, split)


QUESTIONS: dict[str, Question] = {
    "span": answer.span_report,
    "timeline": lambda _, profile: profile.timeline.describe(),
    "eager": answer.eager,
    "hot_spots": lambda _, profile: hot_spots(profile),
    "memory": lambda _, profile: memory(profile),
    "modules": lambda _, profile: modules(profile),
    "operators": lambda _, profile: operators(profile),
    **{f"operators_by_{split}": _split(split) for split in SPLITS},
    "step_breakdown": step_report,
    "kernels": lambda _, profile: kernel_table(profile),
    "collectives": lambda _, profile: collectives(profile),
    "gpu_utilization": gpu_report,
    "findings": findings_report,
}


@dataclass(eq=False)
class Opened:
    """A span that was read. Many threads may ask it: each answer is made once, and who comes meanwhile waits for it."""

    span: Span
    profile: Profile
    _made: MadeOnce[str] = field(default_factory=MadeOnce)

    def answer(self, question: str) -> msgspec.Struct:
        """The answer to one of QUESTIONS. Raises UserError where the profile cannot tell."""
        return self._made.ask(question, partial(QUESTIONS[question], self.span, self.profile))

    def begin(self, question: str) -> None:
        """Start to make an answer on a thread of its own."""
        self._made.begin(question, partial(QUESTIONS[question], self.span, self.profile))

    def is_making(self, question: str) -> bool:
        """Whether who asks now would wait for another thread."""
        return self._made.is_making(question)
