// Made by tools/make_types.py from the routes and structs of the server. Do not edit.

export interface AllRuns {
  headline: string;
  rows: RunRow[];
  reading: number;
  pin: string;
}

export interface Allocation {
  operator: string | null;
  device: number | 'cpu';
  compile_id: string | null;
  size_bytes: number;
  start_us: number;
  lifetime_us: number | null;
  step: string | null;
  at_peak: boolean;
}

export interface ApiErrorBody {
  code: string;
  message: string;
  file: string;
  next_step: string;
}

export interface Artifact {
  id: number;
  name: string;
  title: string;
  attempt: number;
  direction: Direction;
  graph: number | null;
  encoding: string;
  language: Language;
  bytes: number | null;
}

export interface Autotune {
  kernel: string;
  compile_id: string;
  epoch: number;
  direction: Direction | null;
  time_s: number | null;
  configs: number | null;
  choice: string | null;
  best_time_us: number | null;
  where: 'compile' | 'run';
  cache: string | null;
}

export type Bandwidth = 'at_least' | 'exact';

export interface BaselineRef {
  run: string | null;
  worker: string | null;
  span: string | null;
}

export interface BatchSize {
  captured_size: number | null;
  batches: number;
  requested: string;
  padded: number | null;
  padding_percent: number | null;
  graphs: number;
  joined_percent: number | null;
}

export type Bound = 'communication' | 'compile' | 'compute' | 'copy' | 'input' | 'launch';

export interface BreakChain {
  sentence: string;
  links: Link[];
}

export interface BreakEven {
  name: Caches;
  cost_s: number;
  steps: number;
  low_steps: number;
  high_steps: number | null;
  after_s: number;
}

export type BreakKind =
  | 'builtin'
  | 'call'
  | 'context_manager'
  | 'data_dependent'
  | 'disabled'
  | 'exception'
  | 'explicit'
  | 'generator'
  | 'item'
  | 'operator'
  | 'other'
  | 'print';

export interface CacheLookup {
  cache: string;
  result: string;
  cache_key: string;
  direction: Direction | null;
  graph: number | null;
  why: string | null;
  time_saved_s: number | null;
  compile_id: string;
  epoch: number;
  function: string;
  file: string;
  line: number | null;
  spent_s: number | null;
  artifact: number | null;
  differs: string | null;
  than: string | null;
}

export interface CacheResult {
  cache: string;
  result: string;
  cache_key: string;
  direction: Direction | null;
  graph: number | null;
  why: string | null;
  time_saved_s: number | null;
}

export type Caches = 'cold' | 'recorded' | 'warm';

export type Category =
  | 'aten'
  | 'attention'
  | 'communication'
  | 'convolution'
  | 'cpp'
  | 'gemm'
  | 'memcpy'
  | 'memset'
  | 'normalization'
  | 'other'
  | 'triton_foreach'
  | 'triton_other'
  | 'triton_persistent_reduction'
  | 'triton_pointwise'
  | 'triton_reduction'
  | 'triton_split_scan'
  | 'triton_template'
  | 'triton_user';

export interface CategoryDifference {
  category: Category;
  time_us: Pair;
  launches: Pair;
  outcome: Outcome;
}

export type Change = 'appeared' | 'changed' | 'same' | 'vanished';

export type ClockName = 'gpu' | 'host';

export interface CodeKernel {
  name: string;
  time_us: number | null;
  launches: number | null;
  line: number;
  calls: number[];
  source_nodes: string[];
  lines: Frame[];
  lines_from: LineOrigin | null;
}

export interface CodeKernels {
  rows: CodeKernel[];
}

export interface Collective {
  name: string;
  device: number;
  size_bytes: number | null;
  kernels: number;
  time_us: number;
  mean_us: number;
  min_us: number;
  max_us: number;
  wait_us: number | null;
  transfer_us: number | null;
  unknown_us: number | null;
  gb_s: number | null;
  gb_s_kind: Bandwidth | null;
}

export interface CollectiveCompared {
  op: Operation;
  group: string;
  dtype: string;
  message_bytes: number | null;
  transfer_us: Pair;
  wait_us: Pair;
  busbw_gb_s: Pair;
  instances: Pair;
  outcome: Outcome;
}

export interface CollectiveRow {
  group: string;
  ranks: number[];
  op: Operation;
  dtype: string;
  message_bytes: number | null;
  group_size: number;
  instances: number;
  transfer_us: number;
  wait_us: number;
  unknown_us: number;
  wait_percent: number;
  algbw_gb_s: number | null;
  busbw_gb_s: number | null;
  end_skew_us_p95: number;
  most_waiting: InstanceCall[];
}

export interface Collectives {
  rows: Collective[];
}

export interface Comparison {
  baseline: SpanName;
  candidate: SpanName;
  verdict: string;
  break_even: string;
  step_time: StepTimeDifference | null;
  figures: Figure[];
  parts: PartDifference[];
  kernels: KernelDifference[];
  operators: OperatorDifference[];
  modules: ModuleDifference[];
  kernel_categories: CategoryDifference[];
  compilations: CompilationDifference[];
  notes: string[];
}

export interface Compilation {
  key: string;
  compile_id: string;
  epoch: number;
  direction: Direction;
  part: number;
  parts: number;
  function: string;
  file: string;
  line: number | null;
  status: Status;
  attempts: number | null;
  start_s: number | null;
  duration_s: number | null;
  phases_s: Partial<Record<Phase, number>> | null;
  phases_percent: Partial<Record<Phase, number>>;
  graph_ops: number | null;
  guards: number | null;
  cache: CacheResult[];
  breaks: number;
  failure: Problem | null;
  restart_reasons: string[];
  stack: Frame[];
  recovered: boolean;
}

