"""Texts that torch's compiler writes, by name: what each is, when it is made, in which language, and what is in it.

A text is a record of the compile log with a payload, or an *artifact*: a record that has a name of its own. Standard
library only: this runs inside training.
"""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from tb_torchcompile_plugin.torch_names.kernels import is_anonymous
from tb_torchcompile_plugin.torch_names.operators import ATEN
from tb_torchcompile_plugin.torch_names.patterns import begins, contains
from tb_torchcompile_plugin.torch_names.records import ARTIFACT, CONFIG_FIELDS, INFERENCE_GRAPH, OUTPUT_CODE

Language = Literal["python", "cpp", "json", "text"]
Cache = Literal["fx_graph", "aotautograd"]
GRAPH_BREAK = "dynamo_graph_break_reason"
RECOMPILE = "recompile_reasons"
GUARDS = "dynamo_cpp_guards_str"
KERNELS = "triton_kernel_info"
TORCH_VERSION = "torch_version"
POST_GRAD_GRAPHS = ("inductor_post_grad_graph", "after_post_grad_graph")
STACK_TRACES = "inductor_provenance_tracking_kernel_stack_traces"
COLLECTIVES = "inductor_collective_schedule"
EXECUTION_ORDER = "graph_execution"
EXECUTED = "graph_execution_order"  # what it lists
# One of several: its record names the part.
NAMED_PARTS = ("optimize_ddp_split_child", "graph_dump")
TYPE = "type"  # of a dump: the language of its text
# What AOTInductor writes instead of output code: older torch all in one text.
WRAPPER_CODE = ("graph_dump_inductor_aot_wrapper_code", "graph_dump_inductor_aot_code")
KERNEL_CODE = "graph_dump_inductor_aot_kernel_code"
AOT_CODE = (*WRAPPER_CODE, KERNEL_CODE)
EXPORTED_GRAPH = "before_pre_grad_graph"  # of a package: what torch.export captured
AOT_GRAPHS = ("aot_joint_graph", "aot_forward_graph", INFERENCE_GRAPH)
# The first that inductor writes of a graph.
FIRST_GRAPH_TEXTS = ("fx_graph_runnable", "inductor_input_graph", "before_post_grad_graph", *POST_GRAD_GRAPHS)
# not of torch: the settings among the parts of a cache key, written apart
KEY_SETTINGS = "cache_key_settings"
CACHES: dict[Cache, str] = {"fx_graph": "FX graph", "aotautograd": "AOTAutograd"}
CACHE_RESULTS = ("hit", "miss", "bypass")

