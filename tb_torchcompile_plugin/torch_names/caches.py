"""torch's compile caches: their settings, and the parts of a key as torch prints them; and compilations ahead of time.

Standard library only: this runs inside training.
"""

import re
from typing import NamedTuple

from tb_torchcompile_plugin.torch_names.artifacts import AOT_GRAPHS, FIRST_GRAPH_TEXTS, WRAPPER_CODE
from tb_torchcompile_plugin.torch_names.patterns import begins, contains, equals
from tb_torchcompile_plugin.torch_names.records import OUTPUT_CODE

CODE = "gm"  # the graph; its value is its code
TORCH = "torch_version"  # its value is a hash of torch's source code
_INPUTS = "example_inputs"
_SETTINGS = "inductor_config"  # one part for each setting
_PART = re.compile(r"\[(?P<hash>\w*)\] (?P<name>[^:]*): ?(?P<value>.*)", re.DOTALL)
_TITLES = {
    CODE: "the code of the graph",
    "aot_config": "the settings of AOTAutograd",
    "grad_enabled": "whether gradients are enabled",
    "disable_amp": "autocast",
    TORCH: "the torch version",
    "cache_key_tag": "the cache key tag",
}
is_input = begins(rf"{_INPUTS}\[")
_KINDS = {
    _INPUTS: "input {}",
    _SETTINGS: "setting {}",
    "fx_kwargs": "option {}",
    "inputs_to_check": "the alignment of inputs",
    "system_info": "the {} of the system",
}


def title_of(part: str) -> str:
    """Return the title of a part of a key; torch's own name for an unknown one."""
    if part in _TITLES:
        return _TITLES[part]
    match = re.match(r"(?P<kind>\w+)\[(?P<name>.*)\]$", part)
    return _KINDS[match["kind"]].format(match["name"]) if match and match["kind"] in _KINDS else part


_of_system = begins(r"system_info\[(?!hash\])")


def order_of(part: str) -> int:
    """Order parts that differ by what explains the others: another torch has other settings and other graphs."""
    by_order = (part == TORCH, _of_system(part), part == CODE, is_input(part))
    return by_order.index(True) if any(by_order) else len(by_order)


class KeyPart(NamedTuple):
    """A part of a key: torch hashes each on its own."""

    hash: str
    name: str
    value: str


def part_of(line: str) -> KeyPart | None:
    """Parse a part of a key from its line among the `components`."""
    match = _PART.match(line)
    return KeyPart(match["hash"], match["name"], match["value"]) if match else None


def is_setting(line: str) -> bool:
    """Whether a line is one of inductor's settings, which are most of a key."""
    # the hash in brackets before it takes some 60 characters
    return line.find(f"] {_SETTINGS}[", 0, 80) >= 0


def without_code(line: str) -> str:
    """Return the part that is the graph's code without that code: its hash remains."""
    part = part_of(line)
    return f"[{part.hash}] {part.name}:" if part and part.name == CODE else line


_DISABLED = "torch._inductor.config.force_disable_caches"
_FX, _AOT = "torch._inductor.config.fx_graph_cache", "torch._functorch.config.enable_autograd_cache"
# Of torch 2.15: what limits CUDA graphs, and how inductor compiles.
SHAPE_LIMIT = "torch._inductor.config.triton.cudagraph_dynamic_shape_rerecord_limit"
MOVED_INPUT_LIMIT = "torch._inductor.config.triton.cudagraph_managed_input_rerecord_limit"
MOVED_INPUT_ACTION = "torch._inductor.config.triton.cudagraph_managed_input_rerecord_action"
NUMERICS = "torch._inductor.config.numerics"
_WORKER_MODE = "torch._inductor.config.compile_worker_mode"
# What slows compiling down: a setting, that value of it, and a sentence.
SLOW_SETTINGS = (
    (
        _DISABLED,
        "True",
        f"All compile caches are disabled ({_DISABLED}): everything is compiled again in each process.",
    ),
    (_FX, "False", f"The FX graph cache is disabled ({_FX}): graphs are compiled again in each process."),
    (_AOT, "False", f"AOTAutograd's cache is disabled ({_AOT}): a warm start traces again."),
    (
        _WORKER_MODE,
        "thread",
        f"Kernels are compiled in threads, not in processes ({_WORKER_MODE}): they compile one after the other where "
        "Python has its global interpreter lock.",
    ),
)
SETTINGS = (
    # torch 2.13 moved it
    "torch.compiler.config.compile_on_one_rank",
    "torch.distributed.config.compile_on_one_rank",
    *(SHAPE_LIMIT, MOVED_INPUT_LIMIT, MOVED_INPUT_ACTION, NUMERICS),
    "torch._dynamo.config.caching_precompile",
    *(name for name, *_ in SLOW_SETTINGS),
    "torch._inductor.config.fx_graph_remote_cache",
    "torch._functorch.config.enable_remote_autograd_cache",
)


# AOTInductor and torch.export write into torch's log without a compile id, and into traces. Their compilations get ids
# here, `aot/0` and `export/0`, in the order in which they began. What torch.compiler.precompile.load read has the id
# `loaded/0`: another process captured it, with an id `aot/0` there.
AOT, EXPORT, LOADED = "aot", "export", "loaded"
LOAD_CALL = "load"  # the kind of a call of torch.compiler.precompile.load
# of a graph that inductor has not written code for
GRAPH_TEXTS = frozenset({*AOT_GRAPHS, *FIRST_GRAPH_TEXTS})
CODE_TEXTS = frozenset({OUTPUT_CODE, *WRAPPER_CODE})  # the code of a graph
DRAFT_EXPORT = "draft_export"  # the function that exports again and again until it can

is_export = begins(f"{EXPORT}/")  # the id of an export
is_package = begins(f"{AOT}/")  # the id of a package of AOTInductor
# an id that torch did not give, because it was compiled ahead of time
is_ahead_of_time = begins(f"(?:{AOT}|{EXPORT}|{LOADED})/")
# A slice that is one call of a package that was loaded, labelled or as the profiler's stacks name it.
is_package_call = equals(
    r"inductor_wrapper_call"
    r"|torch[\\/](?:export[\\/]pt2_archive|_inductor[\\/]package)[\\/]_?package\.py\(\d+\): __call__"
)
is_file_of_export = contains(r"(?:^|[\\/])torch[\\/]export[\\/]\w+\.py$")
is_file_of_torch = contains(r"(?:^|[\\/])torch[\\/](?:_?[a-z]\w*[\\/])*\w+\.py$")
