"""Kernels of a logdir by name: what ran, what inductor wrote, and the benchmark of one as a program."""

from __future__ import annotations

import difflib
import os
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tb_torchcompile_plugin.analysis.formatting import device_name
from tb_torchcompile_plugin.analysis.runtime.kernel_code import LaunchConfig
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import Kernel
from tb_torchcompile_plugin.analysis.runtime.kernels import KernelDetails, kernel_details, kernel_table
from tb_torchcompile_plugin.analysis.runtime.roofline import Achieved
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.errors import NotFound, UserError, visible
from tb_torchcompile_plugin.generated_code.generated_code import Generated, GeneratedCode
from tb_torchcompile_plugin.generated_code.output_code import benchmark
from tb_torchcompile_plugin.logdir.filesystem import written
from tb_torchcompile_plugin.profile.compiled.regions import generated_code
from tb_torchcompile_plugin.profile.profile import Profile


@dataclass(frozen=True)
class KernelMatch:
    """A kernel of one graph. profile and row: None where it did not run; generated: None where it is a library's."""

    where: str
    name: str
    profile: Profile | None
    row: Kernel | None
    generated: Generated | None

    @property
    def graph_key(self) -> str | None:
        return self.row.graph_key if self.row else self.generated.code.graph_key if self.generated else None

    @property
    def details(self) -> KernelDetails | None:
        """Its launches, where it ran."""
        if self.profile is None or self.row is None:
            return None
        ids = self.row.compile_id or "", self.row.graph_key or ""
        return kernel_details(self.profile, str(self.row.device), self.name, *ids)


def find_kernels(session: Session, name: str, graph: str | None = None) -> list[KernelMatch]:
    """All kernels of this name, or of the one that holds it; of one graph if its key is given. Raises NotFound, with
    names that are like it."""
    every = [one for one in _every(session) if graph is None or one.graph_key == graph]
    holding = _holding(name, every)
    name = holding[0] if len(holding) == 1 else name
    matches = [one for one in every if one.name == name]
    if not matches:
        raise _no_such_kernel(name, every)
    return matches


def benchmark_of(matches: list[KernelMatch], file: str) -> str:
    """Inductor's benchmark of the one kernel that is meant, as the text of a program to be called `file`.

    Raises UserError where there is none, and where `matches` are different kernels.
    """
    one = _the_one(matches)
    assert one.generated is not None
    graph = one.generated.code
    where = f"{one.where}, compile id {graph.compile_id}, graph {graph.graph_key}"
    return benchmark(one.generated.definition, where, file)


def _every(session: Session) -> Iterator[KernelMatch]:
    """The kernels that ran, most time first, then what was generated and did not run."""
    for run in session.runs().runs:
        for worker in run.workers:
            ran: set[tuple[str, str | None]] = set()
            for span in worker.spans:
                profile = session.profile(run.run, worker.worker, span.span)
                codes = profile.of(generated_code)
                for row in profile.of(kernel_table).rows:
                    ran.add((row.name, row.graph_key))
                    code = codes.find(row.name, row.compile_id, row.graph_key, row.direction)
                    yield KernelMatch(f"run {run.run}, span {span.span}", row.name, profile, row, code)
            yield from _not_run(session, run.run, worker.worker, ran)


def _not_run(
    session: Session, run: str, worker: str, ran: set[tuple[str, str | None]]
) -> Iterator[KernelMatch]:
    try:
        code = session.compile_data(run, worker).of(GeneratedCode)
    except NotFound:
        return
    for graph in code.graphs:
        for name, definition in graph.definitions.items():
            if (name, graph.graph_key) not in ran:
                yield KernelMatch(
                    f"run {run}, worker {worker}", name, None, None, Generated(graph, definition)
                )


def _the_one(matches: list[KernelMatch]) -> KernelMatch:
    """Where several graphs have a kernel of this name, and it is not the same one, somebody must choose."""
    written = [one for one in matches if one.generated is not None]
    if not written:
        raise UserError(
            f"there is no source of {matches[0].name}",
            next_step='It is a library\'s, or the run was recorded without its code (capture="full" records it)',
        )
    sources = {one.generated.definition.source for one in written if one.generated}
    if len(sources) > 1:
        keys = ", ".join(sorted({str(one.graph_key) for one in written}))
        raise UserError(
            f"{len(sources)} different kernels are called {matches[0].name}",
            next_step=f"Choose a graph with --graph KEY, one of {keys}",
        )
    return written[0]


