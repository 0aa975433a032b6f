"""Patches of small scripts: the lines that change, and what is refused."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.diagnosis.patch import Patch, Wound, patches_for

HEAD = """import torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.99)
"""


def changed(cause: str, body: str, wound: Wound | None = None, head: str = HEAD) -> list[str]:
    """The added lines of the first patch, without indentation."""
    found, why = patches_for(cause, head + textwrap.dedent(body), wound or Wound(), name="train.py")
    assert found, why
    return added(found[0])


def added(patch: Patch) -> list[str]:
    return [line[1:].strip() for line in patch.diff.splitlines() if line[0] == "+" and not line.startswith("+++")]


def refused(cause: str, body: str, wound: Wound | None = None, head: str = HEAD) -> str:
    found, why = patches_for(cause, head + textwrap.dedent(body), wound or Wound(), name="train.py")
    assert not found
    return why


LOOP = """
    for x, y in data:
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
"""


def located(body: str, operation: str) -> Wound:
    """The wound of the line that is marked."""
    lines = (HEAD + textwrap.dedent(body)).splitlines()
    return Wound(1 + next(at for at, line in enumerate(lines) if line.endswith("# here")), operation)


@pytest.mark.parametrize(
    ("cause", "body", "line"),
    [
        ("missing-zero-grad", LOOP, "optimizer.zero_grad()"),
        ("unclipped-gradients", LOOP, "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1)"),
        ("momentum-too-high", LOOP, "optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)"),
        ("learning-rate-too-high", LOOP, "optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.99)"),
        ("shape-broadcast", "loss = F.mse_loss(out, y)\n", "loss = F.mse_loss(out, y.reshape(out.shape))"),
        (
            "loss-function-misuse",
            "loss = F.cross_entropy(torch.softmax(model(x), dim=-1), y)\n",
            "loss = F.cross_entropy(model(x), y)",
        ),
        ("loss-function-misuse", "p = model(x).softmax(-1)\nloss = F.cross_entropy(p, y)\n", "p = model(x)"),
        (
            "no-supervised-tokens",
            "loss = F.cross_entropy(scores, labels, ignore_index=0)\n",
            'loss = (F.cross_entropy(scores, labels, ignore_index=0, reduction="sum") '
            "/ (labels != 0).sum().clamp(min=1))",
        ),
        ("unshuffled-data", "loader = DataLoader(rows, batch_size=4)\n", None),
        ("unshuffled-data", "loader = DataLoader(rows, shuffle=False)\n", "loader = DataLoader(rows, shuffle=True)"),
        ("train-eval-mode", "model.eval()\n" + textwrap.dedent(LOOP), "model.train()"),
    ],
)
def test_the_line_that_mends(cause: str, body: str, line: str | None) -> None:
    assert changed(cause, body) == [line or "loader = DataLoader(rows, batch_size=4, shuffle=True)"]


@pytest.mark.parametrize(
    ("operation", "before", "after"),
    [
        ("log", "h = -torch.log(p + 0.0).mean()  # here", "h = -torch.log((p + 0.0).clamp(min=1e-12)).mean()  # here"),
        ("log", "h = p.log()  # here", "h = p.clamp(min=1e-12).log()  # here"),
        ("sqrt_backward", "d = ((a - b) ** 2).sum().sqrt()  # here", None),
        ("div", "m = e.sum() / mask.sum()  # here", "m = e.sum() / mask.sum().clamp(min=1)  # here"),
        ("div", "m = e.sum() / (y != 0).sum()  # here", "m = e.sum() / (y != 0).sum().clamp(min=1)  # here"),
        ("div", "m = e.sum() / y.ne(0).sum()  # here", "m = e.sum() / y.ne(0).sum().clamp(min=1)  # here"),
        ("div", "z = (x - x.mean()) / x.std()  # here", "z = (x - x.mean()) / x.std().clamp(min=1e-12)  # here"),
        ("mean", "m = e[k].mean()  # here", "m = (e[k].sum() / max(1, e[k].numel()))  # here"),
    ],
)
def test_the_named_operation_is_bounded(operation: str, before: str, after: str | None) -> None:
    expected = after or "d = ((a - b) ** 2).sum().clamp(min=1e-12).sqrt()  # here"
    assert changed("singular-operation", before, located(before, operation)) == [expected]


def test_a_denominator_that_is_assigned_on_another_line_is_bounded_there() -> None:
    body = "count = k.sum()\nm = e.sum() / count  # here\n"
    assert changed("singular-operation", body, located(body, "div")) == ["count = k.sum().clamp(min=1)"]


@pytest.mark.parametrize(
    ("body", "operation", "why"),
    [
        ("m = a / b  # here", "div", "is no count"),
        ("m = q / q.sum(dim=1)  # here", "div", "is no count"),
        ("m = torch.log(a) + torch.log(b)  # here", "log", "2 operations"),
        ("m = a.exp()  # here", "exp", "no operations"),
    ],
)
def test_an_operation_that_is_ambiguous_is_left(body: str, operation: str, why: str) -> None:
    assert why in refused("singular-operation", body, located(body, operation))


def test_an_operation_of_another_file_is_left() -> None:
    assert "no line of the script itself" in refused("singular-operation", LOOP)


def test_gradients_of_accumulated_steps_are_cleared_after_the_update() -> None:
    body = """
        for at, (x, y) in enumerate(data):
            loss(x, y).backward()
            if at % 4 == 3:
                optimizer.step()
    """
    found, _ = patches_for("missing-zero-grad", HEAD + textwrap.dedent(body), Wound(), name="t.py")
    assert "        optimizer.step()\n        optimizer.zero_grad()\n" in found[0].text


def test_unscale_is_moved_before_the_clip() -> None:
    body = """
        for x, y in data:
            scaler.scale(loss(x, y)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
    """
    found, _ = patches_for("clip-before-unscale", HEAD + textwrap.dedent(body), Wound(), name="t.py")
    lines = [line.strip() for line in found[0].text.splitlines()]
    assert lines.index("scaler.unscale_(optimizer)") == lines.index("scaler.step(optimizer)") - 2
    assert lines.count("scaler.unscale_(optimizer)") == 1


def test_a_schedule_is_stepped_after_the_update() -> None:
    body = """
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
        for x, y in data:
            loss(x, y).backward()
            schedule.step()
            optimizer.step()
    """
    found, _ = patches_for("scheduler-misstep", HEAD + textwrap.dedent(body), Wound(), name="t.py")
    assert "    optimizer.step()\n    schedule.step()\n" in found[0].text
    missing = "\n".join(line for line in body.splitlines() if "schedule.step()" not in line)
    assert changed("scheduler-misstep", missing) == ["schedule.step()"]


@pytest.mark.parametrize(
    ("cause", "body", "why"),
    [
        ("missing-zero-grad", LOOP.replace("loss.backward()", "optimizer.zero_grad(); loss.backward()"), "already"),
        ("missing-zero-grad", LOOP + "    other = torch.optim.SGD(model.parameters(), lr=1)\n", "2 optimizers"),
        ("missing-zero-grad", LOOP.replace("loss.backward()", "pass; loss.backward()"), "several statements"),
        ("clip-before-unscale", LOOP, "no gradient scaler"),
        ("bad-batch", LOOP, "not a change of a line"),
        ("learning-rate-too-high", "optimizer = (", "cannot be parsed"),
    ],
)
def test_what_is_not_safe_is_refused_with_the_reason(cause: str, body: str, why: str) -> None:
    assert why in refused(cause, textwrap.dedent(body))


def test_everything_else_of_the_script_stays_as_it_was() -> None:
    head = "# Größe: naïve café\n" + HEAD
    found, _ = patches_for("momentum-too-high", head + "name = 'é'; other = 1  # ü", Wound(), name="t.py")
    assert found[0].text == head.replace("0.99", "0.9") + "name = 'é'; other = 1  # ü"
    assert found[0].diff.startswith("--- a/t.py\n+++ b/t.py\n")
