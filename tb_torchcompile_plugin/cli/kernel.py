"""`tb-torchcompile kernel LOGDIR NAME`: one kernel of a logdir, and its benchmark as a file."""

from __future__ import annotations

import os

from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.cli.kernel_search import benchmark_of, find_kernels
from tb_torchcompile_plugin.cli.text_kernel import print_kernel
from tb_torchcompile_plugin.logdir.filesystem import written


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