export interface CompilationDetails {
  compile_id: string;
  epoch: number;
  rows: Compilation[];
  traceback: string | null;
  graph_breaks: GraphBreak[];
  recompile: Recompile | null;
  guard_checks: number | null;
  shapes: SymbolicShapes;
  cudagraph_skip_reasons: string[];
  artifacts: Artifact[];
  warnings: Notice[];
}

export interface CompilationDifference {
  function: string;
  file: string;
  line: number | null;
  direction: Direction;
  baseline: Compiled | null;
  candidate: Compiled | null;
  both_ids: string;
  duration_s: Pair;
  graph_ops: Pair;
  outcome: Outcome;
}

export interface CompilationRow {
  key: string;
  compile_id: string;
  epoch: number;
  status: Status | null;
  direction: string;
  function: string;
  file: string;
  line: number | null;
  duration_s: number | null;
  calls: number | null;
  guard_us_per_call: number | null;
  host_us_per_call: number | null;
  gpu_us_per_call: number | null;
  overhead_us_per_call: number | null;
  graph_us_per_call: number | null;
  graph_ops: number | null;
  breaks: number | null;
  guards: number | null;
  attempts: number | null;
  slices: string;
}

export interface CompilationTable {
  sentences: string[];
  compilations: CompilationRow[];
  others: OtherArtifacts[];
  uses_cuda_graphs: boolean;
}

export interface Compile {
  source: 'summary' | 'torch_logs' | 'torch_trace';
  file: string;
  total_s: number | null;
  phases_s: Partial<Record<Phase, number>>;
  phases_percent: Partial<Record<Phase, number>>;
  unreadable_records: number;
  environment: Environment;
  compilations: Compilation[];
  distinct_compilations: number;
  problems: Problem[];
  graph_breaks: GraphBreak[];
  reported_sites: GraphBreakSite[];
  recompiles: Recompile[];
  recompiled_frames: RecompiledFrame[];
  generated_kernels: GeneratedKernels[];
  autotune: Autotune[];
  exports: ExportCall[];
  autotuning: string;
  compile_functions: FunctionTime[];
  compile_times: Record<string, number[]>;
  compile_times_complete: boolean;
  records: Records;
  headlines: Record<string, string>;
  warnings: Notice[];
}

export interface CompileOverlap {
  inside_us: number;
  window: string;
}

export interface CompileSeconds {
  blocked_s: number;
  cold_s: number | null;
  warm_s: number | null;
  cache_hits: number;
  cache_lookups: number;
}

export interface Compiled {
  compile_id: string;
  epoch: number;
}

export interface CompiledRegion {
  compile_id: string;
  epoch: number;
  compilation: string | null;
  function: string | null;
  guards: number | null;
  calls: number;
  cpu_us: number;
  guard_us: number;
  overhead_us: number | null;
  graph_us: number | null;
  backward_calls: number;
  backward_cpu_us: number;
  gpu_us: number | null;
  backward_gpu_us: number | null;
}

export interface Coverage {
  level: Level;
  rows: CoverageRow[];
}

export type CoverageKind =
  | 'device_activity'
  | 'events'
  | 'gpu_records'
  | 'launch_records'
  | 'processes'
  | 'step_marks'
  | 'step_operators'
  | 'thread_operators'
  | 'times'
  | 'truncation';

export interface CoverageRow {
  kind: CoverageKind;
  level: Level;
  steps: string[];
  count: number;
  of: number;
  sentence: string;
  fix: string;
}

export interface CudaGraphReport {
  sentences: string[];
  functions: GraphedFunction[];
  skipped: SkippedGraph[];
  recordings: GraphRecording[];
  batches: BatchSize[];
  code: string | null;
}

export interface Curve {
  time_us: number[];
  allocated_bytes: number[];
  reserved_bytes: number[] | null;
}

export type DeterminedBy = 'eager_predicted' | 'measured' | 'nothing_ran' | 'unknown';

export interface DeviceInStep {
  device: number;
  busy_us: number;
  busy_percent: number | null;
  idle_us: number;
}

export interface DevicePeak {
  bandwidth_gb_s: number | null;
  fp32_tflop_s: number | null;
  tf32_tflop_s: number | null;
  bf16_tflop_s: number | null;
  device: number;
  name: string | null;
  is_known: boolean;
}

export type DifferenceKind = 'cache' | 'collectives' | 'compilation' | 'execution_order';

export type Direction = 'backward' | 'forward';

export interface DynamicChange {
  source: string | null;
  change: string;
  before: string | null;
  now: string | null;
}

export interface DynamicGuard {
  expression: string;
  compile_ids: string[];
  recompiles: number;
  file: string;
  line: number | null;
}

export interface DynamicShapeReport {
  sentences: string[];
  sizes: ObservedSize[];
  symbols: SymbolicShape[];
  guards: DynamicGuard[];
  code: string | null;
}

export type EagerKind = 'backward' | 'data_loading' | 'graph_break' | 'operator' | 'optimizer';

export interface EagerOp {
  name: string;
  kind: EagerKind;
  function: string | null;
  file: string | null;
  line: number | null;
  why: EagerReason | null;
  calls: number;
  host_us: number;
  device_us: number | null;
}

export type EagerReason =
  'failed' | 'graph_break' | 'not_compiled' | 'profiler_hook' | 'recompile_limit' | 'skipped';

export interface EagerTime {
  headline: string;
  host_us: number;
  share_percent: number | null;
  device_us: number | null;
  device_share_percent: number | null;
  ops: EagerOp[];
}

export interface Environment {
  torch_version: string | null;
  python_version: string | null;
  plugin_version: string | null;
  cuda_version: string | null;
  hip_version: string | null;
  triton_version: string | null;
  device_names: string[];
  hostname: string | null;
  pid: number | null;
  rank: number | null;
  world_size: number | null;
  capture: string | null;
  backends: string[];
  variables: Record<string, string>;
}

