/** What a recording may lack, and the exact lines that record it. */

const SCHEDULE = 'schedule=torch.profiler.schedule(wait=1, warmup=2, active=3)';
const HANDLER = `from tb_torchcompile_plugin import tensorboard_trace_handler

with torch.profiler.profile(
    ${SCHEDULE},
    on_trace_ready=tensorboard_trace_handler("runs/my_run"),
) as prof:
    for batch in loader:
        train_step(batch)   # runs the compiled model
        prof.step()`;
const TRACE_LOG = 'TORCH_TRACE=runs/my_run python train.py';
export const GPU_ACTIVITY = 'activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]';
export const RANKS = 'tensorboard_trace_handler("runs/my_run", worker_name=f"rank{dist.get_rank()}")';

/** What is missing; then what to do, and the code for it. */
type Lack = [title: string, ...steps: string[]];

export const LACKS = {
  logdir: [
    'No trace and no compile log in this logdir yet',
    'Profile a few steps of your program with the trace handler of this plugin. Create it before the first call to the compiled model, and open TensorBoard on “runs”. New files appear when you press TensorBoard’s reload button:',
    HANDLER,
    'Without changes to the program, torch’s compile log shows compilations, graph breaks and recompiles:',
    TRACE_LOG,
  ],
  trace: [
    'This worker has compile data, but no trace.',
    'Steps, kernels and GPU time come from a profile. Record one into the same folder:',
    HANDLER,
  ],
  compile: [
    'This worker has a trace, but no compile data.',
    'To record compilations, graph breaks and recompiles, import the trace handler from this plugin instead of torch:',
    'from tb_torchcompile_plugin import tensorboard_trace_handler',
    'Or let torch write its compile log into the folder of the trace:',
    TRACE_LOG,
  ],
  compilations: [
    'Nothing was compiled while this process was recorded.',
    'Call the model through torch.compile, and create the trace handler before its first call:',
    'model = torch.compile(model)',
  ],
  artifacts: [
    'No graphs and no code were recorded for this compilation.',
    'It was compiled before recording began, loaded from a cache, or failed before it had a graph. Create the trace handler before the first call to the compiled model.',
  ],
  summary: [
    'No graphs, guards and code were stored: this run was recorded with capture="summary".',
    'Times, counts and cache results are complete. To record graphs and code, use the default:',
    'tensorboard_trace_handler("runs/my_run", capture="full")',
  ],
  steps: [
    'No steps were marked: the whole span is shown as one window.',
    'Pass a schedule to the profiler, and mark the end of each step:',
    `${SCHEDULE}\nprof.step()`,
  ],
  cpu_kernels: [
    'C++ kernels have no names in this trace.',
    'Set this before compiling. It is part of the cache key, so the next run compiles again:',
    'TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1 python train.py',
  ],
  gpu: [
    'This trace has no kernels: it was recorded on the CPU.',
    'On a machine with a GPU, let the profiler record its activity:',
    GPU_ACTIVITY,
  ],
} satisfies Record<string, Lack>;
