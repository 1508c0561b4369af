"""Everything that could be mended in the recorded steps, as changes of their model: candidates, no limits.

What a fix takes out is read off the recording; what it leaves is said where it is not nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from tb_torchcompile_plugin.analysis.what_if.autograd_fixes import AUTOGRAD_FIXES
from tb_torchcompile_plugin.analysis.what_if.collective_fixes import COLLECTIVE_FIXES
from tb_torchcompile_plugin.analysis.what_if.fix import Fix
from tb_torchcompile_plugin.analysis.what_if.gpu_fixes import GPU_FIXES
from tb_torchcompile_plugin.analysis.what_if.host_fixes import HOST_FIXES
from tb_torchcompile_plugin.analysis.what_if.launch_fixes import LAUNCH_FIXES
from tb_torchcompile_plugin.analysis.what_if.optimizer_fix import sparse_embedding
from tb_torchcompile_plugin.analysis.what_if.rounds_fixes import ROUNDS_FIXES
from tb_torchcompile_plugin.profile.model.launch_sequence import host_lane
from tb_torchcompile_plugin.profile.profile import Profile

_MAKERS = (
    *AUTOGRAD_FIXES,
    *ROUNDS_FIXES,
    *COLLECTIVE_FIXES,
    *HOST_FIXES,
    *LAUNCH_FIXES,
    sparse_embedding,
    *GPU_FIXES,
)


def fixes(profile: Profile) -> list[Fix]:
    """All candidates, each with an id of its own; most of them would bring nothing. [] without launches."""
    if len(profile.of(host_lane)) < 2:
        return []
    return told_apart(fix for make in _MAKERS for fix in make(profile))


def told_apart(candidates: Iterable[Fix]) -> list[Fix]:
    """With a number behind an id that another one has: two functions may stand in one line. Ids are single lines."""
    seen, named = Counter[str](), []
    for fix in candidates:
        name = " ".join(fix.id.split())
        seen[name] += 1
        named.append(replace(fix, id=name if seen[name] == 1 else f"{name}#{seen[name]}"))
    return named