export interface ExportCall {
  compile_id: string;
  epoch: number;
  function: string;
  file: string;
  line: number | null;
}

export interface Exports {
  sentences: string[];
  exports: ExportCall[];
}

export interface Fact {
  label: string;
  value: string | null;
  title: string;
  unknown: string;
}

export interface FailedGuard {
  entry: string | null;
  text: string;
  kind: GuardKind;
  source: string | null;
  old: string | null;
  new: string | null;
  file: string | null;
  line: number | null;
  advice: string;
}

export interface Figure {
  name: string;
  label: string;
  baseline: string;
  candidate: string;
  change: string;
  value: Pair;
}

export interface Finding {
  rule: string;
  severity: Severity;
  title: string;
  evidence: Record<string, number | number>;
  saves_us: number | null;
  panel: Panel;
  row: string | null;
  next_step: string;
  predicted: Predicted | null;
  where: string[];
  section: string;
  fix: string | null;
  code: string | null;
  role: Role;
  advised: boolean;
}

export interface Findings {
  findings: Finding[];
  rules: number;
}

export interface FixRow {
  id: string;
  kind: string;
  name: string;
  file: string;
  line: number;
  times: number;
  predicted: Predicted;
  sentence: string;
  next_step: string;
  code: string | null;
  panel: Panel;
  section: string;
  note: string;
}

export interface Frame {
  file: string;
  line: number;
  function: string;
  source: string | null;
}

export interface FunctionTime {
  function: string;
  runs: number;
  total_s: number;
  min_s: number;
  max_s: number;
}

export interface Gain {
  verdict: PaybackVerdict;
  determined_by: DeterminedBy;
  eager_us: number | null;
  compiled_us: number | null;
  gain_us: number | null;
  low_us: number | null;
  high_us: number | null;
  eager_run: string;
  compiled_run: string;
}

export interface GeneratedKernels {
  compile_id: string;
  epoch: number;
  direction: Direction;
  graph_key: string | null;
  output_code_file: string;
  category: Category;
  kernels: string[];
}

export interface Gpu {
  device: number;
  name: string | null;
  span_us: number;
  busy_us: number;
  busy_percent: number | null;
  idle_us: number;
  compute_us: number;
  exposed_communication_us: number;
  exposed_memory_us: number;
}

export interface GpuPart {
  device: number;
  busy_us: number;
  idle_us: number;
}

export interface GpuUtilization {
  verdict: Verdict | null;
  mean: DeviceInStep | null;
  idle_reasons: IdleReason[];
  idle_reasons_of: string;
  longest_gaps: IdleGap[];
  streams: Stream[];
  launch_stats: LaunchStats | null;
}

export interface GraphBreak {
  compile_id: string;
  epoch: number;
  reason: string;
  kind: BreakKind;
  explanation: string;
  hints: string[];
  docs_url: string;
  file: string;
  line: number | null;
  source: string | null;
  stack: Frame[];
  count: number;
}

export interface GraphBreakCost {
  compile_id: string;
  resume_compile_id: string;
  file: string;
  line: number | null;
  calls: number;
  host_us: number;
  resume_guard_us: number;
  resume_overhead_us: number | null;
  gpu_idle_us: number | null;
}

export interface GraphBreakSite {
  key: string;
  file: string;
  line: number | null;
  source: string | null;
  saves_us: number | null;
  saves_percent: number | null;
  step_mean_us: number | null;
  share_percent: number | null;
  host_us: number | null;
  step_gpu_idle_us: number | null;
  gpu_idle_us: number | null;
  calls_per_step: number | null;
  calls: number | null;
  kind: BreakKind | null;
  reason: string;
  why_no_cost: string | null;
  compile_ids: string[];
  breaks: GraphBreak[];
  first_us: number | null;
  last_us: number | null;
}

export interface GraphPiece {
  artifact: number;
  lines: number[];
  text: string[];
}

export interface GraphRecording {
  compile_id: string;
  direction: Direction | null;
  graph_id: number | null;
  reason: 'earlier_result' | 'first' | 'liveness' | 'order' | 'size' | 'static_input' | null;
  sizes: string;
  inputs: string[];
  file: string;
  line: number | null;
  step: string | null;
  recording_us: number | null;
}

export type GraphState =
  'new_sizes' | 'not_run' | 'partly' | 'recorded_again' | 'recording' | 'replayed' | 'skipped' | 'waiting';

export interface GraphedFunction {
  compile_id: string;
  direction: Direction;
  function: string;
  file: string;
  line: number | null;
  state: GraphState;
  why: string;
  calls: number;
  replayed_calls: number;
  recorded_calls: number;
  plain_calls: number;
  recordings: number | null;
  recording_us: number | null;
  recording_steps: number | null;
  replay_us: number | null;
  launches_avoided: number | null;
}

export interface Guard {
  text: string;
  kind: string;
  source: string | null;
  user_line: string | null;
}

export interface GuardChecks {
  sentence: string;
  guards: Guard[];
  warnings: Notice[];
}

export type GuardKind =
  | 'global_state'
  | 'identity'
  | 'length'
  | 'other'
  | 'shape'
  | 'tensor_property'
  | 'tensor_size'
  | 'type'
  | 'value';

export type HostCause =
  | 'allocation'
  | 'autotuning'
  | 'communication'
  | 'compile'
  | 'data_loading'
  | 'garbage'
  | 'gpu_clock'
  | 'graph'
  | 'graph_capture'
  | 'guards'
  | 'label'
  | 'launch'
  | 'library'
  | 'memory_copy'
  | 'module_load'
  | 'more_work'
  | 'nothing'
  | 'operator'
  | 'optimizer'
  | 'python'
  | 'query'
  | 'slower_kernels'
  | 'synchronise'
  | 'waiting'
  | 'wrappers';

