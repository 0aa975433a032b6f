"""``steadytrain fix``: what a patched run shows, what ``--write`` does, and the whole way on a real loop."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from scripts import call, run_script
from steadytrain.cli import show
from steadytrain.core.errors import UsageError
from steadytrain.core.model import Symptom
from steadytrain.diagnosis import answer_files
from steadytrain.diagnosis.answer import PatchTried
from steadytrain.experiments.case import Case
from steadytrain.trial_runs import fixing, patched_files
from steadytrain.trial_runs.patched_run import Followed
from trial_cases import finite_case, window

NAN = math.nan


def followed(losses: Sequence[float], **more: object) -> Followed:
    finite = tuple(map(math.isfinite, losses))
    return Followed(tuple(losses), tuple(1.0 for _ in losses), finite, **more)  # type: ignore[arg-type]


def nonfinite_case() -> Case:
    symptom = Symptom("nonfinite-loss", "critical", 5, 5, "not finite")
    return finite_case(symptom=symptom, symptoms=(symptom,), onset=5, step=5, window=window([2.0] * 4 + [NAN]))


@pytest.mark.parametrize(
    ("run", "effect"),
    [
        (followed([2.0] * 17), "removed"),
        (followed([2.0] * 4 + [NAN]), "persists"),
        (followed([2.0 * 1.5**step for step in range(17)]), "inconclusive"),  # finite, and not healthy
        (followed([2.0] * 4 + [9.0] + [1.9] * 12), "removed"),
        (followed([2.0] * 10 + [NAN]), "delayed"),
        (followed([2.0] * 3, ended="its loop was over"), "inconclusive"),
        (followed([2.0] * 3, ended="NameError: x", failed=True), "not-run"),
    ],
)
def test_a_value_that_is_not_finite_is_gone_or_not(run: Followed, effect: str) -> None:
    assert fixing.judged(nonfinite_case(), run)[0] == effect


@pytest.mark.parametrize(("peak", "effect"), [(2.0, "removed"), (9.0, "persists"), (4.0, "inconclusive")])
def test_a_spike_is_gone_if_the_loss_stays_where_it_was(peak: float, effect: str) -> None:
    losses = [2.0 + 0.01 * (-1) ** step for step in range(89)] + [10.0] * 12
    case = finite_case(window=window(losses))
    assert fixing.judged(case, followed(losses[:89] + [peak] * 12))[0] == effect


def test_without_a_symptom_nothing_is_claimed() -> None:
    case = finite_case(symptom=None, symptoms=())
    assert fixing.judged(case, followed([2.0] * 101))[0] == "inconclusive"


RULE = Symptom("live-target", "warning", 1, 48, "train.py:10 makes a target that carries a gradient")
RULE_CASE = finite_case(symptom=RULE, symptoms=(RULE,), onset=1, step=72, window=window([2.0] * 72))


@pytest.mark.parametrize(
    ("run", "effect"),
    [
        (followed([2.0] * 80), "removed"),
        (followed([2.0] * 80, symptoms=("live-target",)), "persists"),
        (followed([2.0] * 80, symptoms=("loss-spike",)), "removed"),
        (followed([2.0] * 60, ended="its loop was over"), "inconclusive"),
        (followed([2.0] * 70 + [NAN]), "persists"),
        (followed([2.0] * 3, ended="NameError: x", failed=True), "not-run"),
    ],
)
def test_a_rule_is_kept_or_broken_whatever_the_loss_does(run: Followed, effect: str) -> None:
    assert fixing.judged(RULE_CASE, run)[0] == effect


def test_a_loss_that_is_higher_without_the_broken_rule_is_told() -> None:
    told = "the loss may be higher for a while"
    assert told in fixing.judged(RULE_CASE, followed([2.5] * 80))[1]
    assert told not in fixing.judged(RULE_CASE, followed([2.0] * 80))[1]


def test_a_rule_is_followed_as_long_as_it_took_to_see_it() -> None:
    assert fixing.broken_rule(RULE_CASE) == "live-target"
    assert fixing.steps_to_follow(RULE_CASE, 1e9) == 80
    assert fixing.broken_rule(nonfinite_case()) == fixing.broken_rule(finite_case(symptom=None, symptoms=())) == ""


def of_script(path: Path) -> Case:
    sources = {str(path): hashlib.sha256(path.read_bytes()).hexdigest()}
    return finite_case(environment={"script": str(path), "sources": sources})


def test_writing_keeps_the_old_script_and_refuses_one_that_changed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("old = 1\n")
    script.chmod(0o755)
    case = of_script(script)
    assert patched_files.write("new = 1\n", case, "-") == tmp_path / "train.py.orig"
    assert script.read_text() == "new = 1\n"
    assert script.stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "train.py.orig").read_text() == "old = 1\n"
    with pytest.raises(UsageError, match="changed since the run"):
        patched_files.write("newer = 1\n", case, "-")
    assert script.read_text() == "new = 1\n"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["train.py", "train.py.orig"]


def test_an_older_copy_is_never_overwritten(tmp_path: Path) -> None:
    script, kept = tmp_path / "train.py", tmp_path / "train.py.orig"
    script.write_text("old = 1\n")
    kept.write_text("oldest = 1\n")
    with pytest.raises(UsageError, match="earlier patch"):
        patched_files.write("new = 1\n", of_script(script), "-")
    assert (script.read_text(), kept.read_text()) == ("old = 1\n", "oldest = 1\n")


@pytest.mark.parametrize("call_at", range(1, 5))
def test_a_disk_that_fails_while_a_patch_is_written_leaves_the_script_and_the_way_to_write_it_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call_at: int
) -> None:
    script = tmp_path / "train.py"
    script.write_text("old = 1\n")
    case, calls = of_script(script), []

    def failing(real: Callable[..., None]) -> Callable[..., None]:
        def call(*given: object) -> None:
            calls.append(given)
            if len(calls) == call_at:
                raise OSError(28, "No space left on device")
            real(*given)

        return call

    with monkeypatch.context() as broken:
        broken.setattr("os.fsync", failing(os.fsync))
        broken.setattr("os.replace", failing(os.replace))
        with pytest.raises(UsageError, match="No space left"):
            patched_files.write("new = 1\n", case, "-")
    assert script.read_text() == "old = 1\n"
    assert {file.name for file in tmp_path.iterdir()} <= {"train.py", "train.py.orig"}
    (tmp_path / ".train.py.new").write_text("ha")  # as a kill leaves it
    assert patched_files.write("new = 1\n", case, "-") == tmp_path / "train.py.orig"
    assert (script.read_text(), (tmp_path / "train.py.orig").read_text()) == ("new = 1\n", "old = 1\n")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["train.py", "train.py.orig"]


def test_a_link_to_the_script_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "train.py").write_text("old = 1\n")
    (tmp_path / "train.py").symlink_to("real/train.py")
    patched_files.write("new = 1\n", of_script(tmp_path / "train.py"), "-")
    assert (tmp_path / "train.py").is_symlink()
    assert (tmp_path / "real" / "train.py").read_text() == "new = 1\n"


@pytest.mark.parametrize(
    ("again", "state", "effect"),
    [
        (followed([2.0] * 4 + [NAN]), "shown", "removed"),
        (followed([2.0] * 4, ended="ValueError: loss is nan", failed=True), "shown", "removed"),
        (followed([2.0] * 4, ended="its loop was over"), "shown", "removed"),
        (followed([2.0] * 17), "not-shown", "inconclusive"),
        (followed([2.0] * 1, ended="MemoryError: x", failed=True), "unclear", "inconclusive"),
        (None, "not-run", "removed"),
    ],
)
def test_a_patch_counts_if_the_unchanged_script_shows_the_symptom(
    again: Followed | None, state: str, effect: str
) -> None:
    control = fixing.controlled(nonfinite_case(), again)
    tried = PatchTried("bad-batch", "x", "t.py", "", "removed", "all steps are finite", None, None, 17)
    judged = fixing.with_control(tried, control)
    assert (control.state, judged.effect) == (state, effect)
    assert "the unchanged script" in judged.why


def test_the_recorded_run_is_the_control_if_the_patched_run_is_the_same_up_to_the_onset() -> None:
    before = [3.0 - 0.1 * step for step in range(11)]
    case = finite_case(onset=12, step=12, window=window([*before, NAN]))
    control = fixing.same_run(case, followed([*before, 1.5, 1.4]))
    assert control is not None
    assert (control.state, "11 steps" in control.why) == ("recorded", True)
    other = [*before[:6], math.nextafter(before[6], 9.0), *before[7:]]
    assert fixing.same_run(case, followed([*other, 1.5, 1.4])) is None
    assert fixing.same_run(case, followed(before[:9])) is None  # it ended before the onset
    still = [2.0] * 11  # a loss that does not move shows nothing
    flat = finite_case(onset=12, step=12, window=window([*still, NAN]))
    assert fixing.same_run(flat, followed([*still, 2.0])) is None


@pytest.mark.parametrize(
    ("onset", "step_s", "left_s", "steps"),
    [(5, 0.01, 100, 17), (80, 0.01, 100, 160), (500, 0.01, 100, 620), (80, 1.0, 360, 120), (80, 1.0, 10, 92)],
)
def test_a_patch_is_followed_as_long_as_the_symptom_took(onset: int, step_s: float, left_s: float, steps: int) -> None:
    case = finite_case(onset=onset, step=onset, step_s=step_s)
    assert fixing.steps_to_follow(case, left_s) == steps


def own(name: str, text: str, is_script: bool = False) -> patched_files.OwnFile:
    return patched_files.OwnFile(Path(f"/now/{name}"), f"/then/{name}", text, is_script)


MAKES = "import torch\noptimizer = torch.optim.SGD(model.parameters(), lr=0.3)\n"


@pytest.mark.parametrize(
    ("files", "changed"),
    [
        ([own("train.py", MAKES, True), own("model.py", MAKES)], "train.py"),
        ([own("train.py", "import model\n", True), own("model.py", MAKES)], "model.py"),
        ([own("train.py", "import model\n", True), own("model.py", MAKES), own("other.py", MAKES)], None),
        ([own("train.py", "import model\n", True)], None),
    ],
)
def test_a_module_is_patched_where_the_script_offers_nothing(
    files: list[patched_files.OwnFile], changed: str | None
) -> None:
    made, why = patched_files.patches_of("learning-rate-too-high", files, finite_case(), None)
    assert [one.path.name for one, _ in made][:1] == ([changed] if changed else [])
    assert bool(why) == (changed is None)


def test_the_files_of_a_run_are_the_script_and_its_unchanged_modules(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("train.py", "model.py", "changed.py")]
    for path in paths:
        path.write_text("x = 1\n")
    sources = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
    paths[2].write_text("x = 2\n")
    case = finite_case(environment={"script": str(paths[0]), "sources": sources})
    found, refusal = patched_files.own_files(case, "-")
    assert ([one.path.name for one in found], refusal) == (["train.py", "model.py"], "")
    assert patched_files.write("x = 3\n", case, "-", str(paths[1])) == tmp_path / "model.py.orig"
    assert (paths[0].read_text(), paths[1].read_text()) == ("x = 1\n", "x = 3\n")
    with pytest.raises(UsageError, match="changed since the run"):
        patched_files.write("x = 4\n", case, "-", str(paths[2]))
    paths[0].write_text("x = 5\n")
    assert patched_files.own_files(case, "-")[0] == []


EMPTY_MASK = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows, wanted, mask = torch.randn(256, 8), torch.randn(256, 1), torch.ones(256)
    mask[96:112] = 0
    model = nn.Linear(8, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for at in range(0, 256, 16):
        error = (model(rows[at : at + 16]) - wanted[at : at + 16]).square().squeeze(1)
        keep = mask[at : at + 16]
        loss = (error * keep).sum() / keep.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.slow
def test_a_mean_over_nothing_is_patched_and_runs_on(tmp_path: Path) -> None:
    ended = run_script(tmp_path, EMPTY_MASK)
    assert ended.status == 70
    scripts = {path: path.read_bytes() for path in tmp_path.glob("*.py")}
    done = call("fix", "run", "--runs-dir", "runs", "--json", "--budget", "120s", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert (document["schema"], document["effect"]) == ("steadytrain.fix/1", "removed")
    assert "+    loss = (error * keep).sum() / keep.sum().clamp(min=1)" in document["patch"]["diff"]
    assert {path: path.read_bytes() for path in tmp_path.glob("*.py")} == scripts  # nothing is written

    elsewhere = tmp_path / "elsewhere" / "copied"
    shutil.copytree(tmp_path / document["incident"], elsewhere)
    stored = answer_files.read(elsewhere)
    assert stored is not None
    assert stored.patch is not None
    shown = CliRunner().invoke(show.command, [str(elsewhere)]).output
    assert "keep.sum().clamp(min=1)" in shown
    assert document["control"] == "shown"


@pytest.mark.long
def test_a_module_of_the_script_is_patched_and_runs_on(tmp_path: Path) -> None:
    (tmp_path / "losses.py").write_text("def masked(error, keep):\n    return (error * keep).sum() / keep.sum()\n")
    script = EMPTY_MASK.replace("(error * keep).sum() / keep.sum()", "masked(error, keep)")
    assert (
        run_script(
            tmp_path, script.replace("import torch\n", "import torch\n    from losses import masked\n", 1)
        ).status
        == 70
    )
    done = call("fix", "run", "--runs-dir", "runs", "--json", "--budget", "120s", "--write", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["patch"]["script"] == str(tmp_path / "losses.py")
    assert (document["effect"], document["control"]) == ("removed", "shown")
    assert "keep.sum().clamp(min=1)" in (tmp_path / "losses.py").read_text()


LIVE_TARGET = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
gamma = 0.9
for step in range(120):
    state, next_state = torch.randn(16, 4), torch.randn(16, 4)
    action, reward = torch.randint(0, 2, (16, 1)), torch.randn(16)
    q = net(state).gather(1, action).squeeze(1)
    target = reward + gamma * net(next_state).max(1).values
    loss = nn.functional.mse_loss(q, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.long
def test_a_mistake_that_the_loss_does_not_show_is_judged_by_its_rule(tmp_path: Path) -> None:
    ended = run_script(tmp_path, LIVE_TARGET)
    assert "live-target" in [one.name for one in ended.run.symptoms]
    done = call("fix", "run", "--runs-dir", "runs", "--json", "--budget", "120s", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert (document["effect"], document["control"]) == ("removed", "shown")
    assert "+    target = (reward + gamma * net(next_state).max(1).values).detach()" in document["patch"]["diff"]
    assert "live-target is not seen in 80 steps" in document["patch"]["why"]


TURNS = """
import torch
from torch import nn
torch.manual_seed(0)
judge, maker = nn.Linear(4, 1), nn.Linear(2, 4)
of_judge = torch.optim.SGD(judge.parameters(), lr=0.01)
of_maker = torch.optim.SGD(maker.parameters(), lr=0.01)
for step in range(1, 81):
    level = torch.full((8, 1), 0.0 if step == 40 else 0.5)
    loss = (judge(torch.randn(8, 4)).square() - torch.log(level)).mean()
    of_judge.zero_grad()
    loss.backward()
    of_judge.step()
    loss = judge(maker(torch.randn(8, 2))).square().mean()
    of_maker.zero_grad()
    loss.backward()
    of_maker.step()
"""


@pytest.mark.long
def test_of_two_optimizers_in_turns_the_steps_of_one_are_counted(tmp_path: Path) -> None:
    """Counting both, the script would end long before the step at which its loss was infinite."""
    ended = run_script(tmp_path, TURNS)
    assert ended.status == 70
    done = call("fix", "run", "--runs-dir", "runs", "--json", "--budget", "120s", folder=tmp_path)
    document = json.loads(done.stdout)
    assert (document["effect"], document["control"]) in (("removed", "recorded"), ("removed", "shown")), document
    assert document["patch"]["steps"] > 40