# Stages run one after another; those of one graph stay together.
_DYNAMO, _JOINT, _AOT, GRAPH_STAGE, _GUARDS, _REST = range(6)
_KNOWN: dict[str, tuple[int, str]] = {
    GRAPH_BREAK: (_DYNAMO, "Graph break"),
    "dynamo_error": (_DYNAMO, "Error while compiling"),
    RECOMPILE: (_DYNAMO, "Recompile reasons"),
    "compiled_autograd_compile_reasons": (_DYNAMO, "Compiled autograd: reasons for compiling"),
    "compiled_autograd_graph_pre_reordering": (_DYNAMO, "Compiled autograd graph, before reordering"),
    "compiled_autograd_graph": (_DYNAMO, "Compiled autograd graph"),
    "dynamo_side_effects": (_DYNAMO, "Side effects that dynamo replays"),
    "dynamo_output_graph": (_DYNAMO, "Dynamo graph"),
    "optimize_ddp_split_graph": (_DYNAMO, "DDP: graph split into buckets"),
    "optimize_ddp_split_child": (_DYNAMO, "DDP: graph of one bucket"),
    "before_pre_grad_graph": (_DYNAMO, "Before pre-grad passes"),
    "inductor_pre_grad_graph": (_DYNAMO, "After pre-grad passes"),
    "after_pre_grad_graph": (_DYNAMO, "After pre-grad passes"),
    "aot_joint_graph": (_JOINT, "AOT joint graph"),
    "before_joint_graph": (_JOINT, "Before joint graph passes"),
    "after_joint_graph": (_JOINT, "After joint graph passes"),
    "aot_forward_graph_fw_metadata": (_JOINT, "AOT metadata"),
    INFERENCE_GRAPH: (_AOT, "AOT inference graph"),
    "aot_forward_graph": (_AOT, "AOT forward graph"),
    "aot_backward_graph": (_AOT, "AOT backward graph"),
    "fx_graph_runnable": (GRAPH_STAGE, "Runnable script"),
    "inductor_input_graph": (GRAPH_STAGE, "Inductor input graph"),
    "before_post_grad_graph": (GRAPH_STAGE, "Before post-grad passes"),
    **dict.fromkeys(POST_GRAD_GRAPHS, (GRAPH_STAGE, "After post-grad passes")),
    "graph_dump": (GRAPH_STAGE, "Graph dump"),
    **dict.fromkeys(WRAPPER_CODE, (GRAPH_STAGE, "AOTInductor wrapper code")),
    KERNEL_CODE: (GRAPH_STAGE, "AOTInductor kernel code"),
    "graph_dump_inductor_aot_header_code": (GRAPH_STAGE, "AOTInductor header"),
    "inductor_provenance_tracking_node_mappings": (GRAPH_STAGE, "Provenance: node mappings"),
    STACK_TRACES: (GRAPH_STAGE, "Provenance: kernel stack traces"),
    OUTPUT_CODE: (GRAPH_STAGE, "Inductor output code"),
    "inductor_autotune_at_compile_time_code": (GRAPH_STAGE, "Autotuning script"),
    KERNELS: (GRAPH_STAGE, "Triton kernels: configurations"),
    **{f"fx_graph_cache_{result}": (GRAPH_STAGE, f"FX graph cache {result}") for result in CACHE_RESULTS},
    GUARDS: (_GUARDS, "Guards"),
    "dynamo_guards": (_GUARDS, "Guards"),
    **{f"aotautograd_cache_{result}": (_REST, f"AOTAutograd cache {result}") for result in CACHE_RESULTS},
    KEY_SETTINGS: (_REST, "Settings in a cache key"),
    "dynamo_config": (_REST, "Settings: dynamo"),
    "inductor_config": (_REST, "Settings: inductor"),
    "functorch_config": (_REST, "Settings: functorch"),
    "compiler_config": (_REST, "Settings: compiler"),
    "torch._functorch.config": (_REST, "Settings: functorch"),
    "compile_worker_status": (_REST, "Compile worker: status"),
    "compile_worker_sidecar_death": (_REST, "Compile worker: died"),
    "dump_file": (_DYNAMO, "Generated source file"),
    "export": (_DYNAMO, "Export: start"),
    "exported_program": (_DYNAMO, "Exported program"),
    "make_fx_fail_partial": (_DYNAMO, "Export: graph before tracing failed"),
    "missing_fake_kernel": (_DYNAMO, "Draft export: missing fake kernel"),
    "mismatched_fake_kernel": (_DYNAMO, "Draft export: fake kernel is wrong"),
    "propagate_real_tensors": (_DYNAMO, "Draft export: value of the example input used"),
    "propagate_real_tensors_provenance": (_DYNAMO, "Draft export: value of the example input used"),
    "guard_on_data_dependent_error": (_DYNAMO, "Guard on a data-dependent value"),
    "backward_prologue": (_AOT, "AOT runtime: backward prologue"),
    "backward_epilogue": (_AOT, "AOT runtime: backward epilogue"),
    "compiled_function_forward": (_AOT, "AOT runtime: forward"),
    "compiled_function_backward": (_AOT, "AOT runtime: backward"),
    "compiled_fn_wrapper": (_AOT, "AOT runtime: wrapper of the compiled function"),
    "runtime_wrapper_orchestration": (_AOT, "AOT runtime: wrapper"),
}
_BYTECODE = {"_ORIGINAL_BYTECODE": "Original bytecode", "_MODIFIED_BYTECODE": "Modified bytecode"}
_ORIGINAL_BYTECODE = next(iter(_BYTECODE))
_is_bytecode = contains(rf"(?:{'|'.join(_BYTECODE)})\Z")
_ORDER = {name: index for index, name in enumerate(_KNOWN)}
_IS_BACKWARD = {
    **dict.fromkeys(
        ("aot_backward_graph", "backward_prologue", "backward_epilogue", "compiled_function_backward"), True
    ),
    **dict.fromkeys(("aot_forward_graph", "aot_joint_graph", INFERENCE_GRAPH), False),
}
_JSON = frozenset({*CONFIG_FIELDS, "inductor_provenance_tracking_node_mappings", "torch._functorch.config"})
_TEXT = frozenset({GUARDS, "dynamo_guards", GRAPH_BREAK, "dynamo_error", "dynamo_side_effects"})

is_cache_lookup = contains("_cache_")
is_captured_graph = begins("dynamo_output_graph|optimize_ddp_split")  # by dynamo, or what DDP made of that

DYNAMO_GRAPH = "dynamo_output_graph"
# In its text: a call of torch.compiler.nested_compile_region.
NESTED_CALL = re.compile(r"invoke_subgraph\(\w+, '(\w+)'")


def artifact_kind(name: str) -> str:
    """Return the kind that an artifact counts as among records."""
    return f"{ARTIFACT}:{name}"