export type HostCauseKind =
  | 'allocation'
  | 'autotuning'
  | 'communication'
  | 'compile'
  | 'data_loading'
  | 'garbage'
  | 'graph'
  | 'graph_capture'
  | 'guards'
  | 'label'
  | 'launch'
  | 'library'
  | 'memory_copy'
  | 'module_load'
  | 'more_work'
  | 'nothing'
  | 'operator'
  | 'optimizer'
  | 'python'
  | 'query'
  | 'slower_kernels'
  | 'synchronise'
  | 'wrappers';

export type HostFrom = 'launches' | 'stacks';

export type HostKind =
  | 'compiled_graph'
  | 'compiling'
  | 'data_loading'
  | 'eager_operators'
  | 'graph_breaks'
  | 'guards'
  | 'kernel_launches'
  | 'python'
  | 'unaccounted'
  | 'waiting_for_gpu'
  | 'waiting_for_ranks';

export interface HostPart {
  cause: HostCause;
  name: string;
  file: string;
  line: number;
  time_us: number;
}

export interface HostTime {
  name: string;
  time_us: number;
  slices: number;
}

export interface IdleGap {
  start_us: number;
  device: number;
  idle_us: number;
  step: string | null;
  cause: HostKind;
  idle: Record<string, number>;
  after: string | null;
  before: string;
  launch: string | null;
  thread: string | null;
  host: HostTime[];
  row: number | null;
}

export interface IdleReason {
  name: string;
  device: number;
  cause: HostCause;
  file: string;
  line: number;
  idle_us: number;
  share_percent: number;
  calls: number | null;
  pattern: string;
  longest_start_us: number | null;
  longest_us: number | null;
  longest_row: number | null;
}

export interface InstanceCall {
  rank: number;
  start_us: number;
  wait_us: number;
  unknown_us: number;
  transfer_us: number;
  timeline_ns: number;
}

export interface JobMap {
  measure: Measure;
  ranks: number[];
  workers: string[];
  spans: string[];
  hosts: (string | null)[];
  mean_us: (number | null)[];
  steps: string[];
  us: (number | null)[][];
  steps_left_out: number;
}

export interface JobReport {
  headline: string;
  basis: string;
  ranks: number;
  step_us: number | null;
  missing_ranks: number[];
  world_size: number | null;
  clock_residual_us_p95: number | null;
  by_rank: RankRow[];
  waits: WaitRow[];
  collectives: CollectiveRow[];
  steps: JobStep[];
  late: LateRank[];
  findings: Finding[];
  warnings: Notice[];
  traced: boolean;
  map: JobMap;
  left_out: LeftOut;
}

export interface JobStep {
  step: string;
  rank: number;
  span_us: number;
  compute_us: number;
  overlapped_us: number;
  exposed_transfer_us: number;
  exposed_wait_us: number;
  exposed_unknown_us: number;
  exposed_memory_us: number;
  idle_us: number;
  compile_us: number;
}

export interface JobsCompared {
  verdict: string;
  step_time: StepTimeDifference | null;
  ranks: RankCompared[];
  collectives: CollectiveCompared[];
}

export interface Kernel {
  key: string;
  name: string;
  time_us: number;
  share_percent: number;
  launches: number;
  mean_us: number;
  above_floor_us: number | null;
  bandwidth_gb_s: number | null;
  bandwidth_percent: number | null;
  source_lines: string[];
  compile_id: string | null;
  device: number | 'cpu';
  category: Category;
  direction: Direction | null;
  min_us: number;
  max_us: number;
  wall_percent: number | null;
  bandwidth_from: WorkFrom | null;
  bytes_per_launch: number | null;
  tflop_s: number | null;
  tflop_percent: number | null;
  tflop_from: WorkFrom | null;
  precision: Precision | null;
  flop_per_byte: number | null;
  alone_us: number | null;
  twice_as_fast_percent: number | null;
  aten_ops: string[];
  modules: string[];
  lines: Frame[];
  lines_from: LineOrigin | null;
  graph_key: string | null;
  output_code_file: string | null;
  artifact: number | null;
  code_line: number | null;
  config: LaunchConfig | null;
  configs: number;
}

export interface KernelCategory {
  device: number | 'cpu';
  category: Category;
  launches: number;
  distinct_kernels: number;
  time_us: number;
  gpu_time_percent: number | null;
  wall_time_percent: number | null;
}

export interface KernelDetails {
  launches: KernelLaunches;
  idle_before_us: number | null;
  longest_idle_before_us: number | null;
  configs: LaunchConfig[];
  compile_config: string | null;
  context: Frame[];
  graph: GraphPiece | null;
  source: string | null;
  language: string | null;
}

export interface KernelDifference {
  name: string;
  category: Category;
  change: Change;
  places: number;
  baseline: SideWork;
  candidate: SideWork;
  time_us: Pair;
  launches: Pair;
  outcome: Outcome;
}

export interface KernelLaunches {
  start_us: number[];
  duration_us: number[];
  row: number[];
  shown_every: number;
}

export interface Kernels {
  headline: string;
  rows: Kernel[];
  best: number | null;
  peaks: DevicePeak[];
  without_bytes: string;
  without_flop: string;
  warnings: Notice[];
}

export interface Lane {
  id: number;
  kind: LaneKind;
  group: string;
  title: string;
  depths: number;
  slices: number;
  unit: string | null;
  note: string;
  folded: boolean;
  later: boolean;
}

export type LaneKind =
  'breaks' | 'counter' | 'gaps' | 'phases' | 'recompiles' | 'regions' | 'steps' | 'stream' | 'thread';

export type Language = 'cpp' | 'json' | 'python' | 'text';

export interface LateRank {
  rank: number;
  instances: number;
  excess_us: number;
  causes: LateReason[];
}

