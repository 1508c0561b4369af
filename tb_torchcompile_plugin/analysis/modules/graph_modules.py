"""What do the modules inside of compiled code take? torch calls none there: the compiled graph names them.

A kernel that computes several modules counts for each in equal parts of whole nanoseconds, and one of which nothing
tells for the module that was compiled.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from tb_torchcompile_plugin.analysis.source.launch_lines import LineLaunches, line_launches
from tb_torchcompile_plugin.analysis.source.shares import shares
from tb_torchcompile_plugin.compile_log.record import forward_compilations
from tb_torchcompile_plugin.generated_code.user_lines import ROOT
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.torch_names.python_frames import resumed_from


@dataclass
class GraphModule:
    """Kernel time (ns) of one path itself, what it holds left out."""

    forward: int = 0
    backward: int = 0
    compile_ids: set[str] = field(default_factory=set)

    def add(self, of: LineLaunches, ns: int) -> None:
        if of.backward:
            self.backward += ns
        else:
            self.forward += ns
        self.compile_ids.add(of.kernel.compile_id or "")


def graph_modules(profile: Profile, owner: Mapping[str, Hashable]) -> dict[Hashable, dict[str, GraphModule]]:
    """By the owner of a compile id (of others the compiled frame) the modules inside by path, those between
    included. Frames whose graphs name no module are left out."""
    known = [one for one in profile.of(line_launches) if one.kernel.compile_id]
    frames = _frames(profile)
    by_owner = grouped(
        known, lambda one: owner.get(one.kernel.compile_id or "", frames.get(one.kernel.compile_id or "", ""))
    )
    return {key: _by_path(mine) for key, mine in by_owner.items() if any(any(one.modules) for one in mine)}


def _by_path(launches: Iterable[LineLaunches]) -> dict[str, GraphModule]:
    modules: dict[str, GraphModule] = {}
    whole = 0
    for one in launches:
        paths = one.modules or [ROOT]
        for path, ns in zip(paths, shares(one.rows.dur[one.at], len(paths)).tolist()):
            modules.setdefault(path, GraphModule()).add(one, ns)
        whole += int(one.rows.dur[one.at].sum())
    assert sum(row.forward + row.backward for row in modules.values()) == whole
    return _with_containers(modules)


def _with_containers(modules: dict[str, GraphModule]) -> dict[str, GraphModule]:
    """And those that hold them, up to the one that was compiled."""
    for path in [*modules]:
        while path:
            ids, path = modules[path].compile_ids, path.rpartition(".")[0]
            modules.setdefault(path, GraphModule()).compile_ids.update(ids)
    return modules


def _frames(profile: Profile) -> dict[str, str]:
    """Compile id → "forward (model.py:17)", the frame that was compiled: what goes on after a break is the same one."""
    frames: dict[str, str] = {}
    for (_, compile_id), row in forward_compilations(profile.summary).items() if profile.summary else ():
        resumed = resumed_from(row.function)
        frames[compile_id] = f"{resumed[0] if resumed else row.function} ({row.file.rpartition('/')[2]})"
    return frames
