"""Patches of the line that a symptom names, or of the one call that its mistake is in."""

from __future__ import annotations

import textwrap

import pytest
from test_patches import HEAD, changed, refused

from steadytrain.diagnosis.patches.wound import Wound


def named(line: str, symptom: str, body: str) -> Wound:
    """The wound of a symptom that names the line which begins so."""
    lines = (HEAD + textwrap.dedent(body)).splitlines()
    at = 1 + next(at for at, text in enumerate(lines) if text.strip().startswith(line))
    return Wound(symptoms=frozenset({symptom}), named={symptom: at})


PENALTY = "(slope,) = torch.autograd.grad(critic(x).sum(), x{})\n"
PLATEAU = "schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer{}, patience=2)\n"


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("target = reward + gamma * q(x).max(1).values\n", "target = (reward + gamma * q(x).max(1).values).detach()"),
        ("target = q(x)\n", "target = q(x).detach()"),
    ],
)
def test_a_target_is_detached(body: str, line: str) -> None:
    assert changed("live-target", body, named("target", "live-target", body)) == [line]


def test_a_target_is_detached_only_where_one_line_makes_it() -> None:
    assert "names no line" in refused("live-target", "target = q(x)\n")
    several = "target, other = q(x), 1\n"
    assert "does not assign one variable" in refused("live-target", several, named("target", "live-target", several))


@pytest.mark.parametrize("given", ["", ", create_graph=False"])
def test_a_derivative_carries_its_graph(given: str) -> None:
    body = PENALTY.format(given)
    wound = named("(slope,)", "constant-penalty", body)
    assert changed("detached-graph", body, wound) == [PENALTY.format(", create_graph=True").strip()]
    assert "names no line" in refused("detached-graph", body)
    twice = body.replace("\n", f"; {body}")
    assert "2 calls" in refused("detached-graph", twice, named("(slope,)", "constant-penalty", twice))


def test_noise_is_drawn_from_a_normal_distribution() -> None:
    code = "noise = torch.rand_like(std)\nlevel = torch.rand(4)\n"
    assert changed("uniform-noise", code) == ["noise = torch.randn_like(std)"]
    two = "a = torch.rand_like(std)\nb = torch.rand_like(std)\n"
    assert "2 places" in refused("uniform-noise", two)
    assert changed("uniform-noise", two, named("b", "uniform-code", two)) == ["b = torch.randn_like(std)"]
    assert "no places" in refused("uniform-noise", "noise = draw(std)\n")


@pytest.mark.parametrize(
    ("given", "mended"),
    [("", None), (', "min"', ', "max"'), (', mode="max"', ', mode="min"')],
)
def test_a_schedule_waits_for_the_other_direction(given: str, mended: str | None) -> None:
    body = PLATEAU.format(given)
    line = PLATEAU.format(mended) if mended is not None else body.replace("patience=2", 'patience=2, mode="max"')
    assert changed("scheduler-misstep", body, Wound(symptoms=frozenset({"opposite-metric"}))) == [line.strip()]
    assert "was not seen" in refused("scheduler-misstep", body)


def test_layers_take_the_rows_first() -> None:
    seen = Wound(symptoms=frozenset({"mixed-rows"}))
    body = "read = nn.GRU(4, 8)\nlook = nn.MultiheadAttention(8, 2, dropout=0.1)\n"
    assert changed("mixed-rows", body, seen) == [
        "read = nn.GRU(4, 8, batch_first=True)",
        "look = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)",
    ]
    assert "say where the rows are" in refused("mixed-rows", "read = nn.GRU(4, 8, batch_first=False)\n", seen)
    assert "say where the rows are" in refused("mixed-rows", "read = nn.GRU(**options)\n", seen)
    assert "was not seen" in refused("mixed-rows", body)


def test_a_draw_that_cuts_the_graph_passes_gradients() -> None:
    body = "normal = torch.distributions.Normal(*model(x))\ndrawn = normal.sample(); held = replay(64)\n"
    wound = named("drawn", "cut-sample", body)
    assert changed("detached-graph", body, wound) == ["drawn = normal.rsample(); held = replay(64)"]
    two = body.replace("replay(64)", "replay.sample(64)")
    assert "2 calls of sample()" in refused("detached-graph", two, named("drawn", "cut-sample", two))


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("scores.masked_fill(mask, 0)\n", "scores = scores.masked_fill(mask, 0)"),
        ("F.normalize(z, dim=-1)\n", "z = F.normalize(z, dim=-1)"),
        ("rng.permutation(rows)\n", "rows = rng.permutation(rows)"),
        ("sorted(names)\n", "names = sorted(names)"),
        ("p.data.clamp(-1, 1)\n", "p.data = p.data.clamp(-1, 1)"),
        ("hidden[0].detach()\n", "hidden[0] = hidden[0].detach()"),
    ],
)
def test_a_result_that_is_dropped_is_assigned(body: str, line: str) -> None:
    assert changed("discarded-changes", body, named(body.strip(), "dropped-result", body)) == [line]


def test_a_result_that_an_assignment_would_not_keep_is_not_assigned() -> None:
    loop = "for p in model.parameters():\n    p.clamp(-1, 1)\n"
    assert "variable of a loop" in refused("discarded-changes", loop, named("p.clamp", "dropped-result", loop))
    held = "hold(x).clamp(0)\n"
    assert "changes no variable" in refused("discarded-changes", held, named("hold", "dropped-result", held))
    none = "x = 0\n"
    assert "is not one call" in refused("discarded-changes", none, named("x", "dropped-result", none))


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("out = q + (z - q).detach()\n", "out = z + (q - z).detach()"),
        ("out = (z - q).detach() + q\n", "out = z + (q - z).detach()"),
        ("out = hard - soft + soft.detach()\n", "out = hard - soft.detach() + soft"),
        ("out = soft.detach() + (hard - soft)\n", "out = hard - soft.detach() + soft"),
    ],
)
def test_a_straight_through_estimator_is_turned_around(body: str, line: str) -> None:
    name = "reversed-straight-through"
    assert changed(name, body, named("out", name, body)) == [line]
    other = "out = q.add((z - q).detach())\n"
    assert "has no sums" in refused(name, other, named("out", name, other))


@pytest.mark.parametrize("symptom", ["discarded-changes", "kept-residual"])
def test_a_change_of_a_copy_is_assigned_back(symptom: str) -> None:
    body = "state[:, mask].zero_()\n"
    assert changed(symptom, body, named("state", symptom, body)) == ["state[:, mask] = state[:, mask].zero_()"]
    assert "names no line" in refused(symptom, body)
    assert "is not one change in place" in refused(symptom, "state = 0\n", named("state", symptom, "state = 0\n"))


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (
            "code = checkpoint(part, x, preserve_rng_state=False)\n",
            "code = checkpoint(part, x, preserve_rng_state=True)",
        ),
        ("code = {'preserve_rng_state': fast}\n", "code = {'preserve_rng_state': True}"),
        (
            "code = partial(checkpoint, preserve_rng_state=not slow)\n",
            "code = partial(checkpoint, preserve_rng_state=True)",
        ),
    ],
)
def test_a_checkpoint_restores_the_random_state(body: str, line: str) -> None:
    assert changed("unlike-recomputation", body, named("code", "unlike-recomputation", body)) == [line]


def test_an_option_that_is_not_on_the_line_is_not_changed() -> None:
    body = "code = checkpoint(part, x, **options)\n"
    assert "gives preserve_rng_state no times" in refused(
        "unlike-recomputation", body, named("code", "unlike-recomputation", body)
    )
