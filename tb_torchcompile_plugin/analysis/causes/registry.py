"""List all causes, and their possible fixes in a span."""

from collections import Counter
from dataclasses import replace
from types import ModuleType

from tb_torchcompile_plugin.analysis.causes import (
    communication,
    compiling,
    eager,
    gpu,
    host,
    launches,
    recording,
    training,
    unexplained,
)
from tb_torchcompile_plugin.analysis.causes.cause import Cause, PricedCause
from tb_torchcompile_plugin.analysis.causes.fix import Fix
from tb_torchcompile_plugin.profile.model.launch_sequence import launch_sequence
from tb_torchcompile_plugin.profile.profile import Profile

# In order of evaluation. `unexplained` is last because it skips sites that earlier findings explain.
_FAMILIES = eager, training, launches, host, gpu, communication, recording, compiling, unexplained


def _causes_in(family: ModuleType) -> list[Cause]:
    """Return the causes of a file in the order of their classes. Classes without an id are base classes."""
    own = (value for value in vars(family).values() if getattr(value, "__module__", "") == family.__name__)
    return [
        value()
        for value in own
        if isinstance(value, type) and issubclass(value, Cause) and "id" in vars(value)
    ]


CAUSES: tuple[Cause, ...] = tuple(cause for family in _FAMILIES for cause in _causes_in(family))
BY_ID = {cause.id: cause for cause in CAUSES}
PRICED = {cause.kind: cause for cause in CAUSES if isinstance(cause, PricedCause)}


def fixes(profile: Profile) -> list[Fix]:
    """Return all candidates, most of which gain nothing; [] without launches.

    Ids are unique and have one line; repeated ones are numbered, because two functions may share a line.
    """
    if len(profile.of(launch_sequence)) < 2:
        return []
    counts, rows = Counter[str](), []
    for kind, cause in PRICED.items():
        for fix in cause.fixes(profile):
            name = " ".join((fix.id or kind).split())
            counts[name] += 1
            number = f"#{counts[name]}" if counts[name] > 1 else ""
            rows.append(replace(fix, kind=kind, id=f"{name}{number}"))
    return rows
