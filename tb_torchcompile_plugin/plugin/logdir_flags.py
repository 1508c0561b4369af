"""Which folders TensorBoard was told to show."""

from __future__ import annotations

import os
import re

from tensorboard.plugins import base_plugin

_URI = re.compile(r"[a-zA-Z][0-9a-zA-Z.]*://")


def logdirs(context: base_plugin.TBContext) -> list[tuple[str, str]]:
    """(run prefix, path) pairs from `--logdir` or `--logdir_spec`; empty when neither was given.

    The prefix is "" where one folder was given without a name. Several folders without names are known by
    their last part, since two runs called "." could not be told apart.
    """
    plain = context.logdir or getattr(context.flags, "logdir", "") or ""
    spec = getattr(context.flags, "logdir_spec", "") or ""
    if plain and not _is_list(plain):
        return [("", _absolute(plain))]
    named = [_name_and_path(part) for part in (plain or spec).split(",") if part]
    if len(named) == 1:
        return named
    return _told_apart(named)


def _is_list(logdir: str) -> bool:
    """`--logdir a,b` once meant two folders; a folder whose name holds a comma still means itself."""
    return "," in logdir and not os.path.exists(_absolute(logdir))


def _name_and_path(part: str) -> tuple[str, str]:
    """`name:path`, by TensorBoard's own rules: absolute paths, URIs and drives have no name."""
    if ":" not in part or part.startswith("/") or _URI.match(part) or os.path.splitdrive(part)[0]:
        return "", _absolute(part)
    name, _, path = part.partition(":")
    return name, _absolute(path)


def _absolute(path: str) -> str:
    return path if _URI.match(path) else os.path.abspath(os.path.expanduser(path))


def _told_apart(named: list[tuple[str, str]]) -> list[tuple[str, str]]:
    answer: dict[str, str] = {}
    for name, path in named:
        prefix = base = name or os.path.basename(path) or path
        number = 2
        while prefix in answer:
            prefix, number = f"{base} ({number})", number + 1
        answer[prefix] = path
    return list(answer.items())