export interface LateReason {
  cause: HostCauseKind;
  name: string;
  where: string | null;
  excess_us: number;
  typical_us: number;
}

export interface LaunchConfig {
  grid: number[];
  block: number[];
  warps: number | null;
  registers: number | null;
  shared_memory_bytes: number | null;
  occupancy_percent: number | null;
  launches: number;
  time_us: number;
}

export interface LaunchStats {
  launches: number;
  launches_per_step: number | null;
  call_median_us: number;
  idle_launches: number;
  latency_median_us: number | null;
  latency_p95_us: number | null;
  queued_launches: number;
  queue_wait_median_us: number | null;
  queue_wait_p95_us: number | null;
  short_events: number;
  short_percent: number | null;
}

export interface Ledger {
  sentences: string[];
  sites: LedgerSite[];
  rows: LedgerRow[];
}

export interface LedgerRow {
  site: string;
  file: string;
  line: number | null;
  kind: TimeKind;
  is_gpu: boolean;
  time_us: number;
  step_percent: number;
  names: string[];
}

export interface LedgerSite {
  site: string;
  file: string;
  line: number | null;
  time_us: number;
  host_us: number;
  gpu_us: number;
  step_percent: number;
  kinds: TimeKind[];
}

export interface LeftOut {
  by_rank: number;
  waits: number;
  collectives: number;
  steps: number;
}

export type Level = 'complete' | 'insufficient' | 'partial';

export interface LineBreak {
  reason: string;
  cost_us: number | null;
  row: string;
  panel: Panel;
}

export interface LineGuards {
  compile_id: string;
  epoch: number;
  guards: number;
}

export interface LineKernel {
  kernel: string;
  kernel_row: string;
  compile_id: string | null;
  time_us: number;
}

export type LineOrigin = 'capture' | 'comments' | 'provenance';

export interface LineRecompile {
  reason: string;
  compile_id: string;
  epoch: number;
  duration_s: number | null;
  row: string;
  panel: Panel;
}

export interface Link {
  kind: 'break' | 'graph';
  compile_id: string;
  file: string;
  line: number | null;
  start_us: number;
  duration_us: number;
}

export interface Longest {
  title: string;
  kernels: boolean;
  rows: LongestRow[];
}

export interface LongestRow {
  name: string;
  text: string;
}

export interface MeanPart {
  kind: PartKind;
  part: Category | HostKind | 'not_recorded' | 'profiler_overhead';
  time_us: number;
  percent: number;
}

export type Measure =
  | 'compile_us'
  | 'compute_us'
  | 'exposed_memory_us'
  | 'exposed_transfer_us'
  | 'exposed_unknown_us'
  | 'exposed_wait_us'
  | 'idle_us'
  | 'late_us'
  | 'overlapped_us'
  | 'span_us';

export interface Memory {
  headline: string;
  recorded: boolean;
  devices: MemoryUse[];
  owners: MemoryOwner[];
  allocations: Allocation[];
  all_allocations: number;
}

export interface MemoryOwner {
  operator: string | null;
  device: number | 'cpu';
  compile_id: string | null;
  graph_key: string | null;
  peak_bytes: number;
  allocated_bytes: number;
  largest_bytes: number;
  kept_bytes: number;
  allocations: number;
}

export interface MemoryUse {
  device: number | 'cpu';
  note: string;
  capacity_bytes: number | null;
  curve: Curve;
  peak_bytes: number;
  peak_us: number;
  peak_reserved_bytes: number | null;
  before_bytes: number;
  first_bytes: number;
  allocations: number;
  allocated_bytes: number;
  freed_bytes: number;
}

export interface Module {
  name: string;
  parent: number;
  depth: number;
  in_graph: boolean;
  host_us: number | null;
  self_host_us: number | null;
  device_us: number | null;
  self_device_us: number | null;
  backward_device_us: number | null;
  calls: number | null;
  compile_ids: string[];
  slices: string | null;
  kernels_of: string | null;
}

export interface ModuleDifference {
  path: string;
  host_us: Pair;
  device_us: Pair;
  calls: Pair;
  outcome: Outcome;
}

export interface Modules {
  sentences: string[];
  modules: Module[];
  code: string | null;
}

export interface Notice {
  file: string;
  problem: string;
  kept: string;
  next_step: string;
}

export interface ObservedSize {
  function: string;
  source: string;
  size: number;
  handling: SizeHandling;
  compile_id: string;
  calls: number | null;
  compile_s: number | null;
}

export type Operation =
  | 'all_gather'
  | 'all_reduce'
  | 'all_to_all'
  | 'barrier'
  | 'broadcast'
  | 'gather'
  | 'other'
  | 'recv'
  | 'reduce'
  | 'reduce_scatter'
  | 'scatter'
  | 'send';

export interface Operator {
  name: string;
  kind: OperatorKind;
  part: string | null;
  calls: number;
  self_host_us: number;
  host_us: number;
  self_device_us: number | null;
  device_us: number | null;
  matrix_us: number | null;
  tensor_core_us: number | null;
  self_cpu_memory_bytes: number | null;
  cpu_memory_bytes: number | null;
  self_device_memory_bytes: number | null;
  device_memory_bytes: number | null;
  flops: number | null;
  mean_us: number;
  step_percent: number | null;
  tensor_core_percent: number | null;
}

export interface OperatorDifference {
  name: string;
  kind: OperatorKind;
  self_host_us: Pair;
  self_device_us: Pair;
  calls: Pair;
  outcome: Outcome;
}

export type OperatorKind = 'label' | 'operator' | 'overhead' | 'runtime';

export interface Operators {
  headline: string;
  split: string | null;
  rows: Operator[];
  missing: string;
  code: string;
}

export interface OtherArtifacts {
  compile_id: string;
  epoch: number;
  artifacts: Artifact[];
}

