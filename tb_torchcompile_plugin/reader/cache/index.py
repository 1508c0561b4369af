"""`python -m tb_torchcompile_plugin.reader.cache.index TRACE`: read a trace into the cache, so that it opens at once.

The trace handler starts it in the background with `index=True`. It gives way to training: lowest priority, one core.
"""

from __future__ import annotations

import os
import sys

from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.reader.cache.store import open_trace


def main(path: str) -> int:
    """Exit status 0 when the table is in the cache (or the file too small to be worth it), 1 when it cannot be read."""
    os.nice(19)
    try:
        open_trace(path, workers=1)
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
