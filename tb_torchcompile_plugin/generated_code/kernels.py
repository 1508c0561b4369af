"""Which kernels did inductor generate? Known from the compile log alone, also where no trace is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from tb_torchcompile_plugin.compile_log.record import Direction, direction_of
from tb_torchcompile_plugin.compile_log.summary_pb2 import Graph
from tb_torchcompile_plugin.reader.arrays import grouped
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.kernels import CATEGORIES, Category


class GeneratedKernels(msgspec.Struct, frozen=True):
    """The kernels of one graph that fall into one category."""

    compile_id: str
    epoch: int
    direction: Direction
    graph_key: str | None
    output_code_file: str
    category: Category
    kernels: list[str]


def generated_kernels(data: CompileData) -> list[GeneratedKernels]:
    """One row per graph and category, graphs in the order in which inductor wrote them."""
    return [row for graph in data.summary.graphs for row in _rows(graph)]


def _rows(graph: Graph) -> Iterator[GeneratedKernels]:
    known = set(CATEGORIES)  # a newer writer may know more
    by_category = grouped(graph.kernels, lambda row: row.category if row.category in known else "other")
    for category in (category for category in CATEGORIES if category in by_category):
        yield GeneratedKernels(
            compile_id=graph.key.compile_id,
            epoch=graph.key.epoch,
            direction=direction_of(graph.direction),
            graph_key=graph.graph_key or None,
            output_code_file=graph.output_code_file,
            category=category,
            kernels=[kernel.name for kernel in by_category[category]],
        )


def unique_graph_keys(data: CompileData) -> dict[str, str]:
    """Graph keys that belong to exactly one compile id, with it."""
    owners: dict[str, set[str]] = defaultdict(set)
    for graph in data.summary.graphs:
        if graph.graph_key:
            owners[graph.graph_key].add(graph.key.compile_id)
    return {key: ids.pop() for key, ids in owners.items() if len(ids) == 1}
