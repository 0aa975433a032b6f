"""Rows that come again with the target of another."""

from __future__ import annotations

import torch
from torch import Tensor

from steadytrain.survey.input_facts import Batches
from steadytrain.survey.pairings import CHANGED_MIN, Pairings

ROWS, ONSET = 8, 5


def _keys(order: Tensor) -> list[bytes]:
    return [int(row).to_bytes(4, "little") for row in order]


def _epochs(targets: Tensor, *, then: Tensor | None = None, before: Tensor | None = None) -> Pairings:
    """An epoch of four batches, and one from the step 5 on whose targets are ``then`` (by default the same)."""
    seen = Pairings()
    for epoch, of in enumerate((before if before is not None else targets, then if then is not None else targets)):
        order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(epoch))
        for at, rows in enumerate(order.split(ROWS), 1):
            seen.saw(4 * epoch + at, _keys(rows), of[rows])
    return seen


CHANCE = torch.Generator().manual_seed(7)
POINTS = torch.rand(4 * ROWS, 2, generator=CHANCE)
CLASSES = torch.randint(5, (4 * ROWS,), generator=CHANCE)
OTHER = torch.randperm(4 * ROWS, generator=CHANCE)


def test_targets_in_another_order_are_found() -> None:
    for targets in (POINTS, CLASSES):
        (found,) = _epochs(targets, then=targets[OTHER]).finish(ONSET).values()
        assert (found["rows"], found["changed"] > ROWS) == (4 * ROWS, True)
        (now, row), (then, place) = found["now"], found["then"]
        assert now >= ONSET > then
        assert 0 <= row < ROWS
        assert 0 <= place < ROWS


def test_the_same_targets_and_new_rows_are_none() -> None:
    assert _epochs(POINTS).finish(ONSET) == {}
    seen = Pairings()
    for step in range(1, 9):
        seen.saw(step, _keys(torch.arange(ROWS) + step * ROWS), POINTS[:ROWS])
    assert seen.finish(ONSET) == {}


def _with_torn_batch(step: int) -> Pairings:
    seen = _epochs(CLASSES, then=CLASSES[OTHER])
    seen.saw(step, _keys(torch.tensor([3, 3, 5, 6])), torch.tensor([0, 1, 2, 3]))
    return seen


def test_rows_that_share_an_input_in_one_batch_have_lost_no_pairing() -> None:
    assert _with_torn_batch(2).finish(ONSET) == {}
    assert _with_torn_batch(6).finish(1) == {}
    assert "targets_exchanged" in _with_torn_batch(6).finish(ONSET)
    twice = _epochs(CLASSES, then=CLASSES[OTHER])
    twice.saw(2, _keys(torch.tensor([3, 3])), torch.tensor([1, 1]))  # a rare row that is drawn twice
    assert "targets_exchanged" in twice.finish(ONSET)


def test_numbers_that_a_teacher_computes_anew_are_none() -> None:
    assert _epochs(POINTS, then=POINTS + 1e-6).finish(ONSET) == {}


def test_targets_that_changed_before_the_onset_too_are_none() -> None:
    seen = Pairings()
    for epoch in range(4):  # the same rows in each step, each time with other targets
        seen.saw(epoch + 1, _keys(torch.arange(ROWS)), CLASSES.roll(epoch)[:ROWS])
    assert seen.finish(3) == {}


def test_a_few_other_labels_are_none() -> None:
    noisy = CLASSES.clone()
    noisy[:3] += 1
    assert _epochs(CLASSES, then=noisy).finish(ONSET) == {}


WORDS = torch.randint(9, (4 * ROWS, 6), generator=torch.Generator().manual_seed(1))


def _two_epochs(first: Tensor, second: Tensor) -> Pairings:
    found = Pairings()
    for epoch, labels in enumerate((first, second)):
        for at, rows in enumerate(torch.arange(len(WORDS)).split(ROWS), 1):
            found.saw(4 * epoch + at, _keys(rows), labels[rows], labels[rows] == -100)
    return found


def test_words_masked_at_random_are_none() -> None:
    """Few words have a label, and not the same ones each time; many rows have none."""
    chance = torch.Generator().manual_seed(2)
    first, second = (torch.where(torch.rand(WORDS.shape, generator=chance) < 0.1, WORDS, -100) for _ in range(2))
    for onset in (1, ONSET):
        assert _two_epochs(first, second).finish(onset) == {}


def test_answers_behind_prompts_in_another_order_are_found() -> None:
    labels = torch.where(torch.arange(6) < 3, -100, WORDS)
    (told,) = _two_epochs(labels, labels[OTHER]).finish(ONSET).values()
    assert told["changed"] > CHANGED_MIN
    assert _two_epochs(labels, labels).finish(ONSET) == {}


