"""The lines of a TORCH_LOGS text about compilations, and the processes that wrote them, in one pass over the bytes."""

import re
from collections.abc import Iterable, Iterator

from tb_torchcompile_plugin.logdir.filesystem import Part
from tb_torchcompile_plugin.torch_names.log_lines import COLORS, HEAD, MACHINE

# Bytes of one line; torch writes none that long, and a file without line ends must not fill memory.
_MAX_LINE = 1 << 20
_NOT_IN_NAMES = re.compile(rb"[^\w.-]+")


def log_heads(chunks: Iterable[bytes]) -> Iterator[tuple[Part, re.Match[bytes]]]:
    """Yield the process id, rank (-1 if unknown) and machine of each line and its HEAD; one chunk is in memory."""
    for line in _lines(chunks):
        if b".py:" in line and (head := HEAD.search(COLORS.sub(b"", line))):
            machine = MACHINE.match(head.string)
            name = _NOT_IN_NAMES.sub(b"_", machine[0]).strip(b"_").decode() if machine else ""
            yield Part(head["pid"].decode(), int(head["rank"] or -1), 0, name), head


def parts(chunks: Iterable[bytes], before: Iterable[Part] = ()) -> list[Part]:
    """Return the part of each process: those `before`, then in the order of first lines. torch adds the rank later."""
    found = dict.fromkeys([*before, *(part for part, _ in log_heads(chunks))])
    ranked = {part._replace(rank=-1) for part in found if part.rank >= 0}
    return [part for part in found if part not in ranked]


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()[:_MAX_LINE]
        yield from lines
    yield rest
