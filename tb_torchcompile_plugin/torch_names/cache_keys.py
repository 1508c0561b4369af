"""torch's compile caches: the settings that switch them, by module and name, and the parts of a key as torch prints
them. Standard library only: this runs inside training."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

CODE = "gm"  # the graph; its value is its code
_INPUTS = "example_inputs"
_SETTINGS = "inductor_config"  # one part for each setting
_PART = re.compile(r"\[(?P<hash>\w*)\] (?P<name>[^:]*): ?(?P<value>.*)", re.DOTALL)
_INDEXED = re.compile(r"(?P<kind>\w+)\[(?P<name>.*)\]$")
_TITLES = {
    CODE: "the code of the graph",
    "aot_config": "what AOTAutograd was asked for",
    "grad_enabled": "whether gradients are enabled",
    "disable_amp": "autocast",
    "torch_version": "the torch version",
    "cache_key_tag": "the cache key tag",
}
_KINDS = {
    _INPUTS: "input {}",
    _SETTINGS: "setting {}",
    "fx_kwargs": "option {}",
    "inputs_to_check": "the alignment of inputs",
    "system_info": "the {} of the system",
}


def title_of(part: str) -> str:
    """What a part of a key is, for the user; torch's own name where it is not known here."""
    if part in _TITLES:
        return _TITLES[part]
    match = _INDEXED.match(part)
    return _KINDS[match["kind"]].format(match["name"]) if match and match["kind"] in _KINDS else part


class KeyPart(NamedTuple):
    hash: str
    name: str
    value: str


def part_of(line: str) -> KeyPart | None:
    """A part of a key from its line among the `components`."""
    match = _PART.match(line)
    return KeyPart(match["hash"], match["name"], match["value"]) if match else None


def is_setting(line: str) -> bool:
    """Whether a line is one of inductor's settings, which are most of a key."""
    return line.find(f"] {_SETTINGS}[", 0, 80) >= 0


def is_input(part: str) -> bool:
    return part.startswith(f"{_INPUTS}[")


def without_code(line: str) -> str:
    """The part that is the graph's code without that code: its hash remains."""
    part = part_of(line)
    return f"[{part.hash}] {part.name}:" if part and part.name == CODE else line


# A torch that has no such setting does not offer it.
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
