"""`tb-torchcompile`, the answers of the tab in a terminal."""

from __future__ import annotations

import gc


def main() -> int:
    """Run the process's own command line and return the exit status.

    What is loaded here stays: it is not looked through for garbage, neither meanwhile nor later.
    """
    gc.disable()
    from tb_torchcompile_plugin.cli.command import main as run

    gc.freeze()
    gc.enable()
    return run()
