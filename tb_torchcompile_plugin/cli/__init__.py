"""`tb-torchcompile`, the answers of the tab in a terminal."""

from tb_torchcompile_plugin.cli.command import main

__all__ = ["main"]
