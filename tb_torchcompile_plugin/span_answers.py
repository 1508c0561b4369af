"""What a `Session` answers about one span, panel by panel. Kept apart from the reading of traces.

A question is a name (also its route) and a function from a `Profile` to what leaves. The answer to each is made when
it is first asked for and kept as long as its profile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from tb_torchcompile_plugin import report as answer
from tb_torchcompile_plugin.analysis.operators import SPLITS, operators
from tb_torchcompile_plugin.analysis.profile import Profile
from tb_torchcompile_plugin.logdir import Span

Question = Callable[[Span, Profile], msgspec.Struct]


def _split(split: str) -> Question:
    return lambda _, profile: operators(profile, split)


QUESTIONS: dict[str, Question] = {
    "span": answer.span_report,
    "timeline": lambda _, profile: profile.timeline.describe(),
    "eager": answer.eager,
    "operators": lambda _, profile: operators(profile),
    **{f"operators_by_{split}": _split(split) for split in SPLITS},
}


@dataclass(eq=False)
class Opened:
    """A span that was read. `made`: the answers so far, by question."""

    span: Span
    profile: Profile
    made: dict[str, msgspec.Struct] = field(default_factory=dict)

    def answer(self, question: str) -> msgspec.Struct:
        """The answer to one of QUESTIONS. Raises UserError where the profile cannot tell."""
        if question not in self.made:
            self.made[question] = QUESTIONS[question](self.span, self.profile)
        return self.made[question]
