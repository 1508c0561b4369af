"""torch's compile caches: the settings that switch them, by module and name, and the parts of a key as torch prints
them. Standard library only: this runs inside training."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from tb_torchcompile_plugin.torch_names.artifacts import (
    AOT_GRAPHS,
    FIRST_GRAPH_TEXTS,
    GRAPH_STAGE,
    WRAPPER_CODE,
    stage_of,
)
from tb_torchcompile_plugin.torch_names.records import OUTPUT_CODE

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


# AOTInductor and torch.export: what they write into torch's log, where torch gives no compile id, and into
# traces. Their compilations get ids here, `aot/0` and `export/0`, in the order in which they began.
# Standard library only: this runs inside training.


AOT, EXPORT = "aot", "export"
STRICT_CAPTURE = "fullgraph_capture"  # dynamo's work in a strict export
FAILED_TRACE = "make_fx_fail_partial"  # the graph until tracing raised
EXPORTED_PROGRAM = "exported_program"
IssueKind = Literal[
    "missing fake kernel", "wrong fake kernel", "value of the example used", "value only the data tells"
]
# What draft export would have failed of.
ISSUES: dict[str, IssueKind] = {
    "missing_fake_kernel": "missing fake kernel",
    "mismatched_fake_kernel": "wrong fake kernel",
    "propagate_real_tensors": "value of the example used",
    "propagate_real_tensors_provenance": "value of the example used",
    "guard_on_data_dependent_error": "value only the data tells",
}
_TORCH_EXPORT = re.compile(r"(?:^|[\\/])torch[\\/]export[\\/]\w+\.py$")
_TORCH = re.compile(r"(?:^|[\\/])torch[\\/](?:_?[a-z]\w*[\\/])*\w+\.py$")
# One call of a package that was loaded, as the profiler's stacks name it.
_PACKAGE_CALL = re.compile(
    r"torch[\\/](?:export[\\/]pt2_archive|_inductor[\\/]package)[\\/]_?package\.py\(\d+\): __call__"
)


def is_ahead(compile_id: str) -> bool:
    """Whether torch gave it no id, because it was compiled ahead of time."""
    return compile_id.startswith((f"{AOT}/", f"{EXPORT}/"))


def is_export(compile_id: str) -> bool:
    """Whether it is the id of an export."""
    return compile_id.startswith(f"{EXPORT}/")


def is_package(compile_id: str) -> bool:
    """Whether it is the id of a package of AOTInductor."""
    return compile_id.startswith(f"{AOT}/")


def is_package_call(name: str) -> bool:
    """Whether a slice is one call of a compiled package."""
    return name == "inductor_wrapper_call" or _PACKAGE_CALL.fullmatch(name) is not None


def begins_graph(name: str) -> bool:
    """Whether a text is of a graph that inductor has not written code for."""
    return name in AOT_GRAPHS or name in FIRST_GRAPH_TEXTS


def follows_graph(name: str) -> bool:
    """Whether a text is of the graph that was written before it."""
    return stage_of(name) == GRAPH_STAGE


def is_draft(frame: dict[str, Any]) -> bool:
    """Whether a frame of a record's stack is draft export, which exports again and again until it can."""
    return frame.get("name") == "draft_export"


def is_code(name: str) -> bool:
    """Whether a text is the code of a graph."""
    return name == OUTPUT_CODE or name in WRAPPER_CODE


def export_call(files: Sequence[str]) -> int | None:
    """Of the files of a stack, outermost first: the place of torch.export, which the program calls there."""
    return next((place for place, file in enumerate(files) if _TORCH_EXPORT.search(file)), None)


def torch_call(files: Sequence[str]) -> int | None:
    """The place of the first function of torch's."""
    return next((place for place, file in enumerate(files) if _TORCH.search(file)), None)
