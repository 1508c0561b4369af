"""Recordings of programs with CUDA graphs and dynamic shapes, with the truth that each program counted itself."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.profile.profile import Profile


class GraphProgram(NamedTuple):
    """spans: in order of time. truth: by span, how often torch warmed up, recorded and replayed."""

    name: str
    spans: list[Profile]
    truth: list[Counter[str]]
    measured: dict[str, Any]


def graph_programs(folder: Path) -> dict[str, GraphProgram]:
    """By name."""
    rows = json.loads((folder / "measured.json").read_text())["programs"]
    planted = [row for row in rows if not row["mended"]]
    return {row["name"]: _program(folder / row["name"], row) for row in planted}


def _program(folder: Path, row: dict[str, Any]) -> GraphProgram:
    spans = list(_profiles(folder))
    return GraphProgram(
        row["name"], spans, [counted(row[one]) for one in ("life", "steady")][-len(spans) :], row
    )


def _profiles(folder: Path) -> Iterator[Profile]:
    session = Session([("", str(folder))])
    for run in session.runs().runs:
        for worker in run.workers:
            for span in worker.spans:
                yield session.profile(run.run, worker.worker, span.span)
    session.close()


def counted(truth: dict[str, int]) -> Counter[str]:
    """Of all functions together: "0/0/0/replayed" is what one of compile id 0/0 did."""
    counts = Counter[str]()
    for key, times in truth.items():
        counts[key.rpartition("/")[2]] += times
    return counts
