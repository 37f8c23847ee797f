"""Run everything that CI runs, part by part: `python -m tests.run [PART …]`.

Each part is a pytest run of its own, two processes wide, since two cores are what the course asks
of a machine. Notebooks are spread by file: the cells of one notebook share a kernel. The last lines
printed are pytest's own, unless something failed.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE_TESTS = ["tests", "--ignore=tests/structure", "--ignore=tests/browser"]
PARTS = {
    "structure": ["tests/structure", "-n", "2"],
    "unit": [*PACKAGE_TESTS, "--ignore=tests/notebooks", "-n", "2"],
    "editions": ["tests/notebooks", "-n", "2"],
    "notebooks": [
        "--nbval",
        "--nbval-current-env",
        "--nbval-cell-timeout=120",
        "--nbval-sanitize-with=tests/notebooks/sanitize.cfg",
        "-n",
        "2",
        "--dist",
        "loadfile",
        "notebooks",
    ],
    "browser": ["tests/browser", "-n", "2", "--dist", "loadfile"],
}
# As `course build` executes them, and so that two notebooks on two cores don't spin for each other.
ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE"}
NOTEBOOK_ENVIRONMENT = {"OMP_NUM_THREADS": "1"}


def run_part(name: str) -> bool:
    """Run one part, say how long it took, and return whether it passed."""
    extra = NOTEBOOK_ENVIRONMENT if name in ("notebooks", "browser", "editions") else {}
    start = time.monotonic()
    print(f"\n== {name} ==", flush=True)
    code = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *PARTS[name]],
        cwd=ROOT,
        env=os.environ | ENVIRONMENT | extra,
        check=False,
    ).returncode
    if name != list(PARTS)[-1] or code:
        word = "passed" if code == 0 else f"failed (pytest's code {code})"
        print(f"== {name} {word} in {time.monotonic() - start:.0f} s ==", flush=True)
    return code == 0


def main(names: list[str]) -> int:
    """Run the parts named (all if none); return 1 if one failed or is unknown."""
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        print(f"There is no part {unknown[0]!r}; there are {', '.join(PARTS)}.", file=sys.stderr)
        return 2
    # A job in the background ignores Ctrl-C, and its children with it; the tests send some.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    failed = [name for name in names or PARTS if not run_part(name)]
    if failed:
        print(f"\nFailed: {', '.join(failed)}", flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
