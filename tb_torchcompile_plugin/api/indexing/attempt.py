"""One digest is written, or why not: an answer that comes back from whichever process or machine made it."""

from __future__ import annotations

import errno
from typing import Literal, NamedTuple

from tb_torchcompile_plugin.api.indexing.write import Order, write_digest
from tb_torchcompile_plugin.api.joined import unexpected
from tb_torchcompile_plugin.errors import Notice, UserError

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


class Attempted(NamedTuple):
    """notice: why it failed; of `no room`, which costs all others, too, where."""

    kind: Literal["written", "there already", "failed", "no room"]
    notice: Notice | None = None


def attempt(order: Order) -> Attempted:
    """Never raises an Exception."""
    try:
        return Attempted(write_digest(order))
    except UserError as error:
        return Attempted("failed", error.notice)
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno in _NO_ROOM:
            return Attempted("no room", Notice(order.path, f"there is no room for it ({why})"))
        return failed(order, f"its digest cannot be written ({why})", "Name another folder with --out DIR")
    except MemoryError:
        return failed(order, "there is not enough memory to read it", "Run fewer workers at a time")
    except Exception as error:
        return Attempted("failed", unexpected(order.span.file, error))


def failed(order: Order, problem: str, next_step: str) -> Attempted:
    """What is said of its trace."""
    return Attempted("failed", Notice(order.span.file.path, problem, next_step=next_step))
