"""CSV and other delimited tables, as scripts, spreadsheets and Lightning write them."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
from reading import loss_at, metric, read, read_one, signal, text

from steadytrain.core.errors import UsageError
from steadytrain.logs import Columns, find_logs
from steadytrain.logs import delimited_text as delimited_module

STEPS = range(1, 201)
EXPECTED = {step: loss_at(step) for step in STEPS}


def table(header: str, row: str, separator: str = ",") -> str:
    lines = [header, *(row.format(step=step, loss=loss_at(step)) for step in STEPS)]
    return "\n".join(lines).replace(",", separator) + "\n"


@pytest.mark.parametrize("separator", [",", "\t", ";", "|", " "])
def test_separators(tmp_path: Path, separator: str) -> None:
    log = read_one(text(tmp_path, "log.txt", table("step,loss,lr", "{step},{loss},0.001", separator)))
    assert log.kind == "csv"
    assert signal(log, "loss") == EXPECTED
    assert set(signal(log, "learning_rate").values()) == {0.001}


def test_decimal_commas_between_semicolons(tmp_path: Path) -> None:
    content = table("step;loss", "{step};{loss}").replace(".", ",")
    assert signal(read_one(text(tmp_path, "log.csv", content)), "loss") == EXPECTED


def test_quotes_thousands_separators_and_text_between(tmp_path: Path) -> None:
    content = table('"Step",time of day,"Training Loss"', '"1,{step:03}",2024-01-01 12:00:00,"{loss}"')
    assert signal(read_one(text(tmp_path, "log.csv", content)), "loss") == {
        1000 + s: loss for s, loss in EXPECTED.items()
    }


@pytest.mark.parametrize("ending", ["", "\n", "6,,\n", "6,,"])
def test_empty_cells_nan_and_inf(tmp_path: Path, ending: str) -> None:
    content = "step,loss,grad_norm\n1,1.5,\n2,nan,inf\n3,NaN,-Infinity\n4,,\n5,-inf,2\n" + ending
    log = read_one(text(tmp_path, "log.csv", content))
    loss, norm = signal(log, "loss"), signal(log, "gradient_norm")
    assert math.isnan(loss[2])
    assert math.isnan(loss[3])
    assert loss[5] == -math.inf
    assert 4 not in loss
    assert norm == {2: math.inf, 3: -math.inf, 5: 2.0}


def test_both_ways_to_read_a_block_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = text(
        tmp_path, "log.csv", ",".join("abcd") + ",step,loss\n" + ",,3,,1,2.0\n,nan,,inf,2,\n1,,,,3,4.0\n,,,,4,1\n"
    )
    quick = read_one(path)
    monkeypatch.setattr(delimited_module, "_by_numpy", lambda *arguments: False)
    thorough = read_one(path)
    assert signal(quick, "loss") == signal(thorough, "loss") == {1: 2.0, 3: 4.0, 4: 1.0}
    assert {name: len(series) for name, series in quick.window.metrics.items()} == {
        name: len(series) for name, series in thorough.window.metrics.items()
    }


def test_a_log_in_many_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steadytrain.logs.text_files.BLOCK_BYTES", 100)
    heard: list[int] = []
    path = text(tmp_path, "log.csv", table("step,loss", "{step},{loss}"))
    (log,) = find_logs(path, Columns(), tell=lambda _, done, size: heard.append(done)).logs
    assert signal(log, "loss") == EXPECTED
    assert heard[-1] == path.stat().st_size


def test_a_line_that_was_cut_and_one_of_text(tmp_path: Path) -> None:
    content = table("step,loss,lr", "{step},{loss},0.1") + "201,oops,0.1\n202,2."
    log = read_one(text(tmp_path, "log.csv", content))
    assert signal(log, "loss") == {**EXPECTED, 202: 2.0}
    assert "1 cell of 'loss' with text treated as not logged; the first is 'oops'." in log.notes
    assert "1 line cut short: the missing cells were treated as not logged." in log.notes


def test_a_header_behind_a_comment_and_one_that_is_repeated(tmp_path: Path) -> None:
    lines = table("step,loss", "{step},{loss}").splitlines()
    content = "# step,loss\n" + "\n".join([*lines[1:100], lines[0], *lines[100:]])
    log = read_one(text(tmp_path, "log.csv", content))
    assert signal(log, "loss") == EXPECTED


def test_runs_in_a_column_by_name_and_by_number(tmp_path: Path) -> None:
    named = "run,step,loss\n" + "".join(f"{run},{step},{step}\n" for step in range(1, 20) for run in "ab")
    assert [log.name for log in read(text(tmp_path, "a.csv", named))] == ["a.csv a", "a.csv b"]
    numbered = "seed,step,loss\n" + "".join(f"{seed},{step},{step}\n" for step in range(1, 20) for seed in (0, 7))
    assert [log.name for log in read(text(tmp_path, "b.csv", numbered))] == ["b.csv seed 0", "b.csv seed 7"]


def test_columns_that_the_user_names(tmp_path: Path) -> None:
    path = text(tmp_path, "log.csv", "i,policy_loss,value_loss,g,r\n10,1,2,3,4\n20,1,2,3,4\n")
    log = read_one(path, loss="value_loss", step="i", gradient_norm="g", learning_rate="r")
    assert signal(log, "loss") == {10: 2.0, 20: 2.0}
    assert signal(log, "gradient_norm")[10] == 3.0
    assert signal(log, "learning_rate")[10] == 4.0


def test_of_too_many_columns_the_signals_are_read_and_it_is_told(tmp_path: Path) -> None:
    names = [f"layer_{number}" for number in range(300)]
    content = table(",".join(["step", *names, "loss"]), f"{{step}}{',1' * 300},{{loss}}")
    log = read_one(text(tmp_path, "log.csv", content))
    assert signal(log, "loss") == EXPECTED
    assert log.notes == ("More than 256 columns: 46 of them were left out.",)


def test_what_lightning_wrote(tmp_path: Path) -> None:
    loggers = pytest.importorskip("lightning.pytorch.loggers")
    logger = loggers.CSVLogger(str(tmp_path), name="mine")
    for step in range(9, 500, 10):
        logger.log_metrics({"lr-AdamW": 1e-3}, step=step)
        logger.log_metrics({"train_loss_step": loss_at(step), "epoch": step // 100}, step=step)
        if step % 100 == 99:
            logger.log_metrics({"val_loss": loss_at(step), "epoch": step // 100}, step=step)
            logger.log_metrics({"train_loss_epoch": loss_at(step), "epoch": step // 100}, step=step)
    logger.save()
    log = read_one(tmp_path)
    assert log.name == "version_0/metrics.csv"
    assert signal(log, "loss") == {step: loss_at(step) for step in range(9, 500, 10)}
    assert set(signal(log, "learning_rate").values()) == {1e-3}
    assert metric(log, "val_loss") == {step: loss_at(step) for step in range(99, 500, 100)}


def test_what_tensorboard_exports(tmp_path: Path) -> None:
    content = table("Wall time,Step,Value", "1700000000.5,{step},{loss}")
    assert signal(read_one(text(tmp_path, "run-tag-loss.csv", content)), "loss") == EXPECTED


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("step,loss\n", "there are no numbers in it"),
        ("1,2\n3,4\n", "its first line does not name columns"),
        ("hello\nworld\n", "its first line does not name columns"),
        ("step,accuracy\n1,2\n2,3\n", r"no column looks like a training loss; name it with --loss \(it has: step, acc"),
        ("step,val_loss\n1,2\n2,3\n", "no column looks like a training loss"),
        ("step,loss,train_loss\n1,2,3\n2,3,4\n", "2 columns look equally like"),
    ],
)
def test_bad_files(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        read(text(tmp_path, "log.csv", content))
    assert len(str(raised.value).splitlines()) == 1
    assert "log.csv" in str(raised.value)


def test_a_common_format_needs_nothing_beyond_the_core_install(tmp_path: Path) -> None:
    import subprocess

    path = text(tmp_path, "log.csv", table("step,loss", "{step},{loss}"))
    code = (
        "import sys; from pathlib import Path; from steadytrain.logs import Columns, find_logs; "
        f"find_logs(Path({str(path)!r}), Columns()); "
        "print(sorted({'torch', 'pandas', 'pyarrow', 'tensorboard', 'wandb', 'mlflow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