export type Outcome = 'appeared' | 'equal' | 'faster' | 'slower' | 'vanished';

export interface Overview {
  headline: string;
  step: string;
  counts: OverviewCount[];
  considered: string[];
  payback: string;
}

export interface OverviewCount {
  text: string;
  panel: Panel;
  section: string;
  help: string;
  tone: '' | 'bad' | 'warn';
}

export interface Pair {
  baseline: number | null;
  candidate: number | null;
  delta: number | null;
}

export type Panel =
  | 'all_runs'
  | 'compare'
  | 'compilations'
  | 'compile_time'
  | 'findings'
  | 'generated_code'
  | 'graph_breaks'
  | 'kernels'
  | 'memory'
  | 'operators'
  | 'overview'
  | 'ranks'
  | 'recompiles'
  | 'step'
  | 'timeline'
  | 'your_code';

export interface PartDifference {
  kind: PartKind;
  part: Category | HostKind | 'not_recorded' | 'profiler_overhead';
  time_us: Pair;
}

export type PartKind = 'gpu' | 'host' | 'idle' | 'profiler' | 'unknown';

export interface Payback {
  sentences: string[];
  gain: Gain[];
  cost: CompileSeconds[];
  break_even: BreakEven[];
}

export type PaybackVerdict = 'not_worth_it' | 'unknown' | 'worth_it';

export type Phase = 'aot_autograd' | 'autotune' | 'cache' | 'dynamo' | 'inductor' | 'other' | 'triton';

export interface Picture {
  step_us: number;
  host: HostPart[];
  gpus: GpuPart[];
}

export type Precision = 'bf16' | 'fp32' | 'tf32';

export interface Predicted {
  step_us: number;
  after_us: number;
  low_us: number;
  high_us: number;
  gain_percent: number;
}

export interface Problem {
  kind: ProblemKind;
  compile_id: string;
  epoch: number;
  function: string;
  file: string;
  line: number | null;
  type: string;
  reason: string;
  ran_eager: boolean | null;
  what_happened: string;
  consequence: string;
  command: string;
}

export type ProblemKind = 'failed' | 'limit' | 'skipped';

export interface Program {
  headline: string;
  note: string;
  rows: ProgramLine[];
  device: 'CPU' | 'GPU' | null;
  kernel_us: number;
  unknown_us: number;
  host_from: HostFrom | null;
}

export interface ProgramLine {
  key: string;
  file: string;
  line: number;
  text: string | null;
  why_no_text: string | null;
  function: string;
  whole_function: boolean;
  critical_path_us: number;
  forward_us: number | null;
  backward_us: number | null;
  kernel_us: number | null;
  share_percent: number | null;
  host_us: number | null;
  above_floor_us: number | null;
  kernels: LineKernel[];
  shared: SharedLine[];
  breaks: LineBreak[];
  recompiles: LineRecompile[];
  guards: LineGuards[];
}

export interface Progress {
  file: string;
  bytes_read: number;
  bytes_total: number;
  events: number;
  seconds_left: number | null;
  stage: Stage;
  queue_position: number;
}

export interface PythonFunction {
  key: string;
  name: string;
  file: string | null;
  line: number | null;
  owner: Whose;
  user_us: number | null;
  self_us: number;
  total_us: number;
  calls: number;
  slices: string;
}

export interface PythonTime {
  headline: string;
  note: string;
  recorded: boolean;
  functions: PythonFunction[];
  parts: Partial<Record<Whose, number>>;
}

export interface RankCompared {
  rank: number;
  step_us: Pair;
  exposed_wait_us: Pair;
  late_us: Pair;
  compute_us: Pair;
  overlapped_us: Pair;
  exposed_transfer_us: Pair;
  exposed_unknown_us: Pair;
  exposed_memory_us: Pair;
  idle_us: Pair;
  wait_us: Pair;
  outcome: Outcome;
}

export interface RankDifference {
  kind: DifferenceKind;
  epoch: number;
  compile_id: string;
  function: string;
  ranks: number[];
  value: string;
}

export interface RankDifferences {
  sentences: string[];
  ranks: number[];
  differences: RankDifference[];
}

export interface RankFindings {
  findings: Finding[];
  rules: number;
  headline: string;
  step: string;
}

export interface RankRow {
  rank: number;
  worker: string;
  span: string;
  host: string | null;
  communication_us: number;
  transfer_us: number;
  wait_us: number;
  unknown_us: number;
  unmatched_us: number;
  last: number;
  late_us: number;
  step_us: number | null;
}

export interface Recompile {
  key: string;
  compile_id: string;
  epoch: number;
  function: string;
  guard: string;
  change: string;
  file: string;
  line: number | null;
  duration_s: number | null;
  advice: string;
  reasons: string[];
  guards: FailedGuard[];
  dynamic: DynamicChange[];
  step: string | null;
  when: string | null;
  calls: number | null;
}

export interface RecompileReport {
  sentences: string[];
  recompiles: Recompile[];
  frames: RecompiledFrame[];
}

export interface RecompiledFrame {
  frame: string;
  epoch: number;
  function: string;
  file: string;
  line: number | null;
  versions: Version[];
  limit: number | null;
  limit_hit: string | null;
  module: string | null;
  modules: number | null;
  differences: string[];
  avoidable_s: number | null;
}

export interface Records {
  unknown: Record<string, number>;
  unreadable: Record<string, number>;
}

export interface RelatedSlices {
  title: string;
  slices: SliceRef[];
  more: number;
}

export type Role = 'blocking' | 'generic' | 'specific' | 'symptom';

export interface RunRef {
  run: string;
  workers: WorkerRef[];
  ranks: number;
  job_bytes: number;
  compiling: string;
}

