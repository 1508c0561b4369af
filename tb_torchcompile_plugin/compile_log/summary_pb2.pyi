# mypy: ignore-errors
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Direction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FORWARD: _ClassVar[Direction]
    BACKWARD: _ClassVar[Direction]
FORWARD: Direction
BACKWARD: Direction

class CompileSummary(_message.Message):
    __slots__ = ("format_version", "environment", "compilations", "graph_breaks", "recompiles", "graphs", "spans", "compile_times", "compile_times_complete", "counters", "records", "payloads", "payload_block", "rows", "artifacts", "warnings", "shape_events", "runtime_metrics", "steps", "cache_transfers", "export_issues", "compiled_kernels", "cuda_graph_trees", "compiler_calls", "python_samples")
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    COMPILATIONS_FIELD_NUMBER: _ClassVar[int]
    GRAPH_BREAKS_FIELD_NUMBER: _ClassVar[int]
    RECOMPILES_FIELD_NUMBER: _ClassVar[int]
    GRAPHS_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    COMPILE_TIMES_FIELD_NUMBER: _ClassVar[int]
    COMPILE_TIMES_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    PAYLOADS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BLOCK_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    SHAPE_EVENTS_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_METRICS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    CACHE_TRANSFERS_FIELD_NUMBER: _ClassVar[int]
    EXPORT_ISSUES_FIELD_NUMBER: _ClassVar[int]
    COMPILED_KERNELS_FIELD_NUMBER: _ClassVar[int]
    CUDA_GRAPH_TREES_FIELD_NUMBER: _ClassVar[int]
    COMPILER_CALLS_FIELD_NUMBER: _ClassVar[int]
    PYTHON_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    format_version: int
    environment: Environment
    compilations: _containers.RepeatedCompositeFieldContainer[Compilation]
    graph_breaks: _containers.RepeatedCompositeFieldContainer[GraphBreak]
    recompiles: _containers.RepeatedCompositeFieldContainer[Recompile]
    graphs: _containers.RepeatedCompositeFieldContainer[Graph]
    spans: _containers.RepeatedCompositeFieldContainer[PhaseSpan]
    compile_times: _containers.RepeatedCompositeFieldContainer[FunctionTimes]
    compile_times_complete: bool
    counters: _containers.RepeatedCompositeFieldContainer[Counter]
    records: RecordCounts
    payloads: _containers.RepeatedCompositeFieldContainer[Payload]
    payload_block: bytes
    rows: bytes
    artifacts: _containers.RepeatedCompositeFieldContainer[Artifact]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    shape_events: _containers.RepeatedCompositeFieldContainer[ShapeEvent]
    runtime_metrics: _containers.RepeatedCompositeFieldContainer[RuntimeMetrics]
    steps: StepTimes
    cache_transfers: _containers.RepeatedCompositeFieldContainer[CacheTransfer]
    export_issues: _containers.RepeatedCompositeFieldContainer[ExportIssue]
    compiled_kernels: _containers.RepeatedCompositeFieldContainer[CompiledKernel]
    cuda_graph_trees: _containers.RepeatedCompositeFieldContainer[CudaGraphTree]
    compiler_calls: _containers.RepeatedCompositeFieldContainer[CompilerCall]
    python_samples: PythonSamples
    def __init__(self, format_version: _Optional[int] = ..., environment: _Optional[_Union[Environment, _Mapping]] = ..., compilations: _Optional[_Iterable[_Union[Compilation, _Mapping]]] = ..., graph_breaks: _Optional[_Iterable[_Union[GraphBreak, _Mapping]]] = ..., recompiles: _Optional[_Iterable[_Union[Recompile, _Mapping]]] = ..., graphs: _Optional[_Iterable[_Union[Graph, _Mapping]]] = ..., spans: _Optional[_Iterable[_Union[PhaseSpan, _Mapping]]] = ..., compile_times: _Optional[_Iterable[_Union[FunctionTimes, _Mapping]]] = ..., compile_times_complete: bool = ..., counters: _Optional[_Iterable[_Union[Counter, _Mapping]]] = ..., records: _Optional[_Union[RecordCounts, _Mapping]] = ..., payloads: _Optional[_Iterable[_Union[Payload, _Mapping]]] = ..., payload_block: _Optional[bytes] = ..., rows: _Optional[bytes] = ..., artifacts: _Optional[_Iterable[_Union[Artifact, _Mapping]]] = ..., warnings: _Optional[_Iterable[str]] = ..., shape_events: _Optional[_Iterable[_Union[ShapeEvent, _Mapping]]] = ..., runtime_metrics: _Optional[_Iterable[_Union[RuntimeMetrics, _Mapping]]] = ..., steps: _Optional[_Union[StepTimes, _Mapping]] = ..., cache_transfers: _Optional[_Iterable[_Union[CacheTransfer, _Mapping]]] = ..., export_issues: _Optional[_Iterable[_Union[ExportIssue, _Mapping]]] = ..., compiled_kernels: _Optional[_Iterable[_Union[CompiledKernel, _Mapping]]] = ..., cuda_graph_trees: _Optional[_Iterable[_Union[CudaGraphTree, _Mapping]]] = ..., compiler_calls: _Optional[_Iterable[_Union[CompilerCall, _Mapping]]] = ..., python_samples: _Optional[_Union[PythonSamples, _Mapping]] = ...) -> None: ...

