"""What compile records tell of the process that wrote them: versions, rank, first and last time."""

from __future__ import annotations

from typing import Any

from tb_torchcompile_plugin.compile_log.summary_pb2 import Environment

_VERSIONS = (
    ("torch_version", "pytorch_version"),
    ("python_version", "python_version"),
    ("cuda_version", "cuda_version"),
    ("triton_version", "triton_version"),
)


class Facts:
    """Each fact as it was told first; the time range grows."""

    def __init__(self) -> None:
        self._environment = Environment()
        self._known: set[str] = set()
        self.first_ns: int | None = None
        self.last_ns: int | None = None

    def learn(self, name: str, value: Any) -> None:
        """Raises TypeError and ValueError for what is no such fact."""
        if name not in self._known:
            setattr(self._environment, name, value)
            self._known.add(name)

    def learn_versions(self, metrics: dict[str, Any]) -> None:
        """From torch's compilation metrics."""
        for fact, name in _VERSIONS:
            if metrics.get(name):
                self.learn(fact, str(metrics[name]))

    def see_time(self, time_ns: int) -> None:
        self.first_ns = time_ns if self.first_ns is None else min(time_ns, self.first_ns)
        self.last_ns = time_ns if self.last_ns is None else max(time_ns, self.last_ns)

    def put(self, environment: Environment) -> None:
        """Copies what is known; the rest is the caller's."""
        environment.MergeFrom(self._environment)
        if self.first_ns is not None and self.last_ns is not None:
            environment.recording_start_ns, environment.written_ns = self.first_ns, self.last_ns
