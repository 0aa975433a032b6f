"""The first ten minutes of a new user: `docs/first-ten-minutes.md` to its end, every block as written.

    python release/newcomer.py [--page PAGE] [--keep]

In an empty folder, with an empty home, in a new environment: torch from the package index, then the wheel that is built
from this tree. After the install the blocks run in a network namespace without any network, where the system allows
one. Run by ``make newcomer``, with the environment of development, whose libraries read the page. Exit status 0: every
block did what the page shows; 1: one line says which did not.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from check import ROOT, CheckError, call

PAGE = "docs/first-ten-minutes.md"
EXTRAS = "[report,query]"
WITHOUT_NETWORK = ("unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh")
"""A network namespace of its own, in which only loopback is up."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", default=PAGE, help="another page whose blocks begin in an empty folder")
    parser.add_argument("--keep", action="store_true", help="keep the folder")
    parser.add_argument("--inside", metavar="FOLDER", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside:
        return _blocks(ROOT / asked.page, Path(asked.inside))
    folder = Path(tempfile.mkdtemp(prefix="newcomer-"))
    try:
        began = time.monotonic()
        _install(folder)
        print(f"installed, {time.monotonic() - began:.0f} s", flush=True)
        return _run(folder, asked.page)
    except CheckError as error:
        print(f"newcomer: {error}", file=sys.stderr)
        return 1
    finally:
        if not asked.keep:
            shutil.rmtree(folder, ignore_errors=True)


def _install(folder: Path) -> None:
    """The wheel of this tree in a new environment, as the page says."""
    python = f"{folder}/.venv/bin/python"
    pip = (python, "-m", "pip", "install", "--quiet")
    home = {"HOME": str(folder / "home")}
    for name in ("home", "project"):
        (folder / name).mkdir()
    call(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    (wheel,) = folder.glob("*.whl")
    call(sys.executable, "-m", "venv", str(folder / ".venv"))
    call(*pip, "--constraint", str(ROOT / "constraints.txt"), "torch", environment=home)
    call(*pip, f"{wheel}{EXTRAS}", environment=home)


def _run(folder: Path, page: str) -> int:
    line = [sys.executable, __file__, "--page", page, "--inside", str(folder)]
    cut = subprocess.run([*WITHOUT_NETWORK, "true"], capture_output=True, check=False).returncode == 0
    print("the blocks run without a network" if cut else "the blocks run with a network: none can be cut off here")
    environment = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    environment |= {"HOME": str(folder / "home"), "DOC_BINARIES": str(folder / ".venv" / "bin")}
    sys.stdout.flush()
    return subprocess.run([*WITHOUT_NETWORK, *line] if cut else line, env=environment, check=False).returncode


def _blocks(page: Path, folder: Path) -> int:
    """Run the blocks of the page; the first one that fails ends it."""
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "docs")]
    from doc_blocks import blocks
    from doc_running import BlockError, run_page

    began = time.monotonic()
    try:
        for place in run_page(list(blocks(page)), folder / "project"):
            print(f"{place} did what it shows, {time.monotonic() - began:.0f} s", flush=True)
    except BlockError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
