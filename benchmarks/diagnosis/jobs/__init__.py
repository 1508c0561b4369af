"""Jobs of several ranks: each has one planted cause why the ranks wait, and a mended twin.

    python3 -m benchmarks.diagnosis.jobs.record --out /tmp/jobs                  # 2 GPUs, NCCL
    python3 -m benchmarks.diagnosis.jobs.record --out /tmp/jobs --cpu --quick    # a check that they run: gloo

| job | parallel | late rank | planted | mended |
|---|---|---|---|---|
| `python_late_rank` | DDP | 1 | 18 ms of Python at the start of each step, no stacks | none |
| `python_late_rank_with_stacks` | FSDP2 | 1 | the same, with stacks; the loop reads its loss | none |
| `late_loader` | DDP | 1 | a dataset that tokenizes when it is asked, no workers | tokenized before |
| `lone_recompile` | DDP | 1 | another length in each step, `dynamic=False` | one length |
| `uneven_work` | FSDP2 | 1 | sequences of twice the length | the same length |
| `slow_gpu` | DDP | 1 | another process multiplies matrices on its GPU | none |
| `garbage_on_one_rank` | TP | 0 | `gc.collect()` in each step, many objects | none |
| `sync_on_one_rank` | DDP | 1 | `.item()` for each parameter, four times | none |
| `rotating` | DDP | each in turn | 10 ms of Python on another rank in each step | none |
| `python_late_rank_of_split_layers` | TP | 0 | 18 ms of Python at the start of each step, no stacks | none |
| `tuning_on_one_rank` | DDP | 1 | another length in each step, each kernel tuned by trying | one length |
| `gradients_in_one_bucket` | DDP | none | one bucket beside a longer backward | buckets of 25 MiB |
| `exposed_communication` | DDP | none | one bucket of float32 gradients after the backward | buckets of bfloat16 |
| `healthy_ddp`, `healthy_fsdp2`, `healthy_tp` | | none | nothing | |
| `nccl_loop` | | none | nothing: 30 all-reduces of 64 MiB, their bus bandwidth as `busbw_gb_s` | |

A batch of jobs is built side by side: each twin has its ranks, and each rank a process of its own. Then one twin after
the other is timed without a profiler, and the planted one is recorded, while all others stand still. Written:
`jobs/NAME/rank{r}.*` by the project's own handler, `measured.json`, and each process's output in `logs/`. A step takes
as long as the slowest rank says. A job that fails or hangs is ended, reported and left out.

`job.py` says what a job is; `late.py`, `uneven.py`, `communication.py` and `healthy.py` hold the jobs, `parallel.py`
and `delays.py` what they share; `twin.py` runs all ranks of a job, each in its own process, `record.py` is the runner.
"""
