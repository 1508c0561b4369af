"""What inductor generated for the worker of a profile, by graph: the source of a kernel and the user's lines."""

from __future__ import annotations

from tb_torchcompile_plugin.generated_code.generated_code import GeneratedCode
from tb_torchcompile_plugin.profile.profile import Profile


def generated_code(profile: Profile) -> GeneratedCode:
    """That of all graphs of the worker; nothing where no compile data tells."""
    return profile.data.of(GeneratedCode) if profile.data else GeneratedCode(None)