class Environment(_message.Message):
    __slots__ = ("torch_version", "python_version", "plugin_version", "cuda_version", "hip_version", "triton_version", "device_names", "hostname", "pid", "rank", "world_size", "worker", "capture", "variables", "backends", "recording_start_ns", "written_ns", "process_start_ns", "imported_ns", "settings", "program", "compile_called", "deterministic_algorithms")
    class VariablesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TORCH_VERSION_FIELD_NUMBER: _ClassVar[int]
    PYTHON_VERSION_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_VERSION_FIELD_NUMBER: _ClassVar[int]
    CUDA_VERSION_FIELD_NUMBER: _ClassVar[int]
    HIP_VERSION_FIELD_NUMBER: _ClassVar[int]
    TRITON_VERSION_FIELD_NUMBER: _ClassVar[int]
    DEVICE_NAMES_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    CAPTURE_FIELD_NUMBER: _ClassVar[int]
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    BACKENDS_FIELD_NUMBER: _ClassVar[int]
    RECORDING_START_NS_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_NS_FIELD_NUMBER: _ClassVar[int]
    PROCESS_START_NS_FIELD_NUMBER: _ClassVar[int]
    IMPORTED_NS_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    COMPILE_CALLED_FIELD_NUMBER: _ClassVar[int]
    DETERMINISTIC_ALGORITHMS_FIELD_NUMBER: _ClassVar[int]
    torch_version: str
    python_version: str
    plugin_version: str
    cuda_version: str
    hip_version: str
    triton_version: str
    device_names: _containers.RepeatedScalarFieldContainer[str]
    hostname: str
    pid: int
    rank: int
    world_size: int
    worker: str
    capture: str
    variables: _containers.ScalarMap[str, str]
    backends: _containers.RepeatedScalarFieldContainer[str]
    recording_start_ns: int
    written_ns: int
    process_start_ns: int
    imported_ns: int
    settings: _containers.ScalarMap[str, str]
    program: str
    compile_called: bool
    deterministic_algorithms: bool
    def __init__(self, torch_version: _Optional[str] = ..., python_version: _Optional[str] = ..., plugin_version: _Optional[str] = ..., cuda_version: _Optional[str] = ..., hip_version: _Optional[str] = ..., triton_version: _Optional[str] = ..., device_names: _Optional[_Iterable[str]] = ..., hostname: _Optional[str] = ..., pid: _Optional[int] = ..., rank: _Optional[int] = ..., world_size: _Optional[int] = ..., worker: _Optional[str] = ..., capture: _Optional[str] = ..., variables: _Optional[_Mapping[str, str]] = ..., backends: _Optional[_Iterable[str]] = ..., recording_start_ns: _Optional[int] = ..., written_ns: _Optional[int] = ..., process_start_ns: _Optional[int] = ..., imported_ns: _Optional[int] = ..., settings: _Optional[_Mapping[str, str]] = ..., program: _Optional[str] = ..., compile_called: bool = ..., deterministic_algorithms: bool = ...) -> None: ...

