#!/bin/bash
# Record the logs of tests/data/torch_logs: make.sh PYTHON_2_13 PYTHON_2_14 PYTHON_2_15, in a folder with train.py.
# A summary of each run is written next to its log; expected.py makes expected.json of them. Not everything is
# installed everywhere: srun, kubectl, docker compose and a relaying logger are replaced by the prefixes they write.
set -u
old=$1 new=$2 newest=$3
export OMP_NUM_THREADS=1

run() { # NAME TOPICS COMMAND…
  rm -rf "summaries/$1" && mkdir -p logs "summaries/$1"
  TORCH_LOGS=$2 "${@:3}" "summaries/$1" > "logs/$1.log" 2>&1
}
rank() { RANK=$1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 "$old" train.py "$2" 2>&1 | sed -u "s/^/$1: /"; }
both() { rank 0 "$1" & rank 1 "$1" & wait; }
stamped() { "$old" train.py "$1" 2>&1 | while IFS= read -r line; do echo "$(date -u +%Y-%m-%dT%H:%M:%S.%NZ) $line"; done; }
relayed() { "$new" train.py "$1" 2>&1 | grep -v __trace_bytecode | sed -u 's/^/2026-11-28 21:40:01,123 - launcher - INFO - [worker] /'; }
colored() { "$old" train.py "$1" 2>&1 | sed -u "s/^/$(printf '\e[36mtrainer-1  | \e[0m')/; s/\$/$(printf '\r')/"; }
quoted() { echo 'Log:'; echo '> ```'; "$newest" train.py "$1" 2>&1 | sed -u 's/^/>     /'; echo '> ```'; }
inductor() { "$old" train.py "$1" inductor; }

run plain graph_breaks,recompiles,dynamic "$old" train.py
run torchrun graph_breaks,recompiles "$old" -m torch.distributed.run --nproc-per-node 2 --tee 3 train.py
run accelerate graph_breaks,recompiles,guards "$old" -m accelerate.commands.launch --multi_gpu --num_processes 2 \
  --num_machines 1 --mixed_precision no --dynamo_backend no --tee 3 train.py
run srun graph_breaks,recompiles,dynamic both
run kubectl recompiles,dynamic stamped
run relayed +dynamo relayed
run compose graph_breaks,recompiles_verbose,dynamic colored
run quoted graph_breaks,recompiles,dynamic quoted
run inductor graph_breaks,recompiles,guards,perf_hints,dynamic,cudagraphs,schedule,output_code inductor
run dynamo_2_15 dynamo,recompiles_verbose "$newest" train.py

# failed.log.gz is of torch 2.15 in .venv of the working folder, without a summary: TORCH_LOGS=dynamic python fails.py,
#   import torch
#   def bad(gm, ex): raise RuntimeError("backend says no")
#   def f(x): return x.sin()
#   torch._dynamo.config.suppress_errors=True
#   torch.compile(f, backend=bad)(torch.ones(3))
