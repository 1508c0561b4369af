"""Settings that decide what is compiled again in another process, by module and name. Standard library only: this runs
inside training. A torch that has no such setting does not offer it."""

from __future__ import annotations

from collections.abc import Mapping

# torch moved it: 2.13 has it among the settings of torch.distributed.
COMPILE_ON_ONE_RANK = (
    "torch.compiler.config.compile_on_one_rank",
    "torch.distributed.config.compile_on_one_rank",
)
CACHING_PRECOMPILE = ("torch._dynamo.config.caching_precompile",)
_DISABLED = "torch._inductor.config.force_disable_caches"
_FX, _AOT = "torch._inductor.config.fx_graph_cache", "torch._functorch.config.enable_autograd_cache"
IS_OFF = {
    _DISABLED: f"All compile caches are switched off ({_DISABLED}): everything is compiled again in each process.",
    _FX: f"The FX graph cache is switched off ({_FX}): graphs are compiled again in each process.",
    _AOT: f"AOTAutograd's cache is switched off ({_AOT}): a warm start traces again.",
}
SETTINGS = (
    *COMPILE_ON_ONE_RANK,
    *CACHING_PRECOMPILE,
    *IS_OFF,
    "torch._inductor.config.fx_graph_remote_cache",
    "torch._functorch.config.enable_remote_autograd_cache",
)


def offers(settings: Mapping[str, str], *names: str) -> bool:
    """Whether the torch that wrote them has one of these."""
    return any(name in settings for name in names)


def is_on(settings: Mapping[str, str], *names: str) -> bool | None:
    """None where nobody knows."""
    known = [settings[name] == "True" for name in names if settings.get(name) in ("True", "False")]
    return any(known) if known else None
