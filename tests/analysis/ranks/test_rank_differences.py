"""Ranks of one job that were compiled otherwise than the rest."""

import json

from profiles import data_of
from recordings import Recording
from tb_torchcompile_plugin.analysis.ranks.rank_differences import rank_differences
from tb_torchcompile_plugin.api.report import whole_report
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.compile_log.summary_pb2 import CompileKey, CompileSummary, Payload
from tb_torchcompile_plugin.reader.compile_data import CompileData

Rank = tuple[int, CompileData]


def a_rank(
    number: int,
    *compile_ids: str,
    cache: str = "miss",
    texts: dict[tuple[str, str], object] | None = None,
    damaged: bool = False,
) -> Rank:
    """texts: JSON of artifacts by name and compile id."""
    summary = CompileSummary()
    for compile_id in compile_ids:
        row = summary.compilations.add(key=CompileKey(compile_id=compile_id), function=f"f{compile_id[0]}")
        row.cache.add(cache="fx_graph", result=cache)
    for (name, compile_id), text in (texts or {}).items():
        summary.artifacts.add(name=name, payload=len(summary.payloads)).key.compile_id = compile_id
        summary.payloads.add(codec=Payload.ZLIB if damaged else Payload.RAW, data=json.dumps(text).encode())
    return number, data_of(summary)


def differences(*ranks: Rank) -> list[tuple[str, str, list[tuple[list[int], str]]]]:
    rows: dict[tuple[str, str], list[tuple[list[int], str]]] = {}
    for row in rank_differences(dict(ranks)).differences:
        rows.setdefault((row.kind, row.compile_id), []).append((row.ranks, row.value))
    return [(*key, groups) for key, groups in rows.items()]


def test_equal_ranks_differ_in_nothing() -> None:
    answer = rank_differences(dict([a_rank(1, "0/0", "1/0"), a_rank(0, "0/0", "1/0")]))
    assert (answer.ranks, answer.differences) == ([0, 1], [])
    alone = rank_differences(dict([a_rank(0, "0/0")]))
    assert (alone.ranks, alone.differences) == ([], [])
    assert answer.sentences == ("There are no differences between what the 2 ranks compiled.",)


def test_one_that_compiles_again_is_told_from_the_many_that_do_not() -> None:
    """Its cache results are not held against ranks that did not look."""
    ranks = [a_rank(number, "0/0", *(["0/1"] if number == 2 else [])) for number in range(4)]
    assert differences(*ranks) == [("compilation", "0/1", [([0, 1, 3], "not compiled"), ([2], "compiled")])]


def test_one_whose_cache_is_cold() -> None:
    ranks = [a_rank(0, "0/0", cache="hit"), a_rank(1, "0/0"), a_rank(2, "0/0", cache="hit")]
    assert differences(*ranks) == [("cache", "0/0", [([0, 2], "fx_graph hit"), ([1], "fx_graph miss")])]


def test_collectives_and_the_order_of_execution() -> None:
    schedule, order = ("inductor_collective_schedule", "0/0"), ("graph_execution", "")

    def ran(*ids: str) -> dict[tuple[str, str], object]:
        rows = [{"compile_id": compile_id} for compile_id in ids]
        return {schedule: [f"all_reduce_{len(ids)}"], order: {"graph_execution_order": rows}}

    one, other = a_rank(0, "0/0", texts=ran("0/0", "1/0")), a_rank(1, "0/0", texts=ran("0/0"))
    assert differences(one, other) == [
        ("collectives", "0/0", [([0], "all_reduce_2"), ([1], "all_reduce_1")]),
        ("execution_order", "", [([0], "0/0, 1/0"), ([1], "0/0")]),
    ]
    broken = a_rank(1, "0/0", texts=ran("0/0"), damaged=True)
    assert ([1], "could not be read") in differences(one, broken)[0][2]


def test_two_real_ranks(recording: Recording) -> None:
    """Of torch 2.8: rank 1 alone was given another size."""
    session = Session([("", str(recording("old_logs") / "2.8.0"))])
    answer = rank_differences(session.ranks("ddp"))
    values = [(row.compile_id, row.function, row.ranks) for row in answer.differences]
    assert values == [("0/1", "inner", [0]), ("0/1", "inner", [1])]
    assert answer.sentences[0] == "There is 1 difference between what the 2 ranks compiled."
    assert whole_report(session).runs[-1].ranks == answer
