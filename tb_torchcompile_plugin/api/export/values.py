"""What the questions that have parameters are asked with: values that the rows of other answers name.

A route without required parameters is asked once about each subject. Every other one has its values here, or is left
out, which the file says (`tests/api/test_export.py` compares this with the table of routes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain, combinations
from typing import Any, TypeAlias, get_args

from tb_torchcompile_plugin.analysis.causes.scenario import Scenario
from tb_torchcompile_plugin.analysis.ranks.job_rows import Measure
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import Kernel
from tb_torchcompile_plugin.api.export.ask import Asker, Texts
from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.torch_names.records import OUTPUT_CODE

Values: TypeAlias = Callable[[Asker, Texts], Iterator[Texts]]

_ALL_SUBSETS = 5  # fixes of which every combination is there; of more each alone, and the largest together

LEFT_OUT: Mapping[str, str] = {
    "all_runs": "Other runs are left out of this file",
    "timeline_flame": "Flame graphs of a stretch of time are left out of this file",
    "timeline_range": "What is measured in a stretch of time is left out of this file",
    "timeline_trim": "The trace is left out of this file",
    "trace_file": "The trace is left out of this file",
}
# These are asked about what `--compare` names, and the timeline's as far as its budget goes.
COMPARED = frozenset({"compare", "compare_tables", "compare_jobs"})
TIMELINE = frozenset({"timeline", "timeline_window", "timeline_slice", "timeline_search"})


def _of(name: str, asker: Asker, ids: Texts) -> Any:
    """An answer that was kept before; None where there is none."""
    try:
        return asker.ask(name, ids)
    except UserError:
        return None


def _compilations(asker: Asker, ids: Texts) -> Iterator[Texts]:
    compiled, overview = _of("compile", asker, ids), _of("compilations", asker, ids)
    rows = [*(compiled.compilations if compiled else ()), *(overview.others if overview else ())]
    for epoch, compile_id in dict.fromkeys((row.epoch, row.compile_id) for row in rows):
        yield {**ids, "epoch": str(epoch), "compile_id": compile_id}


def _artifacts(asker: Asker, ids: Texts, only: str = "") -> Iterator[Texts]:
    worker = {name: ids[name] for name in ("run", "worker")}
    for of in _compilations(asker, worker):
        details = _of("compilation", asker, of) if of["compile_id"] else None
        for artifact in details.artifacts if details else ():
            if only in ("", artifact.name):
                yield {**ids, "id": str(artifact.id)}
    overview = _of("compilations", asker, worker)
    for other in overview.others if overview else ():
        yield from ({**ids, "id": str(artifact.id)} for artifact in other.artifacts if not only)


def _kernels(asker: Asker, ids: Texts) -> Iterator[Texts]:
    table = _of("kernels", asker, ids)
    for row in table.rows if table else ():
        yield {**ids, **kernel_texts(row)}


def kernel_texts(row: Kernel) -> Texts:
    """The drawer of a row."""
    return {
        "device": str(row.device),
        "name": row.name,
        "compile_id": row.compile_id or "",
        "graph_key": row.graph_key or "",
    }


def _fixes(name: str, asker: Asker, ids: Texts) -> Iterator[Texts]:
    """Those that can be ticked together, as far as that are not too many; and what findings lead to is one of them."""
    offered: Scenario | None = _of(name, asker, ids)
    known = [fix.id for fix in offered.fixes] if offered else []
    for picked in _together(known):
        yield {**ids, "fixes": "\n".join(picked)}


def _together(known: list[str]) -> Iterator[tuple[str, ...]]:
    """known: largest gain first."""
    if len(known) <= _ALL_SUBSETS:
        yield from chain.from_iterable(combinations(known, size) for size in range(1, len(known) + 1))
        return
    yield from ((one,) for one in known)
    yield from (tuple(known[:size]) for size in range(2, len(known) + 1))


def _measures(asker: Asker, ids: Texts) -> Iterator[Texts]:
    yield from ({**ids, "measure": measure} for measure in get_args(Measure))


def _steps(asker: Asker, ids: Texts) -> Iterator[Texts]:
    first = _of("side_by_side", asker, ids)
    yield from ({**ids, "step": step} for step in (first.steps if first else ()))


def _ranks(asker: Asker, ids: Texts) -> Iterator[Texts]:
    """Those whose traces are there."""
    job = _of("job", asker, ids)
    traced = {worker.worker for run in asker.session.runs().runs for worker in run.workers if worker.spans}
    for rank, worker in zip(job.map.ranks, job.map.workers) if job else ():
        if worker in traced:
            yield {**ids, "rank": str(rank)}


def _fixes_of_ranks(asker: Asker, ids: Texts) -> Iterator[Texts]:
    for one in _ranks(asker, ids):
        yield one
        yield from _fixes("rank_what_if", asker, one)


# By route, beside the question without any.
VALUES: Mapping[str, Values] = {
    "compilation": lambda asker, ids: (one for one in _compilations(asker, ids) if one["compile_id"]),
    "guards": lambda asker, ids: (one for one in _compilations(asker, ids) if one["compile_id"]),
    "artifact": _artifacts,
    "code_kernels": partial(_artifacts, only=OUTPUT_CODE),
    "kernel": _kernels,
    "what_if": partial(_fixes, "what_if"),
    "job_map": _measures,
    "rank_findings": _ranks,
    "rank_collectives": _ranks,
    "rank_what_if": _fixes_of_ranks,
    "side_by_side": _steps,
}
