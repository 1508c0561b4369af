"""`tb-torchcompile`, the answers of the tab in a terminal."""

import gc
import os
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (None: the process's own) and return the exit status.

    What is loaded for it stays: it is not looked through for garbage, neither meanwhile nor later.
    """
    if argv is None:
        # numpy's library for matrices, of which there are none here, would start threads that spin
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        from tb_torchcompile_plugin.cli.command import main as run

        gc.freeze()
    except KeyboardInterrupt:
        return 130
    finally:
        if was_enabled:
            gc.enable()
    return run(argv)