class CompileKey(_message.Message):
    __slots__ = ("compile_id", "epoch")
    COMPILE_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    compile_id: str
    epoch: int
    def __init__(self, compile_id: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("file", "line", "function", "source")
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    file: str
    line: int
    function: str
    source: str
    def __init__(self, file: _Optional[str] = ..., line: _Optional[int] = ..., function: _Optional[str] = ..., source: _Optional[str] = ...) -> None: ...

class Phase(_message.Message):
    __slots__ = ("name", "exclusive_ns")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_NS_FIELD_NUMBER: _ClassVar[int]
    name: str
    exclusive_ns: int
    def __init__(self, name: _Optional[str] = ..., exclusive_ns: _Optional[int] = ...) -> None: ...

class Compilation(_message.Message):
    __slots__ = ("key", "direction", "function", "file", "line", "attempts", "start_ns", "duration_ns", "phases", "graph_ops", "graph_nodes", "graph_inputs", "guards", "cache", "failure", "restart_reasons", "stack", "recovered", "thread", "elsewhere", "metrics")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KEY_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    START_NS_FIELD_NUMBER: _ClassVar[int]
    DURATION_NS_FIELD_NUMBER: _ClassVar[int]
    PHASES_FIELD_NUMBER: _ClassVar[int]
    GRAPH_OPS_FIELD_NUMBER: _ClassVar[int]
    GRAPH_NODES_FIELD_NUMBER: _ClassVar[int]
    GRAPH_INPUTS_FIELD_NUMBER: _ClassVar[int]
    GUARDS_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    RESTART_REASONS_FIELD_NUMBER: _ClassVar[int]
    STACK_FIELD_NUMBER: _ClassVar[int]
    RECOVERED_FIELD_NUMBER: _ClassVar[int]
    THREAD_FIELD_NUMBER: _ClassVar[int]
    ELSEWHERE_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    key: CompileKey
    direction: Direction
    function: str
    file: str
    line: int
    attempts: int
    start_ns: int
    duration_ns: int
    phases: _containers.RepeatedCompositeFieldContainer[Phase]
    graph_ops: int
    graph_nodes: int
    graph_inputs: int
    guards: int
    cache: _containers.RepeatedCompositeFieldContainer[CacheResult]
    failure: Failure
    restart_reasons: _containers.RepeatedScalarFieldContainer[str]
    stack: _containers.RepeatedCompositeFieldContainer[Frame]
    recovered: bool
    thread: int
    elsewhere: bool
    metrics: _containers.ScalarMap[str, str]
    def __init__(self, key: _Optional[_Union[CompileKey, _Mapping]] = ..., direction: _Optional[_Union[Direction, str]] = ..., function: _Optional[str] = ..., file: _Optional[str] = ..., line: _Optional[int] = ..., attempts: _Optional[int] = ..., start_ns: _Optional[int] = ..., duration_ns: _Optional[int] = ..., phases: _Optional[_Iterable[_Union[Phase, _Mapping]]] = ..., graph_ops: _Optional[int] = ..., graph_nodes: _Optional[int] = ..., graph_inputs: _Optional[int] = ..., guards: _Optional[int] = ..., cache: _Optional[_Iterable[_Union[CacheResult, _Mapping]]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., restart_reasons: _Optional[_Iterable[str]] = ..., stack: _Optional[_Iterable[_Union[Frame, _Mapping]]] = ..., recovered: bool = ..., thread: _Optional[int] = ..., elsewhere: bool = ..., metrics: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CacheResult(_message.Message):
    __slots__ = ("cache", "result", "key", "reason", "time_saved_ns", "direction", "graph", "nearest", "differences", "parts_told", "first", "time_taken_ns")
    CACHE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TIME_SAVED_NS_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    NEAREST_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    PARTS_TOLD_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    TIME_TAKEN_NS_FIELD_NUMBER: _ClassVar[int]
    cache: str
    result: str
    key: str
    reason: str
    time_saved_ns: int
    direction: Direction
    graph: int
    nearest: CompileKey
    differences: _containers.RepeatedCompositeFieldContainer[KeyDifference]
    parts_told: bool
    first: bool
    time_taken_ns: int
    def __init__(self, cache: _Optional[str] = ..., result: _Optional[str] = ..., key: _Optional[str] = ..., reason: _Optional[str] = ..., time_saved_ns: _Optional[int] = ..., direction: _Optional[_Union[Direction, str]] = ..., graph: _Optional[int] = ..., nearest: _Optional[_Union[CompileKey, _Mapping]] = ..., differences: _Optional[_Iterable[_Union[KeyDifference, _Mapping]]] = ..., parts_told: bool = ..., first: bool = ..., time_taken_ns: _Optional[int] = ...) -> None: ...

class KeyDifference(_message.Message):
    __slots__ = ("part", "before", "now")
    PART_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    part: str
    before: str
    now: str
    def __init__(self, part: _Optional[str] = ..., before: _Optional[str] = ..., now: _Optional[str] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("type", "reason", "file", "line")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    type: str
    reason: str
    file: str
    line: int
    def __init__(self, type: _Optional[str] = ..., reason: _Optional[str] = ..., file: _Optional[str] = ..., line: _Optional[int] = ...) -> None: ...

class GraphBreak(_message.Message):
    __slots__ = ("key", "attempt", "reason", "explanation", "hints", "docs_url", "file", "line", "stack", "text", "recovered", "count")
    KEY_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    HINTS_FIELD_NUMBER: _ClassVar[int]
    DOCS_URL_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    STACK_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    RECOVERED_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    key: CompileKey
    attempt: int
    reason: str
    explanation: str
    hints: _containers.RepeatedScalarFieldContainer[str]
    docs_url: str
    file: str
    line: int
    stack: _containers.RepeatedCompositeFieldContainer[Frame]
    text: str
    recovered: bool
    count: int
    def __init__(self, key: _Optional[_Union[CompileKey, _Mapping]] = ..., attempt: _Optional[int] = ..., reason: _Optional[str] = ..., explanation: _Optional[str] = ..., hints: _Optional[_Iterable[str]] = ..., docs_url: _Optional[str] = ..., file: _Optional[str] = ..., line: _Optional[int] = ..., stack: _Optional[_Iterable[_Union[Frame, _Mapping]]] = ..., text: _Optional[str] = ..., recovered: bool = ..., count: _Optional[int] = ...) -> None: ...

class Recompile(_message.Message):
    __slots__ = ("key", "reasons", "file", "line", "recovered")
    KEY_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    RECOVERED_FIELD_NUMBER: _ClassVar[int]
    key: CompileKey
    reasons: _containers.RepeatedScalarFieldContainer[str]
    file: str
    line: int
    recovered: bool
    def __init__(self, key: _Optional[_Union[CompileKey, _Mapping]] = ..., reasons: _Optional[_Iterable[str]] = ..., file: _Optional[str] = ..., line: _Optional[int] = ..., recovered: bool = ...) -> None: ...

class Graph(_message.Message):
    __slots__ = ("key", "direction", "graph_key", "output_code_file", "kernels", "recovered", "index")
    KEY_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    GRAPH_KEY_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_CODE_FILE_FIELD_NUMBER: _ClassVar[int]
    KERNELS_FIELD_NUMBER: _ClassVar[int]
    RECOVERED_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    key: CompileKey
    direction: Direction
    graph_key: str
    output_code_file: str
    kernels: _containers.RepeatedCompositeFieldContainer[GeneratedKernel]
    recovered: bool
    index: int
    def __init__(self, key: _Optional[_Union[CompileKey, _Mapping]] = ..., direction: _Optional[_Union[Direction, str]] = ..., graph_key: _Optional[str] = ..., output_code_file: _Optional[str] = ..., kernels: _Optional[_Iterable[_Union[GeneratedKernel, _Mapping]]] = ..., recovered: bool = ..., index: _Optional[int] = ...) -> None: ...

class GeneratedKernel(_message.Message):
    __slots__ = ("name", "category", "num_configs", "compile_ns", "autotune", "config")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CATEGORY_FIELD_NUMBER: _ClassVar[int]
    NUM_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    COMPILE_NS_FIELD_NUMBER: _ClassVar[int]
    AUTOTUNE_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    name: str
    category: str
    num_configs: int
    compile_ns: int
    autotune: str
    config: str
    def __init__(self, name: _Optional[str] = ..., category: _Optional[str] = ..., num_configs: _Optional[int] = ..., compile_ns: _Optional[int] = ..., autotune: _Optional[str] = ..., config: _Optional[str] = ...) -> None: ...

class PhaseSpan(_message.Message):
    __slots__ = ("key", "name", "start_ns", "duration_ns", "thread", "function", "worker_process", "unfinished", "kernel", "choices")
    KEY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    START_NS_FIELD_NUMBER: _ClassVar[int]
    DURATION_NS_FIELD_NUMBER: _ClassVar[int]
    THREAD_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    WORKER_PROCESS_FIELD_NUMBER: _ClassVar[int]
    UNFINISHED_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    key: CompileKey
    name: str
    start_ns: int
    duration_ns: int
    thread: int
    function: str
    worker_process: bool
    unfinished: bool
    kernel: str
    choices: str
    def __init__(self, key: _Optional[_Union[CompileKey, _Mapping]] = ..., name: _Optional[str] = ..., start_ns: _Optional[int] = ..., duration_ns: _Optional[int] = ..., thread: _Optional[int] = ..., function: _Optional[str] = ..., worker_process: bool = ..., unfinished: bool = ..., kernel: _Optional[str] = ..., choices: _Optional[str] = ...) -> None: ...

class FunctionTimes(_message.Message):
    __slots__ = ("function", "seconds")
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    function: str
    seconds: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, function: _Optional[str] = ..., seconds: _Optional[_Iterable[float]] = ...) -> None: ...

class Counter(_message.Message):
    __slots__ = ("group", "name", "value")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    group: str
    name: str
    value: int
    def __init__(self, group: _Optional[str] = ..., name: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...

class RecordCounts(_message.Message):
    __slots__ = ("by_kind", "unknown", "unreadable")
    class ByKindEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class UnknownEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class UnreadableEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    BY_KIND_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    by_kind: _containers.ScalarMap[str, int]
    unknown: _containers.ScalarMap[str, int]
    unreadable: _containers.ScalarMap[str, int]
    def __init__(self, by_kind: _Optional[_Mapping[str, int]] = ..., unknown: _Optional[_Mapping[str, int]] = ..., unreadable: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Payload(_message.Message):
    __slots__ = ("sha256", "codec", "data", "size")
    class Codec(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        RAW: _ClassVar[Payload.Codec]
        ZLIB: _ClassVar[Payload.Codec]
        BLOCK: _ClassVar[Payload.Codec]
    RAW: Payload.Codec
    ZLIB: Payload.Codec
    BLOCK: Payload.Codec
    SHA256_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    sha256: bytes
    codec: Payload.Codec
    data: bytes
    size: int
    def __init__(self, sha256: _Optional[bytes] = ..., codec: _Optional[_Union[Payload.Codec, str]] = ..., data: _Optional[bytes] = ..., size: _Optional[int] = ...) -> None: ...

class Artifact(_message.Message):
    __slots__ = ("key", "attempt", "name", "encoding", "payload", "direction", "size", "log_offset", "log_bytes", "subgraph")
    KEY_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    SUBGRAPH_FIELD_NUMBER: _ClassVar[int]
    key: CompileKey
    attempt: int
    name: str
    encoding: str
    payload: int
    direction: Direction
    size: int
    log_offset: int
    log_bytes: int
    subgraph: str
    def __init__(self, key: _Optional[_Union[CompileKey, _Mapping]] = ..., attempt: _Optional[int] = ..., name: _Optional[str] = ..., encoding: _Optional[str] = ..., payload: _Optional[int] = ..., direction: _Optional[_Union[Direction, str]] = ..., size: _Optional[int] = ..., log_offset: _Optional[int] = ..., log_bytes: _Optional[int] = ..., subgraph: _Optional[str] = ...) -> None: ...

class ShapeEvent(_message.Message):
    __slots__ = ("key", "attempt", "kind", "symbol", "value", "range", "source", "reason", "stack")
    KEY_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SYMBOL_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    STACK_FIELD_NUMBER: _ClassVar[int]
    key: CompileKey
    attempt: int
    kind: str
    symbol: str
    value: str
    range: str
    source: str
    reason: str
    stack: _containers.RepeatedCompositeFieldContainer[Frame]
    def __init__(self, key: _Optional[_Union[CompileKey, _Mapping]] = ..., attempt: _Optional[int] = ..., kind: _Optional[str] = ..., symbol: _Optional[str] = ..., value: _Optional[str] = ..., range: _Optional[str] = ..., source: _Optional[str] = ..., reason: _Optional[str] = ..., stack: _Optional[_Iterable[_Union[Frame, _Mapping]]] = ...) -> None: ...

class ExportIssue(_message.Message):
    __slots__ = ("key", "kind", "subject", "details", "stack")
    KEY_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    STACK_FIELD_NUMBER: _ClassVar[int]
    key: CompileKey
    kind: str
    subject: str
    details: str
    stack: _containers.RepeatedCompositeFieldContainer[Frame]
    def __init__(self, key: _Optional[_Union[CompileKey, _Mapping]] = ..., kind: _Optional[str] = ..., subject: _Optional[str] = ..., details: _Optional[str] = ..., stack: _Optional[_Iterable[_Union[Frame, _Mapping]]] = ...) -> None: ...

class CompiledKernel(_message.Message):
    __slots__ = ("key", "name", "config", "registers", "spills", "shared_bytes", "num_warps", "num_stages", "time_us", "chosen", "target", "cache_key", "direction")
    KEY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    REGISTERS_FIELD_NUMBER: _ClassVar[int]
    SPILLS_FIELD_NUMBER: _ClassVar[int]
    SHARED_BYTES_FIELD_NUMBER: _ClassVar[int]
    NUM_WARPS_FIELD_NUMBER: _ClassVar[int]
    NUM_STAGES_FIELD_NUMBER: _ClassVar[int]
    TIME_US_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    CACHE_KEY_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    key: CompileKey
    name: str
    config: str
    registers: int
    spills: int
    shared_bytes: int
    num_warps: int
    num_stages: int
    time_us: float
    chosen: bool
    target: str
    cache_key: str
    direction: Direction
    def __init__(self, key: _Optional[_Union[CompileKey, _Mapping]] = ..., name: _Optional[str] = ..., config: _Optional[str] = ..., registers: _Optional[int] = ..., spills: _Optional[int] = ..., shared_bytes: _Optional[int] = ..., num_warps: _Optional[int] = ..., num_stages: _Optional[int] = ..., time_us: _Optional[float] = ..., chosen: bool = ..., target: _Optional[str] = ..., cache_key: _Optional[str] = ..., direction: _Optional[_Union[Direction, str]] = ...) -> None: ...

class RuntimeMetrics(_message.Message):
    __slots__ = ("key", "direction", "metrics")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KEY_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    key: CompileKey
    direction: Direction
    metrics: _containers.ScalarMap[str, str]
    def __init__(self, key: _Optional[_Union[CompileKey, _Mapping]] = ..., direction: _Optional[_Union[Direction, str]] = ..., metrics: _Optional[_Mapping[str, str]] = ...) -> None: ...

class StepTimes(_message.Message):
    __slots__ = ("source", "unrecorded_ns", "recorded_ns", "first", "unused")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    UNRECORDED_NS_FIELD_NUMBER: _ClassVar[int]
    RECORDED_NS_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    UNUSED_FIELD_NUMBER: _ClassVar[int]
    source: str
    unrecorded_ns: _containers.RepeatedScalarFieldContainer[int]
    recorded_ns: _containers.RepeatedScalarFieldContainer[int]
    first: _containers.RepeatedCompositeFieldContainer[FirstStep]
    unused: UnusedProfiler
    def __init__(self, source: _Optional[str] = ..., unrecorded_ns: _Optional[_Iterable[int]] = ..., recorded_ns: _Optional[_Iterable[int]] = ..., first: _Optional[_Iterable[_Union[FirstStep, _Mapping]]] = ..., unused: _Optional[_Union[UnusedProfiler, _Mapping]] = ...) -> None: ...

class UnusedProfiler(_message.Message):
    __slots__ = ("steps",)
    STEPS_FIELD_NUMBER: _ClassVar[int]
    steps: int
    def __init__(self, steps: _Optional[int] = ...) -> None: ...

class FirstStep(_message.Message):
    __slots__ = ("start_ns", "end_ns", "compiled")
    START_NS_FIELD_NUMBER: _ClassVar[int]
    END_NS_FIELD_NUMBER: _ClassVar[int]
    COMPILED_FIELD_NUMBER: _ClassVar[int]
    start_ns: int
    end_ns: int
    compiled: bool
    def __init__(self, start_ns: _Optional[int] = ..., end_ns: _Optional[int] = ..., compiled: bool = ...) -> None: ...

class CompilerCall(_message.Message):
    __slots__ = ("kind", "subject", "reason", "file", "line", "start_ns", "duration_ns")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    START_NS_FIELD_NUMBER: _ClassVar[int]
    DURATION_NS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    subject: str
    reason: str
    file: str
    line: int
    start_ns: int
    duration_ns: int
    def __init__(self, kind: _Optional[str] = ..., subject: _Optional[str] = ..., reason: _Optional[str] = ..., file: _Optional[str] = ..., line: _Optional[int] = ..., start_ns: _Optional[int] = ..., duration_ns: _Optional[int] = ...) -> None: ...

class PythonSamples(_message.Message):
    __slots__ = ("lines", "threads", "start_ns", "duration_ns", "samples", "thread", "line", "left_out")
    LINES_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    START_NS_FIELD_NUMBER: _ClassVar[int]
    DURATION_NS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    THREAD_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedCompositeFieldContainer[SampledLine]
    threads: _containers.RepeatedScalarFieldContainer[int]
    start_ns: _containers.RepeatedScalarFieldContainer[int]
    duration_ns: _containers.RepeatedScalarFieldContainer[int]
    samples: _containers.RepeatedScalarFieldContainer[int]
    thread: _containers.RepeatedScalarFieldContainer[int]
    line: _containers.RepeatedScalarFieldContainer[int]
    left_out: int
    def __init__(self, lines: _Optional[_Iterable[_Union[SampledLine, _Mapping]]] = ..., threads: _Optional[_Iterable[int]] = ..., start_ns: _Optional[_Iterable[int]] = ..., duration_ns: _Optional[_Iterable[int]] = ..., samples: _Optional[_Iterable[int]] = ..., thread: _Optional[_Iterable[int]] = ..., line: _Optional[_Iterable[int]] = ..., left_out: _Optional[int] = ...) -> None: ...

class SampledLine(_message.Message):
    __slots__ = ("file", "line", "function", "called", "caller")
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    CALLED_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    file: str
    line: int
    function: str
    called: str
    caller: int
    def __init__(self, file: _Optional[str] = ..., line: _Optional[int] = ..., function: _Optional[str] = ..., called: _Optional[str] = ..., caller: _Optional[int] = ...) -> None: ...

class CacheTransfer(_message.Message):
    __slots__ = ("load", "start_ns", "duration_ns", "size", "entries")
    class EntriesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    LOAD_FIELD_NUMBER: _ClassVar[int]
    START_NS_FIELD_NUMBER: _ClassVar[int]
    DURATION_NS_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    load: bool
    start_ns: int
    duration_ns: int
    size: int
    entries: _containers.ScalarMap[str, int]
    def __init__(self, load: bool = ..., start_ns: _Optional[int] = ..., duration_ns: _Optional[int] = ..., size: _Optional[int] = ..., entries: _Optional[_Mapping[str, int]] = ...) -> None: ...

class CudaGraphTree(_message.Message):
    __slots__ = ("device", "warm_ups", "pool_bytes", "functions")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    WARM_UPS_FIELD_NUMBER: _ClassVar[int]
    POOL_BYTES_FIELD_NUMBER: _ClassVar[int]
    FUNCTIONS_FIELD_NUMBER: _ClassVar[int]
    device: int
    warm_ups: int
    pool_bytes: int
    functions: _containers.RepeatedCompositeFieldContainer[CudaGraphFunction]
    def __init__(self, device: _Optional[int] = ..., warm_ups: _Optional[int] = ..., pool_bytes: _Optional[int] = ..., functions: _Optional[_Iterable[_Union[CudaGraphFunction, _Mapping]]] = ...) -> None: ...

class CudaGraphFunction(_message.Message):
    __slots__ = ("key", "direction", "function_id", "name", "warmed_up", "mutates", "over_limit", "recordings")
    KEY_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WARMED_UP_FIELD_NUMBER: _ClassVar[int]
    MUTATES_FIELD_NUMBER: _ClassVar[int]
    OVER_LIMIT_FIELD_NUMBER: _ClassVar[int]
    RECORDINGS_FIELD_NUMBER: _ClassVar[int]
    key: CompileKey
    direction: Direction
    function_id: int
    name: str
    warmed_up: bool
    mutates: bool
    over_limit: bool
    recordings: _containers.RepeatedCompositeFieldContainer[CudaGraphRecording]
    def __init__(self, key: _Optional[_Union[CompileKey, _Mapping]] = ..., direction: _Optional[_Union[Direction, str]] = ..., function_id: _Optional[int] = ..., name: _Optional[str] = ..., warmed_up: bool = ..., mutates: bool = ..., over_limit: bool = ..., recordings: _Optional[_Iterable[_Union[CudaGraphRecording, _Mapping]]] = ...) -> None: ...

class CudaGraphRecording(_message.Message):
    __slots__ = ("graph_id", "after", "reason", "sizes", "inputs", "file", "line")
    GRAPH_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    graph_id: int
    after: int
    reason: str
    sizes: _containers.RepeatedScalarFieldContainer[int]
    inputs: _containers.RepeatedScalarFieldContainer[str]
    file: str
    line: int
    def __init__(self, graph_id: _Optional[int] = ..., after: _Optional[int] = ..., reason: _Optional[str] = ..., sizes: _Optional[_Iterable[int]] = ..., inputs: _Optional[_Iterable[str]] = ..., file: _Optional[str] = ..., line: _Optional[int] = ...) -> None: ...
