"""How a row of a report is named, so that it can be asked for again: `RUN/WORKER/SPAN/SECTION/KEY`.

    ./vm_1027/1795230252555613000/kernels/0,triton_poi_fused_add_0,0/0,fvgxsj3plinp
    train/vm_1027/-/compilations/0/0,0,forward      # of what a worker compiled, there is no span
    ./-/-/by_rank/3                                 # of a job, there is no worker
    ./vm_1027/1795230252555613000                   # a span as a whole

An id is one word of a shell: what could be anything else there is written as `%` and two digits, as in a URL. `-`
stands for a part that is not there.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote

from tb_torchcompile_plugin.errors import WrongArgument

_NONE = "-"
_PLAIN = ":,.@+=_-~"  # and letters and digits: no shell, no address reads more into them
_SHAPE = "An id is RUN/WORKER/SPAN/SECTION/KEY, as `report --json` prints it with each row"


class NoSuchId(WrongArgument):
    """An id that no row has."""


class Address(NamedTuple):
    """run, worker, span: "" where there is none. section: of a report, "" for all of that place. key: of a row, "" for
    all of them."""

    run: str = ""
    worker: str = ""
    span: str = ""
    section: str = ""
    key: str = ""

    def __str__(self) -> str:
        parts = [_written(part) for part in self[:3]]
        if self.section:
            parts.append(self.section)
        if self.key:
            parts.append(quote(self.key, f"/{_PLAIN}", errors="surrogatepass"))
        return "/".join(parts)

    @property
    def place(self) -> Address:
        """Where the row is: without section and key."""
        return Address(*self[:3])

    def row(self, section: str, key: str) -> Address:
        """Of a row at this place."""
        return self._replace(section=section, key=key)


def address(text: str) -> Address:
    """What `str` of it wrote. Raises NoSuchId."""
    parts = text.split("/", 4)
    if len(parts) < 3 or not all(parts[:3]):
        raise NoSuchId(f"{text!r} is no id", next_step=_SHAPE)
    run, worker, span = ("" if part == _NONE else unquote(part, errors="surrogatepass") for part in parts[:3])
    section = parts[3] if len(parts) > 3 else ""
    key = unquote(parts[4], errors="surrogatepass") if len(parts) > 4 else ""
    return Address(run, worker, span, section, key)


def _written(part: str) -> str:
    """`%2D` is the name that would be taken for nothing."""
    if part == _NONE:
        return "%2D"
    return quote(part, _PLAIN, errors="surrogatepass") or _NONE
