"""The attack by ways to train: what it compares, and its table. The programs here do not import torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ATTACK = Path(__file__).parents[2] / "benchmarks" / "attack_ways.py"
SAME = "from pathlib import Path\nPath('made.txt').write_text('7')\nprint('digest 7')\nraise SystemExit(3)\n"
TELLS = "import os\nprint('digest', 'STEADYTRAIN_ATTACH' in os.environ)\n"
LEAVES = "import os\nopen('made.txt', 'w').write(str('STEADYTRAIN_ATTACH' in os.environ))\n"


def attack(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ATTACK), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)


def test_status_output_and_files_are_compared_and_the_table_names_what_failed(tmp_path: Path) -> None:
    programs, result = tmp_path / "ways", tmp_path / "result.json"
    programs.mkdir()
    for name, text in (("same", SAME), ("tells", TELLS), ("leaves", LEAVES)):
        (programs / f"{name}.py").write_text(text)
    found = attack(str(programs), "--json", str(result))
    assert found.returncode == 1, found.stderr
    assert "| ways to train | 3 | 1 | leaves, tells |" in found.stdout
    ways = {way["name"]: way for way in json.loads(result.read_text())}
    assert ways["same"]["survived"]
    assert ways["tells"]["note"].startswith("output differs")
    assert ways["leaves"]["note"] == "files differ: made.txt"


def test_the_quick_form_runs_a_fixed_handful(tmp_path: Path) -> None:
    for name in ("dispatch_mode", "other"):
        (tmp_path / f"{name}.py").write_text(SAME)
    found = attack(str(tmp_path), "--quick")
    assert found.returncode == 0, found.stderr
    assert "| ways to train | 1 | 1 | none |" in found.stdout


def test_a_program_gets_its_options_arguments_and_input_and_a_package_runs_as_a_module(tmp_path: Path) -> None:
    asks = "# Interpreter: -b\n# Arguments: --rate 3\n# Input: seven\n"
    shows = "import sys\nprint(sys.flags.bytes_warning, sys.argv[1:], input(), __name__, bool(__package__))\n"
    package = tmp_path / "ways" / "inside"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for path in (package / "__main__.py", tmp_path / "ways" / "alone.py"):
        path.write_text(asks + shows + "sys.exit(sys.argv[1:] != ['--rate', '3'])\n")
    found = attack(str(tmp_path / "ways"))
    assert found.returncode == 0, found.stdout
    assert "| ways to train | 2 | 2 | none |" in found.stdout
