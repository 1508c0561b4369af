"""Calls into the CUDA and HIP runtimes and drivers: what each is for, by its name."""

from __future__ import annotations

import re
from typing import Literal

CallKind = Literal[
    "launch", "synchronise", "memory_copy", "allocation", "module_load", "graph_capture", "query"
]

_CALLS: dict[CallKind, re.Pattern[str]] = {
    "synchronise": re.compile(r"(?:cuda|cu|hip)(?:\w*Synchronize|Memcpy|MemcpyWithStream)$"),
    "graph_capture": re.compile(r"(?:cuda|cu|hip)(?:Graph(?!Launch)|Stream(?:Begin|End)Capture)"),
    "launch": re.compile(r"(?:cuda|cu|hip)\w*Launch"),
    "memory_copy": re.compile(r"(?:cuda|cu|hip)Mem(?:cpy|set)"),
    "allocation": re.compile(r"(?:cuda|cu|hip)(?:Malloc|Free|Host|Mem)"),
    "module_load": re.compile(r"(?:cuda|cu|hip)(?:Module|Library|Link|FuncGet|FuncSet|Kernel)"),
}
_GIVES_BACK = re.compile(r"(?:cuda|cu|hip)(?:Free|HostFree|Mem(?:\w*Free|Release|Unmap))")


def call_kind(name: str) -> CallKind:
    """What a call of the runtime or driver is for: whatever is nothing else asks for something."""
    return next((kind for kind, pattern in _CALLS.items() if pattern.match(name)), "query")


def gives_back(name: str) -> bool:
    """Whether a call of the runtime or driver gives memory back."""
    return bool(_GIVES_BACK.match(name))
