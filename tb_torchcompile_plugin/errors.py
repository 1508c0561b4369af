"""Errors and warnings that a user can act on.

`UserError` stops a request, `Notice` accompanies a partial answer. Both state the file, what happened and what to do.
Standard library only, because the writer imports this module.
"""

import json
import re
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

# Invalid characters, control characters of terminals, and characters that change the writing direction.
_CONTROL = "\ud800-\udfff\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_NO_TEXT = re.compile(f"[{_CONTROL}]")
_NO_NAME = re.compile(f"[{_CONTROL}\t\n]")
# The same characters in JSON by msgspec: C0 as escapes, others in UTF-8. A pair of backslashes begins no escape.
_NOT_IN_JSON = re.compile(
    rb"\\(?:[bfr\\]|u00..)|\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]"
)
_MAX_QUOTED = 200  # characters; chosen by hand


def displayable(name: str) -> str:
    r"""Return a file name as one line of text.

    Bytes that are not UTF-8 (lone surrogates in Python) and control characters are written as `\xff`.
    """
    return _NO_NAME.sub(_escaped, name)


def visible(text: str) -> str:
    """Return a text of one or more lines with the same escapes."""
    return _NO_TEXT.sub(_escaped, text)


def visible_json(data: bytes) -> bytes:
    """Return JSON whose texts have the same escapes."""
    return _NOT_IN_JSON.sub(lambda match: _escaped_in_json(match[0]), data)


def quoted(text: str) -> str:
    """Return what a user typed in quotes, at most 200 characters of it."""
    return repr(text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…")


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    code -= 0xDC00 if 0xDC80 <= code <= 0xDCFF else 0
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


@cache
def _escaped_in_json(escape: bytes) -> bytes:
    return json.dumps(visible(json.loads(b'"%s"' % escape)))[1:-1].encode()


Error = TypeVar("Error", bound="UserError")


@dataclass(frozen=True)
class Notice:
    """A warning about a partial answer."""

    file: str  # the path as the user knows it; empty if there is no single file
    problem: str  # what happened, one sentence
    kept: str = ""  # what is shown
    next_step: str = ""  # what to do

    def __post_init__(self) -> None:
        for part in ("file", "problem", "kept", "next_step"):
            object.__setattr__(self, part, displayable(getattr(self, part)))

    @property
    def is_truncated(self) -> bool:
        """Whether a file is truncated: it may still be written."""
        return "is cut off" in self.problem

    @property
    def is_missing_something(self) -> bool:
        """Whether something was not read, as opposed to repaired."""
        return not re.search(r", repaired: \d+", self.problem)

    def __str__(self) -> str:
        parts = [f"{self.file}: {self.problem}" if self.file else self.problem, self.kept, self.next_step]
        return " ".join(part.rstrip(".") + "." for part in parts if part)


@dataclass(frozen=True)
class ApiErrorBody:
    """An error over HTTP, under the key `error`; see docs/reference/routes.md."""

    code: str
    message: str
    file: str
    next_step: str


class TorchCompilePluginError(Exception):
    """Root of every exception that this package raises on purpose."""


class UserError(TorchCompilePluginError):
    """Something the user can fix. `str()` is one clear line that names the file and the next step."""

    code = "unreadable"  # the machine-readable word in HTTP error bodies
    status = 422

    def __init__(self, problem: str, *, file: str = "", next_step: str = "") -> None:
        self.notice = Notice(file, problem, next_step=next_step)
        super().__init__(str(self.notice))

    @classmethod
    def of(cls: type[Error], notice: Notice) -> Error:
        """Return the error with the text of a notice."""
        return cls(notice.problem, file=notice.file, next_step=notice.next_step)


class NotFound(UserError):
    """No run, worker or span has this id (any more)."""

    code = "not_found"
    status = 404


class WrongArgument(NotFound):
    """A command received an unknown name: exit status 2."""


class ForbiddenHost(UserError):
    """The request names a host that does not belong to this server."""

    code = "forbidden_host"
    status = 403


class BadRequest(UserError):
    """A parameter is missing or malformed."""

    code = "bad_request"
    status = 400