def _no_such_kernel(name: str, every: list[KernelMatch]) -> UserError:
    names = list(dict.fromkeys(one.name for one in every))
    holding = _holding(name, every)
    known = holding or difflib.get_close_matches(name, names, 3, 0.5) or names
    what = "Its name is part of" if holding else "There are"
    more = f" and {len(known) - 3} more" if len(known) > 3 else ""
    near = ", ".join(text[:90] for text in known[:3])
    hint = f"{what} {near}{more}" if known else "tb-torchcompile report lists what there is"
    return NotFound(f"there is no kernel {name!r}", next_step=hint)


def _holding(name: str, every: list[KernelMatch]) -> list[str]:
    """The names that hold this one, most time first."""
    return list(dict.fromkeys(one.name for one in every if name.lower() in one.name.lower()))


# One kernel as text: numbers, launch configurations, the user's lines, the source.


_FROM = {"inductor": "as inductor computed it", "shapes": "estimated from shapes", "copy": "as the copy says"}


def print_kernel(match: KernelMatch) -> None:
    """Print what is known of a kernel to stdout. What is not known is left out."""
    row, details, code = match.row, match.details, match.generated
    lines = [match.name, f"  {match.where}"]
    if row is not None and details is not None:
        lines += [*_times(row, details), *_achieved(row.achieved), *map(_config, details.configs)]
    lines += list(_origin(match))
    if code is not None:
        lines += ["", code.definition.source.rstrip()]
    elif row is not None:
        lines.append("  no source: a library's kernel, or its code was not recorded")
    sys.stdout.write(visible("\n".join(lines)) + "\n\n")


def _times(row: Kernel, details: KernelDetails) -> Iterator[str]:
    median = statistics.median(details.launches.duration_us) if details.launches.shown_every == 1 else None
    middle = "" if median is None else f", median {median:.3f}"
    yield (
        f"  {device_name(row.device)}, {row.category}: {row.launches} launches, {row.time_us:.3f} µs, "
        f"mean {row.mean_us:.3f}{middle}, min {row.min_us:.3f}, max {row.max_us:.3f} µs"
    )
    if row.twice_as_fast_percent is not None:
        yield f"  twice as fast, a step would gain at most {row.twice_as_fast_percent:.2f} %"


def _achieved(figures: Achieved) -> Iterator[str]:
    if figures.bandwidth_gb_s is not None and figures.bandwidth_from is not None:
        share = _share(figures.bandwidth_percent)
        yield f"  {figures.bandwidth_gb_s:.1f} GB/s{share}, {_FROM[figures.bandwidth_from]}"
    if figures.tflop_s is not None and figures.tflop_from is not None:
        share = _share(figures.tflop_percent, f" ({figures.precision})")
        yield f"  {figures.tflop_s:.2f} TFLOP/s{share}, {_FROM[figures.tflop_from]}"


def _share(percent: float | None, of: str = "") -> str:
    if percent is None:
        return ""
    above = ": more than memory can, so from a cache" if percent > 100 and not of else ""
    return f", {percent:.1f} % of the peak{of}{above}"


def _config(config: LaunchConfig) -> str:
    values = {
        "grid {}": config.grid,
        "block {}": config.block,
        "{} warps": config.warps,
        "{} registers": config.registers,
        "{} B shared": config.shared_memory_bytes,
        "occupancy {} %": config.occupancy_percent,
    }
    parts = (text.format(value) for text, value in values.items() if value is not None)
    return f"  {', '.join(parts)}: {config.launches} launches, {config.time_us:.3f} µs"


def _origin(match: KernelMatch) -> Iterator[str]:
    row, code = match.row, match.generated
    if code is not None:
        graph = code.code
        yield f"  compile id {graph.compile_id}, {graph.direction}, graph {graph.graph_key or 'not told'}"
        yield f"  {graph.file}:{code.definition.line}"
        if config := graph.configs.get(code.definition.name):
            yield f"  chosen configuration: {config}"
        if code.definition.aten_ops:
            yield f"  fuses {', '.join(code.definition.aten_ops)}"
    lines, known_from = (row.lines, row.lines_from) if row is not None else code.lines if code else ([], None)
    for line in lines:
        yield f"  {line.file}:{line.line}  {line.source or ''}".rstrip()
    if known_from == "comments":
        yield "  (these lines are from the comments in the code and the graph after post-grad passes)"


# `tb-torchcompile kernel LOGDIR NAME`: one kernel of a logdir, and its benchmark as a file.


def show_kernel(logdir: str, name: str, graph: str | None, extract: str | None) -> None:
    """Print all kernels of this name; with `extract`, write the benchmark of the one to that file instead."""
    matches = find_kernels(Session([("", logdir)]), name, graph)
    if extract is not None:
        _write(extract, benchmark_of(matches, os.path.basename(extract)))
        return
    for one in matches:
        print_kernel(one)


def _write(file: str, text: str) -> None:
    with written(file), open(file, "w", encoding="utf-8") as target:
        target.write(text)
