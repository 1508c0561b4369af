"""The lines of a TORCH_LOGS text about compilations, and the processes that wrote them, in one pass over the bytes."""

import re
from collections.abc import Iterable, Iterator

from tb_torchcompile_plugin.logdir.filesystem import Part
from tb_torchcompile_plugin.torch_names.log_lines import COLORS, HEAD

# Bytes of one line; torch writes none that long, and a file without line ends must not fill memory.
_MAX_LINE = 1 << 20


def log_heads(chunks: Iterable[bytes]) -> Iterator[tuple[Part, re.Match[bytes]]]:
    """Yield the process id and rank (-1 if unknown) of each line and its HEAD; one chunk is in memory."""
    for line in _lines(chunks):
        if b".py:" in line and (head := HEAD.search(COLORS.sub(b"", line))):
            yield Part(head["pid"].decode(), int(head["rank"] or -1), 0), head


def parts(chunks: Iterable[bytes]) -> list[Part]:
    """Return the part of each process, in the order of their first lines. torch writes the rank once it knows it."""
    found = dict.fromkeys(part for part, _ in log_heads(chunks))
    ranked = {part.label for part in found if part.rank >= 0}
    return [part for part in found if part.rank >= 0 or part.label not in ranked]


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()[:_MAX_LINE]
        yield from lines
    yield rest
