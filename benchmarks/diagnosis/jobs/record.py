"""Times and records the jobs of several ranks: see the package.

python3 -m benchmarks.diagnosis.jobs.record --out /tmp/jobs                  # on a machine with 2 GPUs
python3 -m benchmarks.diagnosis.jobs.record --out /tmp/jobs --cpu --quick    # a check that they run
"""

import argparse
import os
import sys
from functools import partial

from benchmarks.diagnosis import record


def main() -> int:
    options = arguments()
    prepare(options)
    from benchmarks.diagnosis.jobs.catalogue import JOBS  # torch reads the environment when it is imported
    from benchmarks.diagnosis.jobs.twin import JobExam, twins

    backend = "gloo" if options.cpu else "nccl"
    rows = {name: job.described(backend, options.ranks) for name, job in JOBS.items()}
    exam = JobExam(options.out, options.start, options.cpu, options.limit, rows, partial(twins, options))
    return record.run(exam, options)


def arguments() -> argparse.Namespace:
    parser = record.parser_of(__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.set_defaults(batch=3, deadline=400)
    return parser.parse_args()


def prepare(options: argparse.Namespace) -> None:
    """As for programs of one rank; and one thread for each rank, as torchrun does."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if options.cpu:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    record.prepare(options)


if __name__ == "__main__":
    sys.exit(main())
