"""`python -m benchmarks.reliability mutants|kills|cycles`: run thousands of attacks, and print what they broke.

mutants: changed traces, logs, summaries and digests, through all readers and analyses, and through every route. kills:
readers and writers ended by SIGKILL at random moments; each file is complete or absent afterwards. cycles: cycles of
the handler under a real torch, and the memory of the process. The exit status is 1 if something broke.
"""

from __future__ import annotations

import argparse
import sys
import time


def main() -> int:
    """Run one kind of attack."""
    options = _options()
    begun = time.monotonic()
    if options.attack == "cycles":
        from benchmarks.reliability.cycles import (
            run as run_cycles,
        )  # loads torch, which the others do not need

        broken = run_cycles(options.count, stock=options.stock)
    elif options.attack == "kills":
        from benchmarks.reliability.kills import run as run_kills

        broken = run_kills(options.count, options.seed)
    else:
        from benchmarks.reliability.mutants import run as run_mutants

        broken = run_mutants(options.kinds, options.count, options.seed, options.minutes)
    print(f"{time.monotonic() - begun:.0f} s, {broken} broken", flush=True)
    return 1 if broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability", description=__doc__)
    attacks = parser.add_subparsers(dest="attack", required=True)
    mutants = attacks.add_parser("mutants")
    mutants.add_argument("kinds", nargs="*", help="traces, events, logs, summaries, digests, routes; all")
    mutants.add_argument("--count", type=int, default=20_000, help="of each kind; routes: a hundredth of it")
    mutants.add_argument("--minutes", type=float, default=1e9, help="for each kind at most")
    kills = attacks.add_parser("kills")
    kills.add_argument("--count", type=int, default=400, help="of each of cache, index and handler")
    for attack in (mutants, kills):
        attack.add_argument("--seed", type=int, default=1)
    cycles = attacks.add_parser("cycles")
    cycles.add_argument("--count", type=int, default=10_000)
    cycles.add_argument("--stock", action="store_true", help="torch's own handler, to compare with")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
