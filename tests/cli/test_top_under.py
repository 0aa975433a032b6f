"""``run --top``: the picture under the output of a process, in the terminal's last lines, gone when the process is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from steadytrain.cli._top_under import draw_under, picture_under
from steadytrain.core.errors import UsageError
from terminals import Terminal

TESTS = Path(__file__).parents[1]
TRAINS = """
import sys, time
from pathlib import Path
from live_runs import LiveRun
from steadytrain.cli._top_under import picture_under

with picture_under(Path(sys.argv[1])):
    run = LiveRun(Path(sys.argv[1]) / "run")
    run.train(10)
    print("output of the script", flush=True)
    sys.stdin.readline()
    {end}
print("after the end", flush=True)
"""


def test_without_a_terminal_the_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with picture_under(tmp_path):
        print("output of the script")
    assert capsys.readouterr() == (
        "output of the script\n",
        "steadytrain: --top needs a terminal that can move its cursor; the run goes on without it\n",
    )


def test_only_run_starts_it(tmp_path: Path) -> None:
    for writer in ("", "12", "0123abcd-12@", "0123abcd-12@x"):
        with pytest.raises(UsageError, match="not a process"):
            draw_under(writer, tmp_path)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("end", ["pass", "os.kill(os.getpid(), 9)"])
def test_the_picture_stands_under_the_output_and_ends_with_the_process(tmp_path: Path, end: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"import os\n{TRAINS.format(end=end)}", encoding="utf-8")
    with Terminal([sys.executable, str(script), str(tmp_path / "runs")], PYTHONPATH=str(TESTS)) as terminal:
        shown = terminal.wait_for("step 10")
        assert "\x1b[1;12r" in shown  # the upper half scrolls
        assert "\x1b[14;1H\x1b[2K" in shown
        assert "output of the script" in shown
        terminal.press("\n")
        terminal.wait_for("\x1b[r")
        if end == "pass":
            assert terminal.wait_for("after the end").index("\x1b[r") < terminal.all.index("after the end")
