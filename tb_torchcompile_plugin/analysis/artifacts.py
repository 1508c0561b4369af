"""Which texts did the compiler leave behind for one compilation, in the order of its pipeline?"""

from __future__ import annotations

from typing import Literal

import msgspec

from tb_torchcompile_plugin.analysis.directions import Direction
from tb_torchcompile_plugin.compile_payloads import NAMED_PARTS
from tb_torchcompile_plugin.compile_rows import CONFIG_FIELDS
from tb_torchcompile_plugin.summary_pb2 import BACKWARD, CompileKey, CompileSummary, Graph
from tb_torchcompile_plugin.summary_pb2 import Artifact as ArtifactMessage

Language = Literal["python", "cpp", "json", "text"]
Key = tuple[int, str]

# Name of a record or artifact → (stage, title). Stages run one after another; those of one graph stay together.
_DYNAMO, _JOINT, _AOT, _GRAPH, _GUARDS, _REST = range(6)
_KNOWN: dict[str, tuple[int, str]] = {
    "dynamo_graph_break_reason": (_DYNAMO, "Graph break"),
    "dynamo_error": (_DYNAMO, "Error while compiling"),
    "recompile_reasons": (_DYNAMO, "Recompile reasons"),
    "compiled_autograd_compile_reasons": (_DYNAMO, "Compiled autograd: why it compiled"),
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
    "aot_inference_graph": (_AOT, "AOT inference graph"),
    "aot_forward_graph": (_AOT, "AOT forward graph"),
    "aot_backward_graph": (_AOT, "AOT backward graph"),
    "fx_graph_runnable": (_GRAPH, "Runnable script"),
    "inductor_input_graph": (_GRAPH, "Inductor input graph"),
    "before_post_grad_graph": (_GRAPH, "Before post-grad passes"),
    "inductor_post_grad_graph": (_GRAPH, "After post-grad passes"),
    "after_post_grad_graph": (_GRAPH, "After post-grad passes"),
    "graph_dump": (_GRAPH, "Graph dump"),
    "inductor_provenance_tracking_node_mappings": (_GRAPH, "Provenance: node mappings"),
    "inductor_provenance_tracking_kernel_stack_traces": (_GRAPH, "Provenance: kernel stack traces"),
    "inductor_output_code": (_GRAPH, "Inductor output code"),
    "triton_kernel_info": (_GRAPH, "Triton kernels: configurations"),
    "fx_graph_cache_hit": (_GRAPH, "FX graph cache hit"),
    "fx_graph_cache_miss": (_GRAPH, "FX graph cache miss"),
    "fx_graph_cache_bypass": (_GRAPH, "FX graph cache bypass"),
    "dynamo_cpp_guards_str": (_GUARDS, "Guards"),
    "dynamo_guards": (_GUARDS, "Guards"),
    "aotautograd_cache_hit": (_REST, "AOTAutograd cache hit"),
    "aotautograd_cache_miss": (_REST, "AOTAutograd cache miss"),
    "aotautograd_cache_bypass": (_REST, "AOTAutograd cache bypass"),
    "dynamo_config": (_REST, "Settings: dynamo"),
    "inductor_config": (_REST, "Settings: inductor"),
    "functorch_config": (_REST, "Settings: functorch"),
    "compiler_config": (_REST, "Settings: compiler"),
    "torch._functorch.config": (_REST, "Settings: functorch"),
    "dump_file": (_DYNAMO, "Generated source file"),
    "backward_prologue": (_AOT, "AOT runtime: backward prologue"),
    "backward_epilogue": (_AOT, "AOT runtime: backward epilogue"),
    "compiled_function_forward": (_AOT, "AOT runtime: forward"),
    "compiled_function_backward": (_AOT, "AOT runtime: backward"),
    "compiled_fn_wrapper": (_AOT, "AOT runtime: wrapper of the compiled function"),
    "runtime_wrapper_orchestration": (_AOT, "AOT runtime: wrapper"),
}
_ORDER = {name: place for place, name in enumerate(_KNOWN)}
_BYTECODE = ("_ORIGINAL_BYTECODE", "_MODIFIED_BYTECODE")
_BACKWARD_ONLY = frozenset(
    {"aot_backward_graph", "backward_prologue", "backward_epilogue", "compiled_function_backward"}
)
_FORWARD_ONLY = frozenset({"aot_forward_graph", "aot_joint_graph", "aot_inference_graph"})
_JSON = frozenset({*CONFIG_FIELDS, "inductor_provenance_tracking_node_mappings", "torch._functorch.config"})
_TEXT = frozenset(
    {
        "dynamo_cpp_guards_str",
        "dynamo_guards",
        "dynamo_graph_break_reason",
        "dynamo_error",
        "dynamo_side_effects",
    }
)