def artifact_name(kind: str) -> str | None:
    """Return the name of an artifact's kind; None for other records."""
    return kind.removeprefix(f"{ARTIFACT}:") if kind.startswith(f"{ARTIFACT}:") else None


def cache_lookup(cache: str, result: str) -> str:
    """Return the name of what torch writes of a lookup in one of CACHES."""
    return f"{cache}_cache_{result}"


def title_of_cache(cache: str) -> str:
    """Return "FX graph cache"; an unknown cache keeps torch's name."""
    return f"{next((title for name, title in CACHES.items() if name == cache), cache)} cache"


def is_aot_graph(name: str, *, backward: bool) -> bool:
    """Whether it is a graph as AOTAutograd hands it to inductor."""
    return name in (("aot_backward_graph",) if backward else ("aot_forward_graph", INFERENCE_GRAPH))


def _kind_and_part(name: str) -> tuple[str, str]:
    """Return the kind and the part: `optimize_ddp_split_child_submod_0` is submod_0 of its kind."""
    if name in _KNOWN:
        return name, ""
    for kind in NAMED_PARTS:
        if name.startswith(f"{kind}_"):
            return kind, name[len(kind) + 1 :]
    return name, ""


def stage_of(name: str) -> int:
    """Return the stage of the compiler that writes a text."""
    return _DYNAMO if _is_bytecode(name) else _KNOWN.get(_kind_and_part(name)[0], (_REST, ""))[0]


def rank_in_stage(name: str) -> int:
    """Return the rank of a text among those of its stage."""
    is_first = name.endswith(_ORIGINAL_BYTECODE)
    return 0 if is_first else 1 + _ORDER.get(_kind_and_part(name)[0], len(_ORDER))


def title_of(name: str) -> str:
    """Return the title of a text; an unknown one keeps torch's name."""
    for ending, title in _BYTECODE.items():
        if name.endswith(ending):
            return f"{title} of {name.removesuffix(ending)}"
    kind, part = _kind_and_part(name)
    if kind not in _KNOWN:
        return name
    return f"{_KNOWN[kind][1]}: {part}" if part else _KNOWN[kind][1]


def is_backward(name: str) -> bool | None:
    """Whether a text is of a backward; None where its name does not show it."""
    return _IS_BACKWARD.get(name)


def language_of(name: str, encoding: str = "") -> Language:
    """Return the language of a text; output code is taken for a Python file. encoding: as torch gives it."""
    if encoding == "json" or name in _JSON:
        return "json"
    if encoding == "cpp":
        return "cpp"
    is_text = name in _TEXT or _is_bytecode(name)
    return "text" if is_text or _kind_and_part(name)[0] not in _KNOWN else "python"


