# mypy: ignore-errors
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Baseline(_message.Message):
    __slots__ = ("kind", "format_version", "plugin_version", "runs")
    KIND_FIELD_NUMBER: _ClassVar[int]
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_VERSION_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    format_version: int
    plugin_version: str
    runs: bytes
    def __init__(self, kind: _Optional[str] = ..., format_version: _Optional[int] = ..., plugin_version: _Optional[str] = ..., runs: _Optional[bytes] = ...) -> None: ...

class BaselineRuns(_message.Message):
    __slots__ = ("runs",)
    RUNS_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[BaselineRun]
    def __init__(self, runs: _Optional[_Iterable[_Union[BaselineRun, _Mapping]]] = ...) -> None: ...

class BaselineRun(_message.Message):
    __slots__ = ("name", "devices", "torch_version", "ranks", "world_size", "measures", "program")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    TORCH_VERSION_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    MEASURES_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    name: str
    devices: _containers.RepeatedScalarFieldContainer[str]
    torch_version: str
    ranks: int
    world_size: int
    measures: _containers.RepeatedCompositeFieldContainer[BaselineMeasure]
    program: BaselineProgram
    def __init__(self, name: _Optional[str] = ..., devices: _Optional[_Iterable[str]] = ..., torch_version: _Optional[str] = ..., ranks: _Optional[int] = ..., world_size: _Optional[int] = ..., measures: _Optional[_Iterable[_Union[BaselineMeasure, _Mapping]]] = ..., program: _Optional[_Union[BaselineProgram, _Mapping]] = ...) -> None: ...

class BaselineProgram(_message.Message):
    __slots__ = ("script", "sizes", "calls", "tflop")
    class CallsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    SCRIPT_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    TFLOP_FIELD_NUMBER: _ClassVar[int]
    script: str
    sizes: _containers.RepeatedCompositeFieldContainer[BaselineSizes]
    calls: _containers.ScalarMap[str, float]
    tflop: float
    def __init__(self, script: _Optional[str] = ..., sizes: _Optional[_Iterable[_Union[BaselineSizes, _Mapping]]] = ..., calls: _Optional[_Mapping[str, float]] = ..., tflop: _Optional[float] = ...) -> None: ...

class BaselineSizes(_message.Message):
    __slots__ = ("numbers",)
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    numbers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, numbers: _Optional[_Iterable[int]] = ...) -> None: ...

class BaselineMeasure(_message.Message):
    __slots__ = ("metric", "value", "why_unknown", "samples", "items", "needs_runs")
    METRIC_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    WHY_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEEDS_RUNS_FIELD_NUMBER: _ClassVar[int]
    metric: str
    value: int
    why_unknown: str
    samples: _containers.RepeatedScalarFieldContainer[int]
    items: _containers.RepeatedCompositeFieldContainer[BaselineItem]
    needs_runs: bool
    def __init__(self, metric: _Optional[str] = ..., value: _Optional[int] = ..., why_unknown: _Optional[str] = ..., samples: _Optional[_Iterable[int]] = ..., items: _Optional[_Iterable[_Union[BaselineItem, _Mapping]]] = ..., needs_runs: bool = ...) -> None: ...

class BaselineItem(_message.Message):
    __slots__ = ("what", "why", "file", "line", "value", "samples", "launches")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    LAUNCHES_FIELD_NUMBER: _ClassVar[int]
    what: str
    why: str
    file: str
    line: int
    value: int
    samples: _containers.RepeatedScalarFieldContainer[int]
    launches: int
    def __init__(self, what: _Optional[str] = ..., why: _Optional[str] = ..., file: _Optional[str] = ..., line: _Optional[int] = ..., value: _Optional[int] = ..., samples: _Optional[_Iterable[int]] = ..., launches: _Optional[int] = ...) -> None: ...
