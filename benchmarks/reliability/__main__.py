"""`python -m benchmarks.reliability mutants|kills|cycles|steady`: run thousands of attacks, and print what they broke.

mutants: changed files of all kinds, through all readers and analyses, and changed requests to every route. kills:
readers and writers ended by SIGKILL at random moments; each file is complete or absent afterwards. cycles: cycles of
the handler under a real torch, and the memory of the process. steady: steps between two recordings, as many as eight
hours have. The exit status is 1 if something broke. `make soak` runs all of them.
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
        from benchmarks.reliability.cycles import run as run_cycles  # loads torch

        broken = run_cycles(options.count, stock=options.stock)
    elif options.attack == "steady":
        from benchmarks.reliability.cycles import run_steady

        broken = run_steady(options.steps)
    elif options.attack == "kills":
        from benchmarks.reliability.kills import run as run_kills

        broken = run_kills(options.subjects, options.count, options.seed)
    else:
        from benchmarks.reliability.mutants import run as run_mutants

        broken = run_mutants(options.kinds, options.count, options.seed, options.minutes)
    print(f"{time.monotonic() - begun:.0f} s, {broken} broken", flush=True)
    return 1 if broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability", description=__doc__)
    attacks = parser.add_subparsers(dest="attack", required=True)
    mutants = attacks.add_parser("mutants")
    mutants.add_argument("kinds", nargs="*", help="such as traces, log_texts or requests; all")
    mutants.add_argument("--count", type=int, default=100_000, help="of all kinds together")
    mutants.add_argument("--minutes", type=float, default=1e9, help="for each kind at most")
    kills = attacks.add_parser("kills")
    kills.add_argument("subjects", nargs="*", help="cache, index, handler; all")
    kills.add_argument("--count", type=int, default=334, help="of each")
    for attack in (mutants, kills):
        attack.add_argument("--seed", type=int, default=1)
    cycles = attacks.add_parser("cycles")
    cycles.add_argument("--count", type=int, default=10_000)
    cycles.add_argument("--stock", action="store_true", help="torch's own handler, to compare with")
    attacks.add_parser("steady").add_argument("--steps", type=int, default=2_880_000)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