export interface RunRow {
  run: string;
  step_us: number | null;
  deviation_us: number | null;
  change_percent: number | null;
  within_noise: boolean | null;
  finding: string | null;
  compile_s: number | null;
  graph_breaks: number | null;
  recompiles: number | null;
  gpu_busy_percent: number | null;
  compiled_percent: number | null;
  compilations: number | null;
  recorded_s: number | null;
  ranks: number;
  compiling: string;
  worker: string;
  span: string | null;
  severity: Severity | null;
  read: boolean;
  times: StepTimes | null;
  why_unknown: WhyUnknown;
}

export interface Runs {
  plugin_version: string;
  runs: RunRef[];
  warnings: Notice[];
  schema_version: number;
}

export interface Scenario {
  headline: string;
  why_nothing: string | null;
  step: StepTime;
  replay_error_percent: number | null;
  now: Picture | null;
  after: Picture | null;
  combined: Predicted | null;
  fixes: FixRow[];
  left_out: number;
  selected: string[];
  unknown: string[];
}

export type Severity = 'critical' | 'info' | 'warning';

export interface ShapeGuard {
  expression: string;
  stack: Frame[];
}

export interface SharedLine {
  file: string;
  line: number;
  time_us: number;
}

export interface SheetColumn {
  key: string;
  label: string;
  kind: string;
  bar: boolean;
  total: boolean;
  hidden: boolean;
  grow: boolean;
  wrap: boolean;
  sides: boolean;
}

export interface SheetTable {
  rows: string;
  title: string;
  names: string[];
  columns: SheetColumn[];
  inner: SheetTable[];
}

export interface Sheets {
  sheets: Record<string, SheetTable[]>;
}

export interface SideWork {
  kernels: string[];
  operators: string[];
}

export type SizeHandling = 'dynamic' | 'eager' | 'specialized';

export interface SkippedGraph {
  compile_id: string;
  reason: string;
  file: string;
  line: number | null;
  text: string;
}

export type SliceKind =
  | 'backward_region'
  | 'break'
  | 'cpu_op'
  | 'gap_compiling'
  | 'gap_data_loading'
  | 'gap_eager_operators'
  | 'gap_graph_breaks'
  | 'gap_guards'
  | 'gap_kernel_launches'
  | 'gap_python'
  | 'gap_unaccounted'
  | 'gap_waiting_for_gpu'
  | 'gap_waiting_for_ranks'
  | 'gpu_user_annotation'
  | 'host_other'
  | 'overhead'
  | 'phase_aot_autograd'
  | 'phase_autotune'
  | 'phase_cache'
  | 'phase_dynamo'
  | 'phase_inductor'
  | 'phase_other'
  | 'phase_triton'
  | 'python_function'
  | 'recompile'
  | 'region'
  | 'runtime'
  | 'step'
  | 'user_annotation';

export interface SliceRef {
  row: number;
  lane: number;
  name: string;
  start_ns: number;
  dur_ns: number;
}

export interface SourceLine {
  file: string;
  line: number;
  function: string;
}

export interface Span {
  span: string;
  trace_file: string;
  size_bytes: number;
  warnings: Notice[];
  events: number;
  wall_us: number;
  step_time: StepTime;
  coverage: Coverage;
  gpu: Gpu[];
  steps: Step[];
  kernel_categories: KernelCategory[];
  distinct_kernels: number;
  compiled_regions: CompiledRegion[];
  graph_break_costs: GraphBreakCost[] | null;
  graph_break_sites: GraphBreakSite[];
  break_chain: BreakChain | null;
  compile_overlap: CompileOverlap | null;
  headlines: Record<string, string>;
  unnamed_cpu_kernels: string;
  unnamed_triton_kernels: string;
}

export interface SpanName {
  run: string;
  worker: string;
  span: string;
  trace_file: string;
}

export interface SpanRef {
  span: string;
  trace_file: string;
  size_bytes: number;
  modified_s: number;
}

export type Stage = 'fetching' | 'queued' | 'reading';

export interface StartPart {
  title: string;
  time_s: number;
  percent: number;
  part: string;
}

export interface StartUp {
  sentences: string[];
  parts: StartPart[];
  start_lookups: CacheLookup[];
}

export type Status =
  | 'compiled'
  | 'compiled_elsewhere'
  | 'exported'
  | 'failed'
  | 'graph_break'
  | 'no_graph'
  | 'recompile_limit'
  | 'recovered'
  | 'unfinished'
  | 'unknown';

export interface Step {
  name: string;
  start_us: number;
  wall_us: number;
  gpu_us: number | null;
  gpu_busy_us: number | null;
}

export interface StepBreakdown {
  step: string | null;
  device: number | null;
  start_us: number;
  wall_us: number;
  parts: StepPart[];
}

export interface StepPart {
  kind: PartKind;
  part: Category | HostKind | 'not_recorded' | 'profiler_overhead';
  time_us: number;
}

export interface StepReport {
  sentences: string[];
  step_time: StepTime;
  times: StepTimes | null;
  steps: StepRow[];
  window: StepBreakdown | null;
  mean_parts: MeanPart[];
}

export interface StepRow {
  step: string | null;
  device: number | null;
  start_us: number;
  wall_us: number;
  parts: StepPart[];
  times_median: number | null;
  slow_because: string | null;
  busy_percent: number | null;
  bound: Bound | null;
  launches: number | null;
  kernel_launch_us: number | null;
  graph_replays: number | null;
  reason: Category | HostKind | 'not_recorded' | 'profiler_overhead' | 'autotune' | 'gc' | 'recompile' | null;
  excess_us: number | null;
  explained_us: number | null;
  compile_ids: string[];
}

export type StepSource = 'compiled_region' | 'optimizer' | 'profiler' | 'server' | 'span';

export interface StepSpan {
  name: string;
  start_ns: number;
  end_ns: number;
}

