"""Broken policy files: each has to end with one line on stderr and status 2, before the script's first line runs.

Files whose content is text say in their head what the message must name (``# MUST NAME: a|b``). Those that cannot
(empty, binary, huge, a folder, a missing file) are made here.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent / "bad_policies"
SECONDS_MAX = 60.0


def made(folder: Path) -> list[tuple[Path, str]]:
    """Those that cannot carry a comment, with what the message must name: the file's own name, and a reason."""
    (folder / "empty.toml").write_bytes(b"")
    (folder / "binary.toml").write_bytes(bytes(range(256)) * 8)
    (folder / "latin1.toml").write_bytes(b'policy = "st\xe9ady"\n')
    (folder / "huge.toml").write_text('policy = "steady"\n' + "# x\n" * 8_000_000, encoding="utf-8")
    (folder / "folder.toml").mkdir()
    names = ("empty", "binary", "latin1", "huge", "folder", "missing")
    return [(folder / f"{name}.toml", rf"{name}\.toml") for name in names]


def faults(policy: Path, must_name: str, folder: Path) -> list[str]:
    """What is wrong with the answer to this policy file; empty: nothing."""
    script, mark = folder / "script.py", folder / "it_ran"
    mark.unlink(missing_ok=True)
    script.write_text(f"open({str(mark)!r}, 'w').close()\n", encoding="utf-8")
    runs = ["--runs-dir", str(folder / "runs"), "--to", "none"]
    command = [sys.executable, "-m", "steadytrain", "run", "--policy", str(policy), *runs, str(script)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, cwd=folder)
    except subprocess.TimeoutExpired:
        return [f"not over after {SECONDS_MAX:.0f} s"]
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    wrong = []
    if done.returncode != 2:
        wrong.append(f"status {done.returncode}, not 2")
    if mark.exists():
        wrong.append("the script ran")
    if len(lines) != 1:
        wrong.append(f"{len(lines)} lines on stderr, not 1")
    if "Traceback" in done.stderr:
        wrong.append("a traceback")
    if not re.search(must_name, done.stderr):
        wrong.append(f"does not name {must_name}: {done.stderr.strip()[-160:]!r}")
    return wrong


def main() -> None:
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases = []
        for path in sorted(FOLDER.glob("*.toml")):
            head = re.search(r"# MUST NAME: (.+)", path.read_text(encoding="utf-8"))
            assert head is not None, path
            cases.append((path, head.group(1).strip()))
        cases += made(folder)
        for policy, must_name in cases:
            given = policy
            if policy.parent == FOLDER:  # under a name that says nothing: a message that repeats it names nothing
                given = folder / "case.toml"
                given.write_bytes(policy.read_bytes())
            wrong = faults(given, must_name, folder)
            bad += bool(wrong)
            print(f"{policy.name:32} {'; '.join(wrong) or 'good'}", flush=True)
    print(f"{len(cases) - bad} of {len(cases)} good")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
