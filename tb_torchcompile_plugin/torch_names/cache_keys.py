"""The parts of a key in torch's compile caches, as it prints them. Standard library only: this runs inside training."""

from __future__ import annotations

import re
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
