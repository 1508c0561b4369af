"""`tb-torchcompile kernel LOGDIR NAME`: one kernel of a logdir as text."""

import difflib
import statistics
from collections.abc import Iterator
from typing import NamedTuple

from rich.console import Console

from tb_torchcompile_plugin.analysis.formatting import duration
from tb_torchcompile_plugin.analysis.runtime.kernel_rows import Kernel
from tb_torchcompile_plugin.analysis.runtime.kernels import KernelDetails, kernel_table
from tb_torchcompile_plugin.analysis.thresholds import MAX_NAMES
from tb_torchcompile_plugin.api.answers.show import details_of
from tb_torchcompile_plugin.api.session import Session, open_logdir
from tb_torchcompile_plugin.cli import text_table
from tb_torchcompile_plugin.errors import NotFound
from tb_torchcompile_plugin.generated_code.generated_code import DefinedKernel, GeneratedCode
from tb_torchcompile_plugin.profile.compiled.regions import generated_code
from tb_torchcompile_plugin.profile.profile import Profile


class KernelMatch(NamedTuple):
    """A kernel of one graph."""

    where: str
    name: str
    graph_key: str | None  # of the graph that launches it
    generated: DefinedKernel | None  # None for a library's kernel
    ran: tuple[Profile, Kernel] | None  # None where it did not run


def show_kernel(logdir: str, name: str, graph: str | None) -> None:
    """Print all kernels of this name."""
    console = text_table.stdout_console()
    for match in find_kernels(open_logdir(logdir), name, graph):
        _print_match(console, match)


def find_kernels(session: Session, name: str, graph: str | None = None) -> list[KernelMatch]:
    """Return all kernels of this name, or of the only one that contains it.

    graph: the key of one graph, None for all. Raises NotFound, with similar names.
    """
    kernels = [kernel for kernel in _kernels(session) if graph is None or kernel.graph_key == graph]
    names = list(dict.fromkeys(kernel.name for kernel in kernels))  # most time first
    similar = [other for other in names if name.lower() in other.lower()]
    if len(similar) == 1:
        (name,) = similar
    matches = [kernel for kernel in kernels if kernel.name == name]
    if not matches:
        # 0.5: a similarity chosen by hand
        candidates = similar or difflib.get_close_matches(name, names, MAX_NAMES, 0.5) or names
        intro = "Kernels that contain this name:" if similar else "Available:"
        more = f" and {len(candidates) - MAX_NAMES} more" if len(candidates) > MAX_NAMES else ""
        listed = ", ".join(candidate[:90] for candidate in candidates[:MAX_NAMES])
        hint = f"{intro} {listed}{more}" if candidates else "tb-torchcompile report lists all kernels"
        raise NotFound(f"there is no kernel {name!r}", next_step=hint)
    return matches


def _kernels(session: Session) -> Iterator[KernelMatch]:
    """Yield the kernels that ran, most time first, then those that were generated and did not run."""
    for run in session.runs().runs:
        for worker in run.workers:
            ran: set[tuple[str, str | None]] = set()
            for span in worker.spans:
                profile = session.profile(run.run, worker.worker, span.span)
                codes = profile.of(generated_code)
                for row in profile.of(kernel_table).rows:
                    ran.add((row.name, row.graph_key))
                    code = codes.find(row.name, row.compile_id, row.graph_key, row.direction)
                    where = f"run {run.run}, span {span.span}"
                    yield KernelMatch(where, row.name, row.graph_key, code, (profile, row))
            data, _ = session.with_packages(run.run, session.catalog.worker(run.run, worker.worker))
            where = f"run {run.run}, worker {worker.worker}"
            for graph in data.of(GeneratedCode).graphs if data else ():
                for name, definition in graph.definitions.items():
                    if (name, graph.graph_key) not in ran:
                        code = DefinedKernel(graph, definition)
                        yield KernelMatch(where, name, graph.graph_key, code, None)


def _print_match(console: Console, match: KernelMatch) -> None:
    """Print a kernel: numbers, launch configurations, the user's lines, the source."""
    text_table.print_lines(console, match.name, f"  {match.where}")
    if match.ran:
        profile, row = match.ran
        text_table.print_row(console, row)
        print_kernel(console, details_of(profile, row))
    elif match.generated is not None:
        text_table.print_table(console, "lines", match.generated.lines[0])
        _print_source(console, match.generated.definition.source)


def print_kernel(console: Console, details: KernelDetails) -> None:
    """Print the launches and the source of a kernel."""
    if details.launches.shown_every == 1 and (times := details.launches.duration_us):
        text_table.print_lines(console, f"Median: {duration(statistics.median(times))}", indent="  ")
    if details.compile_config:
        text_table.print_lines(console, f"Chosen configuration: {details.compile_config}", indent="  ")
    text_table.print_table(console, "launch configurations", details.configs)
    _print_source(console, details.source)


def _print_source(console: Console, source: str | None) -> None:
    missing = "no source: a library kernel, or its code was not recorded"
    console.print(text_table.Plain(source.rstrip() if source else f"  {missing}"), soft_wrap=True)
    console.print()