class Artifact(msgspec.Struct, frozen=True):
    """One text. `id` asks for it; it holds while the file does. `bytes`: of the text in UTF-8, None where unknown.

    graph: which output of inductor within the compilation it belongs to, from 0; None before that stage.
    """

    id: int
    name: str
    title: str
    attempt: int
    direction: Direction
    graph: int | None
    encoding: str
    language: Language
    bytes: int | None


def artifacts(summary: CompileSummary, epoch: int, compile_id: str) -> list[Artifact]:
    """The artifacts of one compile id in the order of the pipeline; of "" those that belong to none."""
    wanted = owners(epoch, compile_id)
    mine = [(number, row) for number, row in enumerate(summary.artifacts) if _key(row.key) in wanted]
    graphs = [row for row in summary.graphs if _key(row.key) == (epoch, compile_id)]
    places = _graph_places([row for _, row in mine])
    rows = []
    for (number, row), place in zip(mine, places, strict=True):
        graph = graphs[place] if place is not None and place < len(graphs) else None
        rows.append(_artifact(number, row, place, graph))
    return sorted(rows, key=_pipeline_place)


def owners(epoch: int, compile_id: str) -> list[Key]:
    """The ids under which torch files the texts of a compilation: compiled autograd files its graph under "!0"."""
    autograd, _, inner = compile_id.partition("/")
    is_inside = autograd.startswith("!") and inner
    return [(epoch, compile_id), *([(epoch, autograd)] if is_inside else [])]


def _key(key: CompileKey) -> Key:
    return key.epoch, key.compile_id


def _pipeline_place(row: Artifact) -> tuple[int, int, int, int, int]:
    stage = _stage(row.name)
    return (
        stage,
        row.attempt,
        row.graph or 0,
        0 if row.name.endswith(_BYTECODE[0]) else 1 + _ORDER.get(_kind_and_part(row.name)[0], len(_ORDER)),
        row.id,
    )


def _stage(name: str) -> int:
    if name.endswith(_BYTECODE):
        return _DYNAMO
    return _KNOWN.get(_kind_and_part(name)[0], (_REST, ""))[0]


def _graph_places(rows: list[ArtifactMessage]) -> list[int | None]:
    """The graph that each artifact belongs to. torch writes graph by graph: a name that comes again begins the next.

    A text about a graph that torch wrote while nothing but an unknown name told so belongs to none.
    """
    seen: set[str] = set()
    graph, places = 0, list[int | None]()
    for row in rows:
        if _stage(row.name) != _GRAPH:
            places.append(None)
            continue
        if row.name in seen:
            graph, seen = graph + 1, set()
        seen.add(row.name)
        places.append(graph)
    return places


def _artifact(number: int, row: ArtifactMessage, place: int | None, graph: Graph | None) -> Artifact:
    return Artifact(
        id=number,
        name=row.name,
        title=f"{_title(row.name)} of {row.subgraph}" if row.subgraph else _title(row.name),
        attempt=row.attempt,
        direction=_direction(row, graph),
        graph=place,
        encoding=row.encoding,
        language=_language(row, graph),
        bytes=row.size if row.HasField("size") else None,
    )


def _title(name: str) -> str:
    for end, title in zip(_BYTECODE, ("Original bytecode", "Modified bytecode"), strict=True):
        if name.endswith(end):
            return f"{title} of {name.removesuffix(end)}"
    kind, part = _kind_and_part(name)
    if kind not in _KNOWN:
        return name
    return f"{_KNOWN[kind][1]}: {part}" if part else _KNOWN[kind][1]


def _kind_and_part(name: str) -> tuple[str, str]:
    """`optimize_ddp_split_child_submod_0` is submod_0 of its kind."""
    for kind in NAMED_PARTS:
        if name.startswith(f"{kind}_"):
            return kind, name[len(kind) + 1 :]
    return name, ""


def _direction(row: ArtifactMessage, graph: Graph | None) -> Direction:
    """By name; else that of the graph's code, which says so itself; else by when it was written."""
    if row.name in _BACKWARD_ONLY or row.name in _FORWARD_ONLY:
        return "backward" if row.name in _BACKWARD_ONLY else "forward"
    direction = graph.direction if graph is not None else row.direction
    return "backward" if direction == BACKWARD else "forward"


def _language(row: ArtifactMessage, graph: Graph | None) -> Language:
    if row.name == "inductor_output_code" and graph is not None:
        return "cpp" if graph.output_code_file.endswith((".cpp", ".cu", ".h")) else "python"
    if row.encoding == "json" or row.name in _JSON:
        return "json"
    if row.name in _TEXT or row.name.endswith(_BYTECODE) or _kind_and_part(row.name)[0] not in _KNOWN:
        return "text"
    return "python"
