"""What is read off torch's CUDA graph trees, on objects that look like them: there is no GPU here."""

import sys
from enum import Enum
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from tb_torchcompile_plugin.compile_log.summary_pb2 import BACKWARD, CompileSummary
from tb_torchcompile_plugin.writer.recover import add_cuda_graphs

Mode = Enum("Mode", "FORWARD BACKWARD INFERENCE")
STACK = '  File "/p/model.py", line 7, in forward\n    return x @ self.weight\n'


class Id:
    def __init__(self, number: int) -> None:
        self.id = number


def function(number: int, name: str = "partition_0") -> Any:
    inputs = [SimpleNamespace(name=f"arg{one}_1", stack_trace=None, users=[]) for one in range(2)]
    inputs[1].users.append(SimpleNamespace(stack_trace=STACK))
    return SimpleNamespace(id=Id(number), placeholders=inputs, model=SimpleNamespace(__name__=name))


def node(
    number: int, of: Any, pointers: list[int], *children: Any, managed: tuple[int, ...] = (), size: int = 0
) -> Any:
    """A recording; its inputs are a size and two tensors that stay where they are."""
    return SimpleNamespace(
        id=Id(number),
        wrapped_function=of,
        children={of.id: list(children)},
        static_input_data_ptrs=pointers,
        cudagraph_managed_idxs=list(managed),
        non_managed_static_input_idxs=[one for one in range(2) if one not in managed],
        reconstructed_inputs=[object(), *([size] if size else [])],
    )


@pytest.fixture
def summary_with(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(functions: list[Any], roots: list[Any], *, source: bool = True, **more: Any) -> CompileSummary:
        manager = SimpleNamespace(
            warmup_node_counter=count(-3, -1),
            cuda_graphs_thread_pool=None,
            roots={one.id: [node for node in roots if node.wrapped_function is one] for one in functions},
            non_cudagraph_managed_mutation_hint={},
            ids_to_funcs={one.id: one for one in functions},
            id_to_mode={one.id: Mode.INFERENCE for one in functions},
            id_to_compile_id={one.id: "0/0" for one in functions},
            warmed_up_functions={one.id for one in functions},
            num_rerecord={},
            exceed_rerecord_limit=lambda *_: False,
        )
        vars(manager).update(more)
        local = SimpleNamespace(tree_manager_containers={0: SimpleNamespace(tree_manager=manager)})
        module = SimpleNamespace(local=local)
        monkeypatch.setitem(sys.modules, "torch._inductor.cudagraph_trees", module)
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
        summary = CompileSummary()
        add_cuda_graphs(summary, source=source)
        return summary

    return make


def reasons(summary: CompileSummary) -> list[str]:
    return [one.reason for row in summary.cuda_graph_trees[0].functions for one in row.recordings]


def test_why_each_was_recorded(summary_with: Any) -> None:
    one = function(0)
    child = node(4, one, [1, 2])
    roots = [
        node(0, one, [1, 2], child),
        node(1, one, [1, 3]),  # an input moved
        node(2, one, [1, 3]),  # nothing did: other results were alive
        node(3, one, [9, 3], managed=(0,)),  # the result of an earlier graph did
    ]
    summary = summary_with([one], roots)
    assert reasons(summary) == ["first", "static_input", "liveness", "earlier_result", "order"]
    moved = summary.cuda_graph_trees[0].functions[0].recordings[1]
    assert (list(moved.inputs), moved.file, moved.line) == (["arg1_1"], "/p/model.py", 7)
    assert summary.cuda_graph_trees[0].functions[0].recordings[4].after == 0
    assert summary.cuda_graph_trees[0].warm_ups == 2 and not summary.cuda_graph_trees[0].HasField(
        "pool_bytes"
    )


def test_each_size_is_a_function_of_its_own(summary_with: Any) -> None:
    """A part of a cut graph is one, too, under another name."""
    first, second, part = function(0), function(1), function(2, "partition_1")
    roots = [node(number, one, [1, 2], size=32 + number) for number, one in enumerate((first, second, part))]
    summary = summary_with([first, second, part], roots)
    assert reasons(summary) == ["first", "size", "first"]
    rows = [list(row.recordings[0].sizes) for row in summary.cuda_graph_trees[0].functions]
    assert rows == [[32], [33], [34]]


def test_what_quotes_the_program_is_left_out_of_a_plain_summary(summary_with: Any) -> None:
    one = function(0)
    summary = summary_with([one], [node(0, one, [1, 2]), node(1, one, [1, 3])], source=False)
    moved = summary.cuda_graph_trees[0].functions[0].recordings[1]
    assert moved.reason == "static_input" and not moved.inputs and moved.line == 7


def test_what_ran_without_graphs(summary_with: Any) -> None:
    one = function(0)
    hint = {None: {one.id: True}}
    limit = {"num_rerecord": {None: {one.id: 51}}, "exceed_rerecord_limit": lambda *_: True}
    summary = summary_with(
        [one], [], non_cudagraph_managed_mutation_hint=hint, id_to_mode={one.id: Mode.BACKWARD}, **limit
    )
    (row,) = summary.cuda_graph_trees[0].functions
    assert (row.mutates, row.over_limit, row.direction, len(row.recordings)) == (True, True, BACKWARD, 0)


def test_nothing_where_torch_has_no_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch._inductor.cudagraph_trees", raising=False)
    summary = CompileSummary()
    add_cuda_graphs(summary, source=True)
    assert not summary.cuda_graph_trees
