"""Lines of the program, one name each: the compiler tells whole paths, the profiler's stacks the end of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tb_torchcompile_plugin.analysis.kernels.kernels import KernelTables
from tb_torchcompile_plugin.generated_code.artifacts import Frame, frames
from tb_torchcompile_plugin.profile.compiled.regions import generated_code
from tb_torchcompile_plugin.profile.profile import Profile
from tb_torchcompile_plugin.reader.compile_data import CompileData
from tb_torchcompile_plugin.torch_names.python_frames import frame_of, is_users, places, resumed_from


class Place(NamedTuple):
    """A line; of a function as a whole the line that it begins at."""

    file: str
    line: int

    @property
    def key(self) -> str:
        return f"{self.file}:{self.line}"


class Known(NamedTuple):
    """What is known of a line. text: None where nobody recorded it. of_stack: only stacks tell of it, and so of the
    function as a whole."""

    function: str
    text: str | None
    of_stack: bool


UNKNOWN = Known("", None, False)


class Places:
    """All lines that the compile data of a profile, its kernels or its stacks tell of."""

    def __init__(self, profile: Profile) -> None:
        self.known: dict[Place, Known] = {}
        for frame in _recorded(profile):
            self._learn(frame)
        paths = {place.file for place in self.known}
        self._functions: dict[int, Place] = {}
        for code, name in enumerate(profile.trace.names):
            if is_users(name) and (frame_in_stack := frame_of(name)):
                file, line, function = frame_in_stack
                self._functions[code] = place = Place(_whole(file, paths), line)
                self.known.setdefault(place, Known(_without_resume(function), None, True))

    def of_frames(self, rows: Iterable[Frame]) -> list[Place]:
        """Each once, in the order of the files."""
        return sorted({Place(frame.file, frame.line) for frame in rows})

    def of_function(self, code: int) -> Place | None:
        """Of a function in a stack by the code of its name; None for what is not the user's, and for -1."""
        return self._functions.get(code)

    def _learn(self, frame: Frame) -> None:
        place = Place(frame.file, frame.line)
        before = self.known.get(place, UNKNOWN)
        function = _without_resume(frame.function) or before.function
        self.known[place] = Known(function, frame.source or before.text, False)


def _recorded(profile: Profile) -> Iterator[Frame]:
    if profile.data:
        yield from _in_stacks(profile.data)
    for graph in profile.of(generated_code).graphs:
        yield from graph.user_nodes.values()
        yield from graph.nodes.values()
    for kernel, _, _ in profile.of(KernelTables).rows:
        yield from kernel.lines


def _in_stacks(data: CompileData) -> Iterator[Frame]:
    for message in (*data.summary.compilations, *data.summary.graph_breaks):
        yield from frames(message.stack)
    for recompile in data.summary.recompiles:
        for reason in recompile.reasons:
            yield from (Frame(*place[:3], place.source or None) for place in places(reason))


def _without_resume(function: str) -> str:
    """What goes on after a graph break is the function that broke."""
    resumed = resumed_from(function)
    return resumed[0] if resumed else function


def _whole(file: str, paths: set[str]) -> str:
    """The path that ends so, where there is just one."""
    whole = [path for path in paths if path.endswith(f"/{file}")]
    return whole[0] if len(whole) == 1 else file