# Inductor's output code and printed graphs, as text: what defines a kernel, calls one, and says where it is from. The
# comments are no contract of torch: what they do not say is unknown.
# In the comment above a kernel, and in its source.
TEXT_OPENS = re.compile(r"[rR]?('''|\"\"\")")
FUSED = re.compile(r"^# .*?Source Nodes: \[(.*?)\], Original ATen: \[(.*?)\]", re.MULTILINE)
FUSED_NODE = re.compile(r"^#\s+%(\w+) :(?!.*PlaceHolder\[)", re.MULTILINE)
_NUMBER = r":\s*([0-9.]+(?:e[+-]?\d+)?)"
NUM_GB = re.compile(r"'kernel_num_gb'" + _NUMBER)
FLOP = re.compile(r"'kernel_flop'" + _NUMBER)
WRITTEN_AT = re.compile(r"^# Original path: (.+):(\d+)$", re.MULTILINE)
# In the body: a call, and above it the nodes that it is of.
BODIES = ("\ndef call(", "\nclass Runner", "::run_impl(")
CALL = re.compile(
    r"^\s+(?:(?P<result>\w+) = )?(?:extern_kernels\.(?P<extern>\w+)|torch\.ops\.(?P<space>\w+)\.(?P<op>\w+)\.\w+"
    r"|(?P<kernel>\w+)\.run|(?:AOTI_TORCH_ERROR_CODE_CHECK\()?aoti_torch_(?:cpu|cuda|xpu)_(?P<shim>\w+)"
    r"|(?=.*;$)(?:call_)?(?P<cpp_kernel>(?:triton|cpp)_\w+))\((?P<arguments>.*)$"
)
CALLED = re.compile(r"^\s+(\w+)(?:\.run)?\(")
BUFFER = re.compile(r"\bbuf\d+\b")
CALL_NODES = re.compile(r"^\s+(?:#|//) .*?Source Nodes: \[(.*?)\](?:, Original ATen: \[(.*?)\])?")
# In a printed graph: a node, and above it the user's line.
NODE_PLACE = re.compile(r"^\s*# (?:Annotation: .*? )?File: (.+):(\d+) in (.*?), code: (.*)$")
NO_PLACE = re.compile(r"^\s*# (?:Annotation: .*? )?No stacktrace")
NODE = re.compile(r'^\s*(\w+)(?:: ".*?")? = ')
# Its inputs with their shapes, and words of its statements; what AOTAutograd calls the inputs of the graph before.
INPUT = re.compile(r'(?P<name>\w+): "(?P<shape>[^"\]]*\]?)[^"]*"')
WORD = re.compile(r"\w+")
PRIMAL = re.compile(r"\bprimals_(\d+)\b")
_STATE = re.compile(r"[lL]_(?P<root>\w+?)_(?:modules_(?P<path>\w+?)_)?(?:parameters|buffers)_\w+_")
_ROOTS = ("self", "fn")  # what torch calls the module that is compiled
_COMPILED = " = async_compile."
_DEFINITION = re.compile(
    r"(?P<variable>\w+) = async_compile\.(?P<language>\w+)\("
    r"(?:\s*'(?P<name>[^'\n]+)'|\s*\"(?P<name2>[^\"\n]+)\")?"
)
_AOT_ID = re.compile(r"# AOT ID: \['(?P<id>[^']*)'\]")
TRITON, CPP = "triton", "cpp"
_CPP_INCLUDE = "#include <torch/csrc/inductor/"  # at the head of each text in C++
# AOTInductor keeps the source of a Triton kernel in a comment.
_EMBEDDED = re.compile(r"/\*\s*async_compile\.(?P<language>\w+)\(\s*'(?P<name>\w+)',\s*(?=r?''')")
_CPP_KERNEL = re.compile(r'^extern "C"\s+void\s+(?P<name>(?:cpp|\w*_cpp)_fused\w*)\([^;{]*\{', re.MULTILINE)
CPP_ENDS = "\n}\n"


class KernelDefinition(NamedTuple):
    """The definition of a kernel in output code: `variable = async_compile.triton('name', …`."""

    name: str
    variable: str
    language: str  # inductor's word: "triton", "cpp_pybinding"
    start: int
    opened: int  # after the bracket


def kernel_definitions(code: str) -> Iterator[KernelDefinition]:
    """Yield the definitions at the beginning of a line, and those of a text in C++.

    A user's own kernel keeps its name in the call, and gets a number on the left side. Without unique names the call
    says `triton_` of all. Trying the pattern at each line would take seconds of a large log.
    """
    at = code.find(_COMPILED)
    while at >= 0:
        start = code.rfind("\n", 0, at) + 1
        if match := _DEFINITION.match(code, start):
            called = match["name"] or match["name2"]
            own = called and match["language"] == TRITON and not is_anonymous(called)
            name = called if own else match["variable"]
            yield KernelDefinition(
                name, match["variable"], match["language"], start, code.index("(", start) + 1
            )
        at = code.find(_COMPILED, at + 1)
    if is_cpp(code):
        for match in _EMBEDDED.finditer(code):
            name = match["name"]
            yield KernelDefinition(name, name, match["language"], match.start(), match.end())
        for match in _CPP_KERNEL.finditer(code):
            yield KernelDefinition(match["name"], match["name"], CPP, match.start(), match.end())


def is_cpp(code: str) -> bool:
    """Whether a text is what AOTInductor writes, or inductor's wrapper in C++."""
    # characters: the includes are at the beginning; chosen by hand
    return _CPP_INCLUDE in code[:2000]


def state_path(name: str) -> str | None:
    """Return the path of the module whose parameter or buffer an input of a captured graph is.

    "" is the compiled module itself, None is for other inputs. If a function was given several modules, the path begins
    with the variable.
    """
    if (match := _STATE.fullmatch(name)) is None:
        return None
    path = (match["path"] or "").replace("_modules_", ".")
    return path if match["root"] in _ROOTS else f"{match['root']}.{path}".rstrip(".")


def is_backward_code(code: str) -> bool | None:
    """Whether output code belongs to a backward graph; None where its header does not say."""
    # characters: its header is at the beginning; chosen by hand
    match = _AOT_ID.search(code, 0, 4096)
    return match["id"].endswith("_backward") if match else None


def called_operator(call: re.Match[str]) -> str | None:
    """Return the operator of a library call, `aten::mm`, as a trace names it."""
    if call["op"]:
        return f"{call['space']}::{call['op']}"
    if call["shim"]:
        return f"{ATEN}{call['shim'].removesuffix('_out')}"
    return f"{ATEN}{call['extern']}" if call["extern"] else None
