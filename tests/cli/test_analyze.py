"""``steadytrain analyze``: a story for a person, one document for a program, one line for a mistake."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from scripts import call
from steadytrain.cli.analyze import command
from steadytrain.core.errors import UsageError


def analyze(*arguments: str | Path, status: int = 0) -> str:
    result = run(*arguments)
    assert result.return_value == status
    return result.stdout


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(
        command, [str(argument) for argument in arguments], catch_exceptions=False, standalone_mode=False
    )


def log(folder: Path, name: str = "run.csv", *, nan_from: int = 10**9, steps: int = 300) -> Path:
    rows = [f"{step},{math.nan if step >= nan_from else 2 + math.exp(-step / 100)}" for step in range(1, steps + 1)]
    path = folder / name
    path.write_text("\n".join(["step,loss", *rows]) + "\n")
    return path


def test_a_healthy_and_a_sick_run_for_a_person(tmp_path: Path) -> None:
    shown = analyze(log(tmp_path, "good.csv"), log(tmp_path, "bad.csv", nan_from=250))
    lines = shown.splitlines()
    assert lines[0] == "good.csv"
    assert lines[1].startswith("  healthy: ")
    assert lines[lines.index("  300 steps, csv") + 1].startswith("  loss █")
    assert lines[lines.index("bad.csv") + 1].startswith("  sick: ")
    assert "✗ 51 not finite" in " ".join(shown.split())
    assert any(line.startswith("  critical, steps 250 to 300: ") for line in lines)
    assert "    nonfinite-loss: The loss of a step is NaN or Inf." in lines
    assert "2 runs: 1 healthy, 1 sick" in lines
    assert lines[-1].startswith("next  ")
    assert lines[-1].endswith(" explain nonfinite-loss  # causes, and what to do")
    assert not any(line != line.rstrip() for line in lines)


def test_a_note_is_in_the_headline_and_told_in_a_sentence(tmp_path: Path) -> None:
    losses = [2.6 - 0.068 * min(step, 22) + 0.027 * max(step - 34, 0) for step in range(60)]
    rows = [f"{step},{2 * math.exp(-step / 15)},{loss}" for step, loss in enumerate(losses)]
    path = tmp_path / "run.csv"
    path.write_text("\n".join(["epoch,train_loss,val_loss", *rows]) + "\n")
    shown = analyze(path)
    assert shown.splitlines()[1].startswith("  healthy, 1 note: ")
    told = " ".join(shown.split())
    assert re.search(r"note validation-gap, steps (\d+) to 59: val_loss rises since step \1", told)
    assert "; there are no " not in told
    assert shown.splitlines()[-1].endswith(" explain validation-gap  # causes, and what to do")


def test_a_hidden_nan_is_called_by_its_name(tmp_path: Path) -> None:
    rows = [f"{{'loss': {0.0 if s > 250 else 2.5}, 'grad_norm': {'nan' if s > 250 else 1.5}}}" for s in range(1, 301)]
    path = tmp_path / "train.log"
    path.write_text("\n".join(rows) + "\n")
    shown = " ".join(analyze(path).split())
    assert "sick: nonfinite-loss and nonfinite-gradient from step 251" in shown
    assert "The loss reads 0.0 from step 251 to 300 while the gradient norm is not finite: a hidden NaN." in shown


def test_of_many_runs_the_quiet_ones_take_a_line_each_and_stand_before_the_others(tmp_path: Path) -> None:
    for number in range(9):
        log(tmp_path, f"{number}.csv", nan_from=250 if number in (2, 5) else 10**9)
    lines = analyze(tmp_path).splitlines()
    assert lines[:7] == [f"healthy  {number}.csv  300 steps" for number in (0, 1, 3, 4, 6, 7, 8)]
    assert lines[8:10] == ["2.csv", "  sick: nonfinite-loss from step 250"]
    # What a symptom means is told once.
    assert sum(line.startswith("    nonfinite-loss: ") for line in lines) == 1
    assert [line for line in lines[-4:] if line][:-1] == ["9 runs: 7 healthy, 2 sick"]
    assert lines[-1].endswith(" explain nonfinite-loss  # causes, and what to do")


def test_of_many_stories_the_critical_are_shown_and_the_others_counted(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    spikes, nan = range(1000, 4000, 250), 3900
    loss = dict.fromkeys(spikes, 9.0) | {nan: math.nan}
    rows = (
        f"{step},{loss.get(step, 2 + 2 * math.exp(-step / 2000) + 0.02 * math.sin(7 * step))}" for step in range(4000)
    )
    path.write_text("\n".join(["step,loss", *rows]))
    lines = analyze(path).splitlines()
    shown = [line.split(":")[0] for line in lines if line.startswith(("  warning, ", "  critical, "))]
    assert shown == [*(f"  warning, step {step}" for step in [*spikes][:7]), "  critical, step 3900"]
    assert "  and more stories: 5 warning (--json has all)" in lines


def test_steps_are_written_as_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = (f"{1_000_000 + 1000 * row},{'nan' if row >= 250 else 2.0 + math.exp(-row / 100)}" for row in range(300))
    path.write_text("\n".join(["step,loss", *rows]))
    shown = " ".join(analyze(path).split())
    assert " 300 steps (1000000 to 1299000), csv " in shown
    assert " critical, steps 1250000 to 1299000: The loss is NaN from step 1250000 to 1299000." in shown


def test_the_document(tmp_path: Path) -> None:
    path = log(tmp_path, nan_from=250)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    document = json.loads(analyze(path, "--json"), parse_constant=refuse)
    assert document["schema"] == "steadytrain.symptoms/1"
    (entry,) = document["runs"]
    found = {name: entry[name] for name in ("run", "path", "kind", "steps", "first_step", "last_step", "health")}
    assert found == {
        "run": "run.csv",
        "path": str(path),
        "kind": "csv",
        "steps": 300,
        "first_step": 1,
        "last_step": 300,
        "health": "sick",
    }
    (symptom,) = [symptom for symptom in entry["symptoms"] if symptom["name"] == "nonfinite-loss"]
    assert (symptom["severity"], symptom["first_step"], symptom["last_step"]) == ("critical", 250, 300)
    assert symptom["signals"] == ["loss"]
    assert symptom["explanation"] == "The loss of a step is NaN or Inf."
    assert "nonfinite-loss" in entry["looked"]


def test_every_field_of_the_document_is_described(tmp_path: Path) -> None:
    described = (Path(__file__).parents[2] / "docs" / "schemas.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`(?:\w+\[\]\.)*(\w+)`", described))
    document = json.loads(analyze(log(tmp_path, nan_from=250), "--json"))
    (entry,) = document["runs"]
    (symptom,) = [symptom for symptom in entry["symptoms"] if symptom["name"] == "nonfinite-loss"]
    assert {*document, *entry, *symptom} <= names


def risen(folder: Path) -> Path:
    rows = [f"{step},{(2 + math.exp(-step / 100)) * (5 if step > 200 else 1)}" for step in range(10, 301, 10)]
    path = folder / "risen.csv"
    path.write_text("\n".join(["step,loss", *rows]) + "\n")
    return path


def test_a_healthy_log_beside_a_sick_one(tmp_path: Path) -> None:
    shown = analyze(risen(tmp_path), "--compare", log(tmp_path, "good.csv"))
    assert "beside good.csv, at the same steps:" in shown
    assert "loss: differs from step 210 to the end" in shown
    row = next(line.split() for line in shown.splitlines() if line.split()[:1] == ["300"])
    assert row[3].startswith("5")


def test_the_reference_in_the_document(tmp_path: Path) -> None:
    good = log(tmp_path, "good.csv")
    same, other = json.loads(analyze(good, risen(tmp_path), "--compare", good, "--json"))["runs"]
    assert same["reference"]["signals"][0]["differs_from_step"] is None
    beside = other["reference"]
    assert (beside["run"], beside["aligned"]) == ("good.csv", "steps")
    assert beside["signals"][0]["differs_from_step"] == 210
    assert len(beside["signals"][0]["points"]) == 12
    assert beside["signals"][0]["points"][-1]["value"] > 4 * beside["signals"][0]["points"][-1]["reference"]


def test_logs_of_other_steps_are_compared_by_their_place(tmp_path: Path) -> None:
    good, excerpt = log(tmp_path, "good.csv"), tmp_path / "excerpt.csv"
    excerpt.write_text("step,loss\n" + "".join(f"{step},2.5\n" for step in range(9000, 9040)))
    (entry,) = json.loads(analyze(excerpt, "--compare", good, "--json"))["runs"]
    assert entry["reference"]["aligned"] == "rows"
    assert all(point["reference"] is not None for point in entry["reference"]["signals"][0]["points"])


def test_a_reference_that_cannot_be_read_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no\.csv"):
        run(log(tmp_path), "--compare", tmp_path / "no.csv")


def test_pages(tmp_path: Path) -> None:
    one = tmp_path / "one.html"
    assert str(one) in analyze(log(tmp_path, nan_from=250), "--html", one)
    page = one.read_text(encoding="utf-8")
    assert "Run run.csv" in page
    assert "nonfinite-loss" in page
    assert "<svg" in page
    log(tmp_path, "b.csv")
    analyze(tmp_path, "--html", tmp_path / "all.html")
    assert sorted(path.name for path in tmp_path.glob("all*")) == ["all-1-b.csv.html", "all-2-run.csv.html"]


def test_health_changes_the_status_only_when_asked(tmp_path: Path) -> None:
    sick, well = log(tmp_path, "sick.csv", nan_from=250), log(tmp_path, "well.csv")
    analyze(sick)
    analyze(sick, well, "--fail-on", "warning", status=1)
    analyze(sick, "--fail-on", "critical", status=1)
    analyze(well, "--fail-on", "warning")


def test_what_could_not_be_read_beside_what_could(tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    result = run(empty, log(tmp_path), "--json")
    assert result.return_value == 0
    document = json.loads(result.stdout)
    assert len(document["runs"]) == 1
    assert document["unreadable"] == [f"{empty}: the file is empty"]
    assert result.stderr == f"steadytrain: not read: {empty}: the file is empty\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["empty.csv"], "empty.csv: the file is empty"),
        (["binary"], "binary: a binary file"),
        (["nowhere.csv"], "nowhere.csv: no such file or folder"),
        (["."], r"the file is empty \(and 1 more"),
        (["two.csv"], "two.csv: 2 columns look equally like the training loss"),
        (["two.csv", "--loss", "los"], r"two.csv: --loss 'los': no such column .* did you mean"),
        (["two.csv", "--loss", "loss", "--html", "."], r"\.: this is a folder; name a file with -o FILE\.html"),
        (["two.csv", "--loss", "loss", "--html", "no/x.html"], "no such folder to write x.html into"),
    ],
)
def test_one_line_where_nothing_could_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.csv").write_text("")
    Path("binary").write_bytes(bytes(range(256)))
    Path("two.csv").write_text("step,loss,train_loss\n1,2,3\n2,3,4\n")
    with pytest.raises(UsageError, match=said) as raised:
        run(*arguments)
    assert len(str(raised.value).splitlines()) == 1


def test_escape_sequences_of_a_log_do_not_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "\x1b[31mevil.csv"
    path.write_text('step,loss,"\x1b]0;x"\n1,2,3\n2,1,4\n')
    assert "\x1b" not in analyze(path)
    with pytest.raises(UsageError) as raised:
        run(path, "--loss", "acc\x1b[2J")
    assert "\x1b" not in str(raised.value)


@pytest.mark.parametrize(
    ("to", "statuses", "said"),
    [
        ("| head -1", "0 1", []),  # 1 is what click ends with at a closed pipe
        ("| true", "0 1", []),
        (">&-", "0", []),
        ("> /dev/full", "2", ["steadytrain: the output cannot be written (No space left on device)"]),
    ],
)
def test_an_output_that_nobody_reads_or_that_is_full(tmp_path: Path, to: str, statuses: str, said: list[str]) -> None:
    for number in range(40):  # more than a pipe holds
        log(tmp_path, f"{number}.csv", nan_from=250)
    line = f"{sys.executable} -m steadytrain analyze {tmp_path} --json {to}; echo ${{PIPESTATUS[0]}} >&2"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    *told, status = done.stderr.splitlines()
    assert told == said
    assert status in statuses.split()


def test_an_interrupt_ends_it_without_a_traceback(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text("step,loss\n" + "".join(f"{step},2.5\n" for step in range(1_000_000)))
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from steadytrain.api import log_analysis\n"
        "from steadytrain.cli.main import entry\n"
        "read = log_analysis.find_logs\n"
        "def interrupted(*arguments, **more):\n"
        "    signal.setitimer(signal.ITIMER_REAL, 0.05); return read(*arguments, **more)\n"
        "signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))\n"
        "log_analysis.find_logs = interrupted\n"
        f"sys.argv = ['steadytrain', 'analyze', {str(path)!r}]\n"
        "entry()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert (done.stdout, done.stderr.strip()) == ("", "")


def test_the_command_line_as_a_whole_without_torch(tmp_path: Path) -> None:
    path = log(tmp_path, nan_from=250)
    code = (
        "import sys; sys.modules['torch'] = None; from steadytrain.cli.main import entry\n"
        f"sys.argv = ['steadytrain', 'analyze', {str(path)!r}, '--fail-on', 'critical']\n"
        "entry()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "nonfinite-loss" in done.stdout
    done = call("analyze", str(tmp_path / "none"))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"steadytrain: {tmp_path}/none: no such file or folder\n"
