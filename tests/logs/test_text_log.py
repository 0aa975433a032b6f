"""What scripts print: the shapes of the field, in order of how often they are met."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from reading import loss_at, metric, read, read_one, signal, text

from steadytrain.core.errors import UsageError
from steadytrain.logs.formats.text_log import _Shapes

STEPS = range(10, 510, 10)
EXPECTED = {step: loss_at(step) for step in STEPS}

ONE_LINE_A_STEP = {
    "pipes": "step {step} | loss {loss} | lr 1.0e-04 | norm 0.5 | dt 123.4ms | tok/s 123,456",
    "nanogpt": "iter {step}: loss {loss}, time 12.34ms, mfu 3.40%",
    "modded-nanogpt": "step:{step}/2000 train_loss:{loss} train_time:1234ms step_avg:99.10ms",
    "equals": "step={step} loss={loss} lr=0.0001",
    "sentence": "2024-05-01 10:00:00,123 - INFO - __main__ - Step {step}: train loss = {loss}, grad norm = 0.5",
    "brackets": "[2024-05-01 10:00:00] [rank 0] [step {step}/2000] loss: {loss} (2.9999)",
    "megatron": " iteration {step:8d}/    2000 | consumed samples: 2560 | elapsed time per iteration (ms): 2345.6 | "
    "learning rate: 3.000E-04 | global batch size: 256 | lm loss: {loss} | loss scale: 65536.0 | grad norm: 0.5 | "
    "number of skipped iterations:   0 | number of nan iterations:   0 |",
    "torchtitan": "\x1b[36m[rank0]:[titan] 2025-03-01 10:00:00,123 - root - INFO - \x1b[31mstep: {step:2}  "
    "\x1b[32mloss: {loss}  \x1b[35mgrad_norm: 0.5  \x1b[33mmemory: 12.34GiB(12.34%)  \x1b[34mtps: 1,234\x1b[39m",
    "dictionary": "{{'step': {step}, 'loss': {loss}, 'grad_norm': 0.5}}",
    "fairseq": '2021-05-01 | INFO | train_inner | {{"epoch": 1, "update": 0.01, "loss": "{loss}", "ppl": "9.1", '
    '"wps": "1,234", "num_updates": "{step}", "lr": "0.0005", "gnorm": "0.5", "loss_scale": "16"}}',
    "tensor": "step {step} loss: tensor({loss}, device='cuda:0', grad_fn=<NllLossBackward0>)",
    "tqdm": "\r 10%|##        | {step}/2000 [00:12<01:45, 4.20it/s, loss={loss}]",
}


@pytest.mark.parametrize("shape", ONE_LINE_A_STEP.values(), ids=ONE_LINE_A_STEP)
def test_a_line_a_step(tmp_path: Path, shape: str) -> None:
    lines = (shape.format(step=step, loss=loss_at(step)) for step in STEPS)
    log = read_one(text(tmp_path, "train.log", "Setting up\nmodel with 10.65M parameters\n" + "\n".join(lines) + "\n"))
    assert log.kind == "text"
    assert signal(log, "loss") == EXPECTED
    norm = signal(log, "gradient_norm")
    if "norm" in shape:
        assert set(norm.values()) == {0.5}
    if "2000" in shape and "tqdm" not in shape and "%|" not in shape:
        assert log.window.facts == {"planned_steps": 2000.0}


def test_units_of_time(tmp_path: Path) -> None:
    lines = ["step 1 loss 2.0 time 250ms", "step 2 loss 2.0 time 0.5 s"]
    assert signal(read_one(text(tmp_path, "a.log", "\n".join(lines))), "step_s") == {1: 0.25, 2: 0.5}


def test_nan_between_words(tmp_path: Path) -> None:
    lines = [
        f"step {step} loss {'nan' if step > 5 else 2.5} grad_norm {'inf' if step > 4 else 1} lr 0.1"
        for step in range(1, 9)
    ]
    log = read_one(text(tmp_path, "a.log", "\n".join(lines)))
    loss = signal(log, "loss")
    assert [math.isnan(loss[step]) for step in range(1, 9)] == [False] * 5 + [True] * 3
    assert signal(log, "gradient_norm")[5] == math.inf
    assert set(signal(log, "learning_rate").values()) == {0.1}


def test_evaluations_are_metrics(tmp_path: Path) -> None:
    lines = []
    for step in STEPS:
        if step % 100 == 0:
            lines.append(f"step {step}: train loss 9.0, val loss {loss_at(step)}")
        lines.append(f"iter {step}: loss {loss_at(step)}, time 12.34ms")
    log = read_one(text(tmp_path, "nano.log", "\n".join(lines)))
    assert signal(log, "loss") == EXPECTED
    assert metric(log, "val loss") == {step: loss_at(step) for step in range(100, 501, 100)}


def hf_console(*, refreshed: bool) -> str:
    """The console of HF's Trainer: tqdm's bar lags, is wiped for the row, and drawn again behind it."""
    parts = ["\r  0%|          | 0/500 [00:00<?, ?it/s]"]
    for step in STEPS:
        parts.append(f"\r 10%|#         | {step - 3}/500 [00:05<04:05,  2.00it/s]")
        bad = step > 400
        row = f"'loss': {0.0 if bad else loss_at(step)}, 'grad_norm': {'nan' if bad else 0.5}, 'learning_rate': 1e-05"
        parts.append(f"\r          \r\n{{{row}, 'epoch': {step / 100}}}\n")
        if refreshed:
            parts.append(f"\r 10%|#         | {step}/500 [00:05<04:05,  2.00it/s]")
        if step % 100 == 0:
            parts += [f"\r 10%|#  | {batch}/13 [00:00<00:00, 10it/s]\x1b[A" for batch in range(14)]
            parts.append(f"\n{{'eval_loss': {loss_at(step)}, 'eval_runtime': 1.2, 'epoch': {step / 100}}}\n")
    return "".join(parts) + "{'train_runtime': 12.3, 'train_loss': 2.2, 'epoch': 5.0}\n"


def test_the_trainer_s_console_with_its_progress_bar(tmp_path: Path) -> None:
    log = read_one(text(tmp_path, "out.log", hf_console(refreshed=True)))
    loss, norm = signal(log, "loss"), signal(log, "gradient_norm")
    assert list(loss) == list(STEPS)
    assert loss[400] == loss_at(400)
    # The NaN that the Trainer hides behind 0.0 is left for the detectors to see.
    assert loss[410] == 0.0
    assert math.isnan(norm[410])
    assert metric(log, "eval_loss") == {step: loss_at(step) for step in range(100, 501, 100)}
    assert log.notes == ("The steps are those of the progress bar.",)


def test_the_trainer_s_console_without_steps(tmp_path: Path) -> None:
    lines = (f"{{'loss': '{loss_at(step)}', 'grad_norm': '0.5', 'epoch': '{step / 100}'}}" for step in STEPS)
    log = read_one(text(tmp_path, "out.log", "\n".join(lines)))
    assert signal(log, "loss") == {place: loss_at(step) for place, step in enumerate(STEPS, start=1)}
    assert "no steps" in log.notes[0]


@pytest.mark.parametrize(
    "shape",
    [
        "Epoch: [{epoch}][{batch:3d}/500]\tTime  0.123 ( 0.130)\tLoss {loss} (3.1)\tAcc@1  10.9 ( 12.0)",
        "Epoch [{epoch}/3], Step [{batch}/500], Loss: {loss}",
        "Train Epoch: {epoch} [{batch}/500 (20%)]\tLoss: {loss}",
        "2023-01-01 10:00:00,123 - mmdet - INFO - Epoch [{epoch}][{batch}/500]\tlr: 1.9e-03, eta: 1 day, 0:00:00, "
        "time: 0.512, memory: 3000, loss_cls: 1.0, loss: {loss}",
        "\rEpoch {epoch}:  10%|#         | {batch}/500 [00:12<00:10, 4.20it/s, v_num=0, train_loss={loss}]",
    ],
    ids=["imagenet", "tutorial", "mnist", "mmdet", "lightning"],
)
def test_steps_within_epochs(tmp_path: Path, shape: str) -> None:
    lines = [
        shape.format(epoch=epoch, batch=batch, loss=loss_at(500 * epoch + batch - 500))
        for epoch in (1, 2, 3)
        for batch in range(10, 501, 10)
    ]
    log = read_one(text(tmp_path, "train.log", "\n".join(lines)))
    assert signal(log, "loss") == {step: loss_at(step) for step in range(10, 1501, 10)}
    assert not len(log.window.resumed)


def test_keras_bars_under_headings(tmp_path: Path) -> None:
    parts = []
    for epoch in (1, 2, 3):
        parts.append(f"Epoch {epoch}/3\n")
        parts += [
            f"\r {batch:3d}/100 [==>...........] - ETA: 3s - loss: {loss_at(100 * epoch + batch - 100)} - accuracy: 0.1"
            for batch in range(1, 101)
        ]
        parts.append(f" - val_loss: {epoch}.5\n")
    log = read_one(text(tmp_path, "fit.log", "".join(parts)))
    assert signal(log, "loss") == {step: loss_at(step) for step in range(1, 301)}
    assert list(metric(log, "val_loss").values()) == [1.5, 2.5, 3.5]


def test_megatron_says_which_iterations_were_skipped(tmp_path: Path) -> None:
    shape = ONE_LINE_A_STEP["megatron"].replace("skipped iterations:   0", "skipped iterations:   {skipped}")
    lines = (shape.format(step=step, loss=2.5, skipped=int(step == 30)) for step in STEPS)
    window = read_one(text(tmp_path, "a.log", "\n".join(lines))).window
    assert window.steps[window.skipped].tolist() == [30]
    assert window.signals["step_s"][0] == pytest.approx(2.3456)
    assert window.signals["loss_scale"][0] == 65536.0


def test_a_name_that_the_user_gives(tmp_path: Path) -> None:
    lines = [f"t {step} objective {loss_at(step)} loss 1.0" for step in STEPS]
    log = read_one(text(tmp_path, "a.log", "\n".join(lines)), loss="objective", step="t")
    assert signal(log, "loss") == EXPECTED


def test_other_encodings(tmp_path: Path) -> None:
    content = "\n".join(f"step {step} löss loss {loss_at(step)}" for step in STEPS)
    for encoding in ("utf-16", "utf-8-sig", "latin-1"):
        path = tmp_path / f"{encoding}.log"
        path.write_bytes(content.encode(encoding))
        assert signal(read_one(path), "loss") == EXPECTED


@pytest.mark.parametrize("content", ["hello world\n" * 100, "nothing lost here\n", "loss of signal\n", "x" * 100_000])
def test_text_without_a_loss(tmp_path: Path, content: str) -> None:
    with pytest.raises(UsageError, match="no line of it has a loss and its number"):
        read(text(tmp_path, "a.log", content))


def test_lines_of_one_shape_read_as_they_would_alone(tmp_path: Path) -> None:
    """What a line means is worked out once for all lines that differ in numbers alone; each line alone is the truth."""
    numbers = [
        "1",
        "2.5",
        "-0.5",
        "+3",
        "1e-05",
        "1,234",
        "1,234.5",
        "12:30",
        "1.2.3",
        "3.",
        ".5",
        "7/9",
        "0x1f",
        "nan",
        "5-6",
    ]
    shapes = [
        "step 7 loss {} lr 0.1",
        "step {}/90: loss=2 (x {})",
        "[{}] step 8 | train_loss:{} top5 {}ms",
        "epoch {} loss: {}",
    ]
    for shape in shapes:
        lines = [shape.replace("{}", "{0}").format(number) for number in numbers]
        together = text(tmp_path, "all.log", "\n".join(lines))
        rows = [row for line in lines if (row := _Shapes(frozenset()).row(line)) is not None]
        shared = _Shapes(frozenset())
        found = [row for line in together.read_text().split("\n") if (row := shared.row(line)) is not None]
        assert str(found) == str(rows)
        assert rows
