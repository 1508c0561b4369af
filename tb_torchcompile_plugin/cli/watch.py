"""`tb-torchcompile watch LOGDIR`: show what the processes of a logdir compile now."""

import time
from contextlib import suppress

from rich.live import Live

from tb_torchcompile_plugin.analysis.formatting import plural
from tb_torchcompile_plugin.api.catalog import Catalog
from tb_torchcompile_plugin.api.session import check
from tb_torchcompile_plugin.cli.text_table import Plain, print_whole, stdout_console
from tb_torchcompile_plugin.logdir.compile_status import CompileStatus

_PAUSE_S = 1.0  # as often as the files change
_LISTING_SHARE = 0.1  # of the time, that listing a large logdir may take
Lines = dict[tuple[object, ...], str]  # by process and what it compiles


def watch(logdir: str, *, once: bool) -> None:
    """Show what compiles until Ctrl-C; where stdout is no terminal, print a line for each change.

    once: print what compiles now, and return. Raises UserError for a path that does not exist.
    """
    check(logdir)
    catalog, console = Catalog([("", logdir)]), stdout_console()
    if once:
        for line in _lines(catalog).values() or ["Nothing is compiling"]:
            print_whole(console, line)
        return
    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False, transient=True) as live:
        printed: Lines = {}
        while True:
            began_s, lines = time.monotonic(), _lines(catalog)
            if console.is_terminal:
                live.update(Plain("\n".join(lines.values()) or "Nothing is compiling"), refresh=True)
            else:
                for state in lines.keys() - printed.keys():
                    print_whole(console, lines[state])
            printed = lines
            time.sleep(max(_PAUSE_S, (time.monotonic() - began_s) / _LISTING_SHARE))


def _lines(catalog: Catalog) -> Lines:
    compiling = catalog.look().compiling()
    return {(run, row.pid, row.state): _line(run, row) for run, rows in compiling.items() for row in rows}


def _line(run: str, row: CompileStatus) -> str:
    process = f"process {row.pid}" if row.rank is None else f"rank {row.rank}"
    return f"{run} {process}: {row.in_words()}, {plural(row.compilations, 'compilation')} so far"
