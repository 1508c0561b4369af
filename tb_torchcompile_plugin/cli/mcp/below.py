"""Paths below the logdir that the server was started with, and no others."""

from __future__ import annotations

import os

from tb_torchcompile_plugin.errors import UserError
from tb_torchcompile_plugin.logdir.filesystem import is_remote, lies_in


class OutsideError(UserError):
    """A path that leads out of the logdir: absolute, with `..`, through a link, or a URL."""


def below(root: str, path: str) -> str:
    """The path of a file or folder in the logdir; "" is all of it. Raises OutsideError, whatever is there."""
    whole = os.path.normpath(os.path.join(root, path))
    if is_remote(path) or os.path.isabs(path) or "\0" in path or not lies_in(whole, root):
        raise OutsideError(
            f"{path!r} does not lie in the logdir",
            next_step="Name a run, a file or a folder below it, as list() tells them",
        )
    return whole
