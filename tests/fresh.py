"""Code in a process of its own: what does an import bring with it?"""

import subprocess
import sys


def in_a_fresh_process(code: str) -> str:
    """Run `code` and return what it prints."""
    command = [sys.executable, "-W", "ignore", "-c", code]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that are loaded after `statement`."""
    code = f"import sys\n{statement}\nprint(*(name for name in sys.modules if '.' not in name))"
    return set(in_a_fresh_process(code).split())
