"""What a gate asks of a run, as it is measured, kept in a baseline file and compared. Integers: ns, bytes, counts."""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

import msgspec
import numpy as np

from tb_torchcompile_plugin.analysis.words import plural
from tb_torchcompile_plugin.compile_log.counts import CountedRow
from tb_torchcompile_plugin.job.job import TracedJob
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.compile_data import CompileData

MOST_SAMPLES = 64  # steps that are kept of a run
MOST_ITEMS = 500  # of a measure: those with the largest values
CPU = "CPU"  # the device of a run without a GPU
MOST_TEXT = 240  # characters of a name or a reason
_FOLDERS = 2  # parts of a path that are kept: a baseline is committed, and its home is nobody's business


class MeasuredItem(msgspec.Struct, frozen=True):
    """A part of a measure: a kernel, a break. why: torch's reason, "" for none. samples: by step, [] without. launches:
    of a kernel in a step, else 0."""

    what: str
    why: str = ""
    file: str = ""
    line: int | None = None
    value: int = 0
    samples: list[int] = []
    launches: int = 0

    @property
    def key(self) -> tuple[str, str, str]:
        """By which it is the same in another run: lines move, and so do folders."""
        return self.what, self.why, self.file.rpartition("/")[2]


class Measure(msgspec.Struct, frozen=True):
    """value: None where it is not known; `why_unknown` says why. samples: by step, of many steps some. needs_runs: what
    slows a whole run shows in no step of it, so that only several runs tell the noise."""

    value: int | None
    samples: list[int] = []
    items: list[MeasuredItem] = []
    why_unknown: str = ""
    needs_runs: bool = False


class MeasuredRun(msgspec.Struct, frozen=True):
    """One run, by the names of its measures. devices: names of its GPUs, [CPU] of a trace without any work on one,
    [] where nothing tells; torch: "" where nothing tells. ranks: that were recorded, of world_size."""

    name: str
    devices: list[str]
    torch: str
    ranks: int
    world_size: int
    measures: dict[str, Measure]


class RunSource(NamedTuple):
    """What a run is measured by: its spans and compile data, one of each rank. job: the ranks together, None for one.
    ranks: how many there are."""

    name: str
    profiles: list[Profile]
    data: list[CompileData]
    job: TracedJob | None
    ranks: int


def unknown(why: str) -> Measure:
    return Measure(None, why_unknown=why)


def why_damaged(recording: RunSource) -> str:
    """Why fewer things may be counted than there were, "" where all was read."""
    lost = sum(sum(data.summary.records.unreadable.values()) for data in recording.data)
    return f"{plural(lost, 'record')} of its compile data could not be read" if lost else ""


def of_samples(samples: list[int], items: list[MeasuredItem], *, needs_runs: bool = False) -> Measure:
    """By step: the median, which one slow step does not move."""
    return Measure(middle(samples), some(samples), largest(items), needs_runs=needs_runs)


def middle(samples: list[int]) -> int:
    return round(median(samples))


def some(samples: list[int]) -> list[int]:
    """All, or of very many evenly chosen ones."""
    if len(samples) <= MOST_SAMPLES:
        return samples
    return [samples[place] for place in np.linspace(0, len(samples) - 1, MOST_SAMPLES).round().astype(int)]


def largest(items: list[MeasuredItem]) -> list[MeasuredItem]:
    """As many as are kept."""
    return sorted(items, key=lambda item: (-item.value, item.key, item.line or 0))[:MOST_ITEMS]


def item_of(row: CountedRow) -> MeasuredItem:
    """Of what was counted."""
    return placed(row.what, row.why, row.file, row.line, row.number)


def placed(what: str, why: str, file: str, line: int | None, value: int) -> MeasuredItem:
    """An item with a path that tells nothing of where it lies, and texts that are not endless."""
    return MeasuredItem(what[:MOST_TEXT], why[:MOST_TEXT], short_path(file), line, value)


def short_path(file: str) -> str:
    """Its name and that of its folder."""
    return "/".join(file.replace("\\", "/").split("/")[-_FOLDERS:])
