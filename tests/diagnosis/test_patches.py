"""Patches of small scripts: the lines that change, and what is refused."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.diagnosis.patches.table import patches_for
from steadytrain.diagnosis.patches.wound import Patch, Wound, wound_of

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


BAD_ROWS = Wound(rows=(417, 3))


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (
            "loader = DataLoader(rows, batch_size=4)\n",
            [
                "kept = [row for row in range(len(rows)) if row not in {3, 417}]",
                "loader = DataLoader(torch.utils.data.Subset(rows, kept), batch_size=4)",
            ],
        ),
        (
            "kept = 1\ntrain = DataLoader(dataset=Rows(kept), shuffle=True)\ntest = DataLoader(others)\n",
            [
                "dataset = Rows(kept)",
                "kept_2 = [row for row in range(len(dataset)) if row not in {3, 417}]",
                "train = DataLoader(dataset=torch.utils.data.Subset(dataset, kept_2), shuffle=True)",
            ],
        ),
    ],
)
def test_rows_that_are_not_finite_are_left_out(body: str, lines: list[str]) -> None:
    assert changed("nonfinite-input", body, BAD_ROWS) == lines


@pytest.mark.parametrize(
    ("body", "wound", "why"),
    [
        ("loader = DataLoader(rows)\n", Wound(), "no row of a data set is known"),
        ("loader = DataLoader(rows)\n", Wound(rows=tuple(range(40))), "40 rows"),
        ("loader = DataLoader(rows, sampler=own)\n", BAD_ROWS, "a sampler of its own"),
        ("a, b = DataLoader(rows), DataLoader(others)\n", BAD_ROWS, "makes no loaders of training data"),
        ("batches = rows.split(4)\n", BAD_ROWS, "makes no loaders of training data"),
    ],
)
def test_rows_are_left_out_of_one_known_data_set_only(body: str, wound: Wound, why: str) -> None:
    assert why in refused("nonfinite-input", body, wound)


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
        ("std", "z = x / (a.std() + 1e-8)  # here", "z = x / (a.std(correction=min(1, a.numel() - 1)) + 1e-8)  # here"),
        ("var", "v = a.var()  # here", "v = a.var(correction=min(1, a.numel() - 1))  # here"),
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
        ("m = torch.log(1 + torch.log(b))  # here", "log", "within each other"),
        ("m = a.exp()  # here", "exp", "no kinds"),
        ("m = a.std(0)  # here", "std", "no kinds"),
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


ADAM = HEAD.replace("SGD(model.parameters(), lr=0.3, momentum=0.99)", "Adam(model.parameters(), lr=RATE)")


def lines_of(cause: str, body: str, head: str = HEAD, **facts: object) -> list[str]:
    return changed(cause, body, Wound(facts=facts), head)


@pytest.mark.parametrize(
    ("head", "body", "expected"),
    [
        # the number of a name, and what is computed from it, is changed once
        ("RATE = 0.3\n" + ADAM, "g['lr'] = RATE * min(1.0, step / 50)\n", ["RATE = 0.1"]),
        ("RATE = 0.3\n" + ADAM, "def at(s):\n    return RATE * s\ng['lr'] = at(step)\n", ["RATE = 0.1"]),
        # an expression is scaled where it stands
        (ADAM.replace("RATE", "args.rate"), "", ["optimizer = torch.optim.Adam(model.parameters(), lr=args.rate / 3)"]),
        (ADAM.replace("lr=RATE", "lr=0.3"), "g['lr'] = peak * warm\n", None),
        # a multiple of what is there follows by itself
        (ADAM.replace("lr=RATE", "lr=0.3"), "g['lr'] = g['lr'] * 0.5\n", None),
        (ADAM.replace(", lr=RATE", ""), "", ["optimizer = torch.optim.Adam(model.parameters(), lr=0.000333)"]),
        (HEAD.replace("lr=0.3", "0.3"), "", ["optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.99)"]),
    ],
)
def test_the_rate_is_scaled_wherever_the_script_sets_it(head: str, body: str, expected: list[str] | None) -> None:
    own = "optimizer = torch.optim.Adam(model.parameters(), lr=0.1)"
    written = ["g['lr'] = (peak * warm) / 3"] if "peak" in body else []
    assert changed("learning-rate-too-high", body, head=head) == (expected or [own, *written])


def test_the_peak_of_a_schedule_is_scaled_too() -> None:
    body = "schedule = OneCycleLR(optimizer, max_lr=0.6, total_steps=9)\n"
    assert "schedule = OneCycleLR(optimizer, max_lr=0.2, total_steps=9)" in changed("learning-rate-too-high", body)


def test_a_rate_that_comes_in_as_an_argument_is_left() -> None:
    body = "def put(g, value):\n    g['lr'] = value\nput(group, RATE * warm)\n"
    assert "comes from elsewhere" in refused("learning-rate-too-high", body, head="RATE = 0.3\n" + ADAM)


def test_a_rate_that_is_too_low_is_raised() -> None:
    assert "lr=3," in changed("learning-rate-too-low", "")[0]


@pytest.mark.parametrize(
    ("cause", "options", "mended"),
    [
        ("second-moment-lag", "lr=1e-3", "lr=1e-3, betas=(0.9, 0.9)"),
        ("second-moment-lag", "betas=(0.8, 0.999)", "betas=(0.8, 0.9)"),
        ("weight-decay-misuse", "weight_decay=0.3", "weight_decay=0.1"),
        ("weight-decay-misuse", "weight_decay=args.decay", "weight_decay=args.decay / 3"),
        ("momentum-too-high", "betas=(0.999, 0.9)", "betas=(0.9, 0.9)"),
        ("optimizer-epsilon-underflow", "eps=1e-30", "eps=1e-08"),
    ],
)
def test_options_of_adam(cause: str, options: str, mended: str) -> None:
    head = ADAM.replace("lr=RATE", options)
    assert changed(cause, "", head=head) == [f"optimizer = torch.optim.Adam(model.parameters(), {mended})"]


def test_the_decay_of_a_group_is_lowered_where_it_is_not_zero() -> None:
    head = "import torch\n"
    body = "groups = [{'params': a, 'weight_decay': 0.3}, {'params': b, 'weight_decay': 0.0}]\n"
    made = "optimizer = torch.optim.AdamW(groups, lr=1e-3)\n"
    assert changed("weight-decay-misuse", body + made, head=head) == [
        "groups = [{'params': a, 'weight_decay': 0.1}, {'params': b, 'weight_decay': 0.0}]"
    ]


def test_betas_are_not_given_to_an_optimizer_without_them() -> None:
    assert "betas" in refused("second-moment-lag", "")


@pytest.mark.parametrize(
    ("body", "mended"),
    [
        ("loss = F.cross_entropy(out, y)\n", "loss = F.cross_entropy(out, y, ignore_index=7)"),
        ("criterion = nn.CrossEntropyLoss()\nloss = criterion(out, y)\n", None),
    ],
)
def test_padding_is_left_out_of_the_loss(body: str, mended: str | None) -> None:
    expected = mended or "criterion = nn.CrossEntropyLoss(ignore_index=7)"
    assert lines_of("padding-in-loss", body, pad_id=7) == [expected]
    assert "not known" in refused("padding-in-loss", body)


@pytest.mark.parametrize(
    ("body", "mended"),
    [
        ("loss = F.nll_loss(out, y)\n", "loss = F.cross_entropy(out, y)"),
        ("lossy = nn.NLLLoss(reduction='sum')\nloss = lossy(out, y)\n", "lossy = nn.CrossEntropyLoss(reduction='sum')"),
    ],
)
def test_scores_go_into_cross_entropy(body: str, mended: str) -> None:
    assert lines_of("loss-function-misuse", body, logits_as_log_probabilities=["t.py:1"]) == [mended]
    assert "log-probabilities" in refused("loss-function-misuse", body)


def test_the_softmax_that_a_forward_returns_is_removed() -> None:
    body = """
        criterion = nn.CrossEntropyLoss()
        class Net(nn.Module):
            def forward(self, x):
                return torch.softmax(self.head(x), dim=-1)
        loss = criterion(model(x), y)
    """
    assert changed("loss-function-misuse", body) == ["return self.head(x)"]


def test_a_criterion_gets_one_shape() -> None:
    body = "criterion = torch.nn.MSELoss()\nloss = criterion(out, y)\n"
    assert changed("shape-broadcast", body) == ["loss = criterion(out, y.reshape(out.shape))"]


def test_clipping_that_saw_no_gradient_moves_before_the_update() -> None:
    body = """
        for x, y in data:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            loss(x, y).backward()
            optimizer.step()
    """
    wound = Wound(facts={"clip_before_backward": True})
    found, _ = patches_for("clip-before-unscale", HEAD + textwrap.dedent(body), wound, name="t.py")
    lines = [line.strip() for line in found[0].text.splitlines()][-3:]
    assert lines == [
        "loss(x, y).backward()",
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        "optimizer.step()",
    ]


def test_a_scaled_gradient_is_unscaled_before_it_is_clipped() -> None:
    body = """
        for x, y in data:
            scaler.scale(loss(x, y)).backward()
            scaler.step(optimizer)
    """
    assert changed("unclipped-gradients", body, Wound(norm=0.25)) == [
        "scaler.unscale_(optimizer)",
        "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.25)",
    ]


def test_parameters_that_the_loop_cannot_name_are_read_from_the_groups() -> None:
    head = "import torch\n"
    body = """
        def make(net):
            self.opt = torch.optim.SGD(net.parameters(), lr=0.1)
        def train(self):
            for x in data:
                self.opt.step()
    """
    assert changed("unclipped-gradients", body, head=head) == [
        'torch.nn.utils.clip_grad_norm_([p for group in self.opt.param_groups for p in group["params"]], max_norm=1)'
    ]


def test_a_line_that_moves_takes_no_other_statement_with_it() -> None:
    body = """
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
        for x, y in data:
            schedule.step(); count += 1
            optimizer.step()
    """
    assert "several statements" in refused("scheduler-misstep", body)


def test_line_ends_stay_those_of_the_script() -> None:
    text = (HEAD + textwrap.dedent(LOOP)).replace("\n", "\r\n")
    found, _ = patches_for("missing-zero-grad", text, Wound(), name="t.py")
    assert found[0].text.count("\n") == found[0].text.count("\r\n") == text.count("\r\n") + 1


def test_the_line_comes_from_the_facts_where_nothing_was_located() -> None:
    fact = {"empty_masks": [{"line": "train.py:17: loss = e.sum() / k.sum()", "rows": [3]}]}
    assert wound_of("/a/train.py", "no-supervised-tokens", None, None, fact).line == 17
    assert wound_of("/a/model.py", "no-supervised-tokens", None, None, fact).line is None
    two = {"empty_masks": [{"line": "train.py:17: a"}, {"line": "train.py:19: b"}]}
    assert wound_of("/a/train.py", "no-supervised-tokens", None, None, two).line is None