def test_labels_of_a_sequence_that_nobody_else_has_are_none() -> None:
    """Another word in each row: an augmentation, and not a pairing that was lost."""
    words = torch.randint(50, (4 * ROWS, 6), generator=torch.Generator().manual_seed(1))
    assert _epochs(words, then=words + torch.arange(6)).finish(ONSET) == {}
    assert _epochs(words, then=words[OTHER]).finish(ONSET) != {}


def test_what_does_not_pair_is_left_out() -> None:
    seen = Pairings()
    seen.saw(1, _keys(torch.arange(ROWS)), POINTS[: ROWS - 1])
    seen.saw(2, _keys(torch.zeros(ROWS)), POINTS[:ROWS])
    seen.saw(3, [], POINTS[:ROWS])
    seen.saw(4, _keys(torch.arange(ROWS)), POINTS[:ROWS].clone().requires_grad_())
    assert seen.finish(1) == {}


def _rows_after(*calls: tuple[Tensor, ...]) -> list[bytes]:
    """The rows of a step with these calls of models."""
    batches = Batches()
    for call in calls:
        batches.called(1, call, {})
    return batches.rows_of(1)


IDS, DENSE = torch.arange(12).reshape(6, 2) % 4, torch.randn(6, 3)


def test_a_row_is_all_that_the_models_of_the_step_were_given() -> None:
    together, one_by_one = _rows_after((IDS, DENSE)), _rows_after((IDS,), (DENSE,))
    assert len(set(together)) == len(set(one_by_one)) == 6
    others = _rows_after((IDS, DENSE + 1.0))
    assert not set(together) & set(others)
    assert together == _rows_after((IDS, DENSE))


def test_rows_of_a_few_whole_numbers_are_not_told_apart() -> None:
    assert _rows_after((IDS,)) == []
    assert len(_rows_after((DENSE,))) == 6


def test_the_rows_of_a_step_end_with_its_loss() -> None:
    batches = Batches()
    batches.called(1, (DENSE,), {})
    first = batches.rows_of(1)
    batches.called(1, (DENSE + 1.0,), {})
    assert batches.rows_of(1) == []
    batches.called(2, (DENSE,), {})
    assert batches.rows_of(2) == first


def test_recorded_inputs_beside_the_targets_of_other_inputs_are_told_apart() -> None:
    """A replay gives the model what was recorded; a target that the script computes itself is of its own inputs."""
    own, recorded = torch.rand(ROWS, 9, generator=CHANCE), torch.rand(ROWS, 9, generator=CHANCE)
    batches = Batches()
    batches.given(1, ((own,), {}), ((own.clone(),), {}))
    assert batches.has_own_targets(1)
    batches.given(2, ((own,), {}), ((recorded,), {}))
    assert not batches.has_own_targets(2)
    assert len(batches.rows_of(2)) == ROWS
    batches.given(3, ((own,), {}), ((own,), {}))
    assert batches.has_own_targets(3)


def test_rows_that_were_erased_are_no_row_that_was_seen_before() -> None:
    """An augmentation that works in place leaves images of zeros behind; they have the targets of other samples."""
    batches, seen = Batches(), Pairings()
    for step in range(1, ONSET + 8):
        inputs = torch.randn(ROWS, 9, generator=CHANCE)
        if step >= ONSET:
            inputs[step % ROWS] = 0.0
        batches.called(step, (inputs,), {})
        seen.saw(step, batches.rows_of(step), torch.arange(ROWS))
    assert seen.finish(ONSET) == {}


def test_places_in_a_batch_are_no_targets() -> None:
    """The labels of a contrastive loss number the rows: a row that comes again stands at another place."""
    for places in (torch.arange(ROWS), (torch.arange(ROWS) + 3) % ROWS, torch.arange(ROWS) + 64):
        seen = Pairings()
        for epoch in range(2):
            order = torch.randperm(4 * ROWS, generator=torch.Generator().manual_seed(epoch))
            for at, rows in enumerate(order.split(ROWS), 1):
                seen.saw(4 * epoch + at, _keys(rows), places)
        assert seen.finish(1) == {}


def test_batches_in_one_memory_have_lost_no_pairing() -> None:
    """Features that each batch keeps a view of, and that the next batch overwrites."""
    seen = Pairings()
    for step in range(1, 7):
        seen.saw(step, _keys(torch.arange(ROWS)), POINTS[:ROWS] + step)
    assert seen.finish(1) == {"inputs_repeated": {"batches": 5, "of": 5}}


def test_one_batch_whose_labels_are_shuffled_is_no_such_memory() -> None:
    seen = Pairings()
    order = torch.Generator().manual_seed(0)
    for step in range(1, 7):
        seen.saw(step, _keys(torch.arange(ROWS)), CLASSES[:ROWS][torch.randperm(ROWS, generator=order)])
    assert "inputs_repeated" not in seen.finish(1)
