/** The exact lines that a user needs, where something is missing. */

export const HANDLER = `from tb_torchcompile_plugin import tensorboard_trace_handler

with torch.profiler.profile(
    schedule=torch.profiler.schedule(wait=1, warmup=2, active=3),
    on_trace_ready=tensorboard_trace_handler("runs/my_run"),
) as prof:
    for batch in loader:
        train_step(batch)   # runs the compiled model
        prof.step()`;

export const IMPORT = 'from tb_torchcompile_plugin import tensorboard_trace_handler';
export const TRACE_LOG = 'TORCH_TRACE=runs/my_run python train.py';
export const SCHEDULE = 'schedule=torch.profiler.schedule(wait=1, warmup=2, active=3)';
export const COMPILE = 'model = torch.compile(model)';
export const STEP = 'prof.step()';
export const CPU_NAMES = 'TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE=1 python train.py';
export const GPU_ACTIVITY = 'activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]';
export const CAPTURE_FULL = 'tensorboard_trace_handler("runs/my_run", capture="full")';
export const RANKS = 'tensorboard_trace_handler("runs/my_run", worker_name=f"rank{dist.get_rank()}")';
