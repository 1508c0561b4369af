"""`tb-torchcompile compare A B`: two spans side by side. Each of A and B is a folder or one trace file."""

from __future__ import annotations

import sys

import msgspec

from tb_torchcompile_plugin.api.catalog import newest_span, only_run
from tb_torchcompile_plugin.api.session import Session
from tb_torchcompile_plugin.api.starts import comparison
from tb_torchcompile_plugin.cli.text_compare import print_comparison


def show_comparison(a: tuple[str, str], b: tuple[str, str], as_json: bool) -> None:
    """Print the newest spans of both compared. a, b: a logdir, and its run or "" for any. Raises UserError where one
    holds no trace, and NoSuchRun."""
    sessions = [Session([("", logdir)], ahead=False) for logdir, _ in (a, b)]
    newest = [
        newest_span(only_run(session.runs(), run), logdir) for session, (logdir, run) in zip(sessions, (a, b))
    ]
    compared = comparison(*zip(sessions, newest))
    if as_json:
        sys.stdout.write(msgspec.json.encode(compared).decode() + "\n")
    else:
        print_comparison(compared, compared.jobs)
