"""Labels that are embedded beside their tokens are told from the tokens, and from a trainer's argument."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from steadytrain.capture.looks.token_inputs import place_of_labels, tokens_beside  # noqa: E402
from steadytrain.survey.input_facts import _offset  # noqa: E402

TEXT = torch.arange(40).reshape(4, 10)
TOKENS, LABELS = TEXT[:, :-1], TEXT[:, 1:]


@pytest.mark.parametrize("given", [[TOKENS, LABELS], [LABELS, TOKENS]], ids=["labels last", "labels first"])
def test_the_tokens_are_those_that_the_labels_follow(given: list[torch.Tensor]) -> None:
    found = tokens_beside(LABELS.flatten(), given, given)
    assert found is not None
    assert torch.equal(found, TOKENS)
    assert place_of_labels(LABELS.flatten(), found, given, given) == next(
        at for at, one in enumerate(given) if torch.equal(one, LABELS)
    )


def test_labels_that_only_the_loss_reads_are_no_leak() -> None:
    assert place_of_labels(LABELS, TOKENS, [TOKENS, LABELS], [TOKENS]) is None


def test_labels_that_are_the_only_ids_are_compared_with_themselves() -> None:
    found = tokens_beside(LABELS, [LABELS], [LABELS])
    assert found is not None
    assert place_of_labels(LABELS, found, [LABELS], [LABELS]) is None


@pytest.mark.parametrize(("added", "found"), [(1, 1), (3, 3), (0, None)])
def test_ids_that_are_off_by_a_constant_are_found_by_their_frequencies(added: int, found: int | None) -> None:
    torch.manual_seed(0)
    drawn = [torch.multinomial(1.0 / torch.arange(1, 41), 4000, replacement=True) for _ in range(8)]
    counts = [torch.bincount(ids + added * (at >= 4)) for at, ids in enumerate(drawn)]
    offset = _offset(counts[:4], counts[4:])
    assert (None if offset is None else offset[0]) == found


def test_other_ids_are_off_by_no_constant() -> None:
    torch.manual_seed(0)
    order = torch.randperm(40)
    drawn = [torch.multinomial(1.0 / torch.arange(1, 41), 4000, replacement=True) for _ in range(8)]
    counts = [torch.bincount(order[ids] if at >= 4 else ids) for at, ids in enumerate(drawn)]
    assert _offset(counts[:4], counts[4:]) is None
