"""A program of the exam: one planted cause, and a twin without it."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import torch

Step = Callable[[], object]
NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Machine:
    """Where a program runs. `quick` asks for sizes that a CPU does in milliseconds."""

    device: torch.device
    quick: bool = False

    @property
    def cuda(self) -> bool:
        return self.device.type == "cuda"

    def pick(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def randn(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        return torch.randn(*shape, device=self.device, dtype=dtype)


@dataclass(frozen=True)
class Recorded:
    """How a program is profiled."""

    stacks: bool = False
    shapes: bool = False
    stock: bool = False  # torch's own tensorboard_trace_handler: a trace, and no summary
    marked: bool = True  # whether the loop calls `profiler.step()`
    steps: int = 4


PLAIN = Recorded()
STACKS = Recorded(stacks=True)
SHAPES = Recorded(shapes=True)
BOTH = Recorded(stacks=True, shapes=True)
STOCK = Recorded(stock=True)
UNMARKED = Recorded(marked=False)


@dataclass(frozen=True)
class Program:
    """`build(machine, mended)` makes the model and the data, and returns what one step of the loop does."""

    name: str
    family: str
    cause: str  # "" where nothing is wrong
    mending: str
    build: Callable[[Machine, bool], Step]
    recorded: Recorded = PLAIN
    environment: Mapping[str, str] = field(default_factory=dict)  # of the planted one, set before CUDA starts
    also: tuple[str, ...] = ()  # causes that are as true

    @property
    def healthy(self) -> bool:
        return not self.cause

    @property
    def line(self) -> str | None:
        return planted_line(self.name, self.build)


def planted_line(name: str, build: Callable[..., Step]) -> str | None:
    """`file:line` of the planted line, which a comment `# planted: NAME` marks."""
    path = Path(inspect.getfile(build))
    for number, text in enumerate(path.read_text().splitlines(), 1):
        if text.endswith(f"# planted: {name}"):
            return f"{path.name}:{number}"
    return None


PROGRAMS: dict[str, Program] = {}


def program(
    family: str,
    cause: str,
    *,
    mending: str = "",
    recorded: Recorded = PLAIN,
    environment: Mapping[str, str] = NOTHING,
    also: tuple[str, ...] = (),
) -> Callable[[Callable[[Machine, bool], Step]], Callable[[Machine, bool], Step]]:
    """Registers the decorated function under its own name."""

    def register(build: Callable[[Machine, bool], Step]) -> Callable[[Machine, bool], Step]:
        name: str = build.__name__
        PROGRAMS[name] = Program(name, family, cause, mending, build, recorded, dict(environment), also)
        return build

    return register