export interface StepTime {
  step_us: number;
  clock: ClockName;
  steps: number;
  profiled_us: number;
  source: StepSource;
  device: number | null;
  unprofiled_steps: number;
}

export interface StepTimeDifference {
  baseline: StepTimes;
  candidate: StepTimes;
  noise_us: number | null;
  within_noise: boolean | null;
}

export interface StepTimes {
  steps: number;
  mean_us: number;
  median_us: number;
  min_us: number;
  max_us: number;
  deviation_us: number | null;
}

export interface Stream {
  stream: number | null;
  device: number;
  events: number;
  busy_us: number;
  busy_percent: number | null;
}

export type SymbolOrigin = 'asked' | 'changed' | 'data';

export interface SymbolicShape {
  compile_id: string;
  symbol: string;
  source: string | null;
  origin: SymbolOrigin;
  value: string | null;
  range: string | null;
  fixed: string | null;
  reason: string | null;
  file: string;
  line: number | null;
}

export interface SymbolicShapes {
  symbols: SymbolicShape[];
  guards: ShapeGuard[];
}

export type TimeKind =
  | 'aten'
  | 'attention'
  | 'communication'
  | 'compiled_graph'
  | 'compiling'
  | 'convolution'
  | 'cpp'
  | 'data_loading'
  | 'eager_operators'
  | 'gemm'
  | 'graph_breaks'
  | 'guards'
  | 'kernel_launches'
  | 'memcpy'
  | 'memset'
  | 'normalization'
  | 'other'
  | 'python'
  | 'triton_foreach'
  | 'triton_other'
  | 'triton_persistent_reduction'
  | 'triton_pointwise'
  | 'triton_reduction'
  | 'triton_split_scan'
  | 'triton_template'
  | 'triton_user'
  | 'unaccounted'
  | 'waiting_for_gpu'
  | 'waiting_for_ranks';

export interface TimelineHits {
  query: string;
  count: number;
  offset: number;
  hits: SliceRef[];
  position: number;
}

export interface TimelineLanes {
  headline: string;
  duration_ns: number;
  extent: number[];
  home: number[];
  steps: StepSpan[];
  lanes: Lane[];
  categories: (Category | SliceKind)[];
  notes: string[];
}

export interface TimelineRange {
  facts: Fact[];
  longest: Longest[];
}

export interface TimelineSlice {
  row: number;
  lane: number;
  name: string;
  color: number;
  start_ns: number;
  dur_ns: number;
  depth: number;
  parent: number | null;
  args_problem: string;
  launch: SliceRef | null;
  kernels: SliceRef[];
  forward: SliceRef | null;
  backward: SliceRef[];
  slice: SliceRef | null;
  compile_id: string | null;
  epoch: number | null;
  kernel: string | null;
  kernel_row: string | null;
  number: number | null;
  of: number | null;
  previous: SliceRef | null;
  following: SliceRef | null;
  user_line: SourceLine | null;
  facts: Fact[];
  related: RelatedSlices[];
  arguments: Fact[];
}

export interface Verdict {
  bound: Bound;
  share_percent: number | null;
  device: number;
  communication_us: number;
}

export interface Version {
  compile_id: string;
  duration_s: number | null;
  calls: number | null;
}

export interface WaitRow {
  rank: number;
  for_rank: number;
  wait_us: number;
}

export type Whose = 'built in' | 'library' | 'operators' | 'yours';

export interface WhyUnknown {
  step: string;
  gpu: string;
  trace: string;
  compile: string;
}

export interface WindowColumn {
  dtype: string;
  offset: number;
  length: number;
}

export interface WindowHeader {
  from: number;
  to: number;
  width: number;
  aligned: number[];
  bucket_ns: number;
  names: string[];
  columns: Record<string, WindowColumn>;
}

export type WorkFrom = 'copy' | 'inductor' | 'shapes';

export interface WorkerRef {
  worker: string;
  rank: number | null;
  has_compile: boolean;
  spans: SpanRef[];
}

export interface AboutLogdir {
  runs: Runs;
  sheets: Sheets;
  all_runs: AllRuns;
}

export interface AboutWorker {
  compile: Compile;
  compile_time: StartUp;
  baseline: BaselineRef;
  exports: Exports;
  compilation: CompilationDetails;
  guards: GuardChecks;
  artifact: string;
}

export interface AboutRun {
  rank_differences: RankDifferences;
  job: JobReport;
  job_map: JobMap;
  rank_findings: RankFindings;
  rank_what_if: Scenario;
}

export interface AboutSpan {
  span: Span;
  overview: Overview;
  timeline: TimelineLanes;
  timeline_window: ArrayBuffer;
  timeline_slice: TimelineSlice;
  timeline_search: TimelineHits;
  timeline_range: TimelineRange;
  eager: EagerTime;
  operators: Operators;
  operators_by_shape: Operators;
  operators_by_call_site: Operators;
  operators_by_label: Operators;
  operators_by_compilation: Operators;
  functions: PythonTime;
  memory: Memory;
  modules: Modules;
  your_code: Program;
  kernels: Kernels;
  kernel: KernelDetails;
  code_kernels: CodeKernels;
  gpu_utilization: GpuUtilization;
  cuda_graphs: CudaGraphReport;
  dynamic_shapes: DynamicShapeReport;
  collectives: Collectives;
  step: StepReport;
  ledger: Ledger;
  what_if: Scenario;
  payback: Payback;
  compilations: CompilationTable;
  recompiles: RecompileReport;
  findings: Findings;
}

export interface AboutSides {
  compare: Comparison;
}

export interface AboutJobs {
  compare_jobs: JobsCompared;
}

export interface Answers extends AboutLogdir, AboutWorker, AboutRun, AboutSpan, AboutSides, AboutJobs {}
