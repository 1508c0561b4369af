# mypy: ignore-errors
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Digest(_message.Message):
    __slots__ = ("format_version", "rank", "world_size", "host_name", "device_name", "torch_version", "trace_name", "trace_bytes", "base_ns", "begin_ns", "end_ns", "notices", "host_steps", "calls", "steps", "host", "kernels", "compiled", "step_us")
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    HOST_NAME_FIELD_NUMBER: _ClassVar[int]
    DEVICE_NAME_FIELD_NUMBER: _ClassVar[int]
    TORCH_VERSION_FIELD_NUMBER: _ClassVar[int]
    TRACE_NAME_FIELD_NUMBER: _ClassVar[int]
    TRACE_BYTES_FIELD_NUMBER: _ClassVar[int]
    BASE_NS_FIELD_NUMBER: _ClassVar[int]
    BEGIN_NS_FIELD_NUMBER: _ClassVar[int]
    END_NS_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    HOST_STEPS_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    KERNELS_FIELD_NUMBER: _ClassVar[int]
    COMPILED_FIELD_NUMBER: _ClassVar[int]
    STEP_US_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    rank: int
    world_size: int
    host_name: str
    device_name: str
    torch_version: str
    trace_name: str
    trace_bytes: int
    base_ns: int
    begin_ns: int
    end_ns: int
    notices: _containers.RepeatedCompositeFieldContainer[DigestNotice]
    host_steps: int
    calls: bytes
    steps: bytes
    host: bytes
    kernels: bytes
    compiled: bytes
    step_us: float
    def __init__(self, format_version: _Optional[int] = ..., rank: _Optional[int] = ..., world_size: _Optional[int] = ..., host_name: _Optional[str] = ..., device_name: _Optional[str] = ..., torch_version: _Optional[str] = ..., trace_name: _Optional[str] = ..., trace_bytes: _Optional[int] = ..., base_ns: _Optional[int] = ..., begin_ns: _Optional[int] = ..., end_ns: _Optional[int] = ..., notices: _Optional[_Iterable[_Union[DigestNotice, _Mapping]]] = ..., host_steps: _Optional[int] = ..., calls: _Optional[bytes] = ..., steps: _Optional[bytes] = ..., host: _Optional[bytes] = ..., kernels: _Optional[bytes] = ..., compiled: _Optional[bytes] = ..., step_us: _Optional[float] = ...) -> None: ...

class DigestNotice(_message.Message):
    __slots__ = ("problem", "kept", "next_step")
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    NEXT_STEP_FIELD_NUMBER: _ClassVar[int]
    problem: str
    kept: str
    next_step: str
    def __init__(self, problem: _Optional[str] = ..., kept: _Optional[str] = ..., next_step: _Optional[str] = ...) -> None: ...

class ProcessGroup(_message.Message):
    __slots__ = ("name", "ranks")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    name: str
    ranks: bytes
    def __init__(self, name: _Optional[str] = ..., ranks: _Optional[bytes] = ...) -> None: ...

class CollectiveKind(_message.Message):
    __slots__ = ("operation", "group", "dtype", "message_bytes", "source", "destination")
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    operation: str
    group: int
    dtype: str
    message_bytes: int
    source: int
    destination: int
    def __init__(self, operation: _Optional[str] = ..., group: _Optional[int] = ..., dtype: _Optional[str] = ..., message_bytes: _Optional[int] = ..., source: _Optional[int] = ..., destination: _Optional[int] = ...) -> None: ...

class CallSection(_message.Message):
    __slots__ = ("groups", "kinds", "columns", "cuts")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    CUTS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[ProcessGroup]
    kinds: _containers.RepeatedCompositeFieldContainer[CollectiveKind]
    columns: bytes
    cuts: bytes
    def __init__(self, groups: _Optional[_Iterable[_Union[ProcessGroup, _Mapping]]] = ..., kinds: _Optional[_Iterable[_Union[CollectiveKind, _Mapping]]] = ..., columns: _Optional[bytes] = ..., cuts: _Optional[bytes] = ...) -> None: ...

class StepSection(_message.Message):
    __slots__ = ("names", "windows", "gpu", "exposed")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    WINDOWS_FIELD_NUMBER: _ClassVar[int]
    GPU_FIELD_NUMBER: _ClassVar[int]
    EXPOSED_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    windows: bytes
    gpu: bytes
    exposed: bytes
    def __init__(self, names: _Optional[_Iterable[str]] = ..., windows: _Optional[bytes] = ..., gpu: _Optional[bytes] = ..., exposed: _Optional[bytes] = ...) -> None: ...

class Culprit(_message.Message):
    __slots__ = ("cause", "name", "file", "line")
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    cause: str
    name: str
    file: str
    line: int
    def __init__(self, cause: _Optional[str] = ..., name: _Optional[str] = ..., file: _Optional[str] = ..., line: _Optional[int] = ...) -> None: ...

class HostSection(_message.Message):
    __slots__ = ("culprits", "parts", "waits")
    CULPRITS_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    culprits: _containers.RepeatedCompositeFieldContainer[Culprit]
    parts: bytes
    waits: bytes
    def __init__(self, culprits: _Optional[_Iterable[_Union[Culprit, _Mapping]]] = ..., parts: _Optional[bytes] = ..., waits: _Optional[bytes] = ...) -> None: ...

class KernelName(_message.Message):
    __slots__ = ("name", "grid")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GRID_FIELD_NUMBER: _ClassVar[int]
    name: str
    grid: str
    def __init__(self, name: _Optional[str] = ..., grid: _Optional[str] = ...) -> None: ...

class KernelSection(_message.Message):
    __slots__ = ("kernels", "columns")
    KERNELS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    kernels: _containers.RepeatedCompositeFieldContainer[KernelName]
    columns: bytes
    def __init__(self, kernels: _Optional[_Iterable[_Union[KernelName, _Mapping]]] = ..., columns: _Optional[bytes] = ...) -> None: ...
