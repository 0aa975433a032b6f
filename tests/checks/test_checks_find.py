"""Each check fails a model for the right reason, and lets a healthy look-alike through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from healthy_models import (  # noqa: E402
    Given,
    binary,
    given,
    gpt2,
    lora,
    recurrent,
    regression,
    residual_net,
    small_gpt,
    tabular,
    vision_transformer,
    with_padding,
)
from planted_loops import (  # noqa: E402
    accumulated,
    accumulated_right,
    copied_embedding,
    double_softmax,
    drops_always,
    drops_in_training,
    groups,
    likelihood_of_logits,
    log_of_softmax,
    log_softmax_then_nll,
    padded_left,
    place_matters,
    reads_padding,
    says_tied,
    sigmoid_twice,
    single_rows,
    softmax_of_one,
    spread,
    spread_by_hand,
    squeezes,
    summed,
    two_rows,
    with_loss,
)
from planted_models import (  # noqa: E402
    all_frozen,
    backbone_left_out,
    chooses_by_what_comes,
    dead,
    deep,
    detached,
    graph_cut,
    head_forgotten,
    hidden_loss,
    labels_not_shifted,
    labels_shifted_twice,
    lora_on_zeros,
    loud_embedding,
    loud_queries,
    packed_apart,
    packed_together,
    rows_swapped,
    same_inputs,
    sees_ahead,
    sees_labels,
    twice_held,
    uninitialised,
    without_inputs,
)

from replaying import plain_process  # noqa: E402
from steadytrain.preflight_runs.in_code import check  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
Case = tuple[str, Callable[[], Given], str]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with plain_process():
        yield


HEALTHY: list[Case] = [
    ("causality", recurrent, "no prediction"),
    ("packed-document-leak", packed_apart, "do not see each other"),
    ("label-alignment", hidden_loss(1), "at shift 1"),
    ("signal-propagation", deep(1.0), "layers"),
    ("accumulation-equivalence", accumulated_right, "give the gradient"),
    ("eval-determinism", drops_in_training, "last bit"),
    ("weight-decay-groups", groups(0.1, 0.0), "weight decay 0.1"),
    ("tied-embeddings", small_gpt, "are one tensor"),
    ("batch-norm-rows", residual_net, "16 rows"),
    ("batch-leak", vision_transformer, "no row"),
    ("loss-misuse", with_loss(tabular, log_softmax_then_nll), "gets what it takes"),
    ("loss-misuse", binary, "gets what it takes"),
    ("loss-misuse", regression, "gets what it takes"),
    ("gradient-coverage", lora, "28 are frozen"),
    ("attention-entropy", small_gpt, "the lowest"),
    ("dead-units-at-start", tabular, "at most"),
    ("padding-invariance", lambda: given(gpt2(), with_padding()), "on the right"),
]

SICK: list[Case] = [
    ("initial-loss", loud_embedding, "far too high"),
    ("overfit-one-batch", same_inputs, "the loss of 4 rows"),
    ("overfit-one-batch", graph_cut, "does not depend on any parameter"),
    ("batch-leak", rows_swapped, "a row depends on the others"),
    ("causality", sees_ahead, "see up to"),
    ("causality-by-change", sees_ahead, "change by"),
    ("causality-by-change", chooses_by_what_comes, "change by"),
    ("packed-document-leak", packed_together, "sees the one before"),
    ("input-independence", without_inputs, "no difference|labels are seen"),
    ("input-independence", sees_labels, "the labels are seen"),
    ("label-permutation", sees_labels, "the labels are seen"),
    ("label-alignment", labels_shifted_twice, "shifted more than once"),
    ("label-alignment", labels_not_shifted, "the inputs themselves"),
    ("label-alignment", hidden_loss(2), "shifted more than once"),
    ("signal-propagation", deep(0.1), "layers"),
    ("dead-units-at-start", dead, "are off"),
    ("attention-entropy", loud_queries, "saturated"),
    ("gradient-coverage", all_frozen, "nothing is trained"),
    ("gradient-coverage", head_forgotten, "2 parameters want gradients and are in no optimizer"),
    ("gradient-coverage", detached, "body.weight"),
    ("gradient-coverage", graph_cut, "graph was cut"),
    ("gradient-coverage", lora_on_zeros, "all zero"),
    ("gradient-coverage", uninitialised, "never initialised: 3.weight"),
    ("gradient-coverage", twice_held, "in two groups"),
    ("weight-decay-groups", groups(0.0, 0.1), "exchanged"),
    ("weight-decay-groups", groups(0.5, 0.0, 0.2), "10% of each weight"),
    ("accumulation-equivalence", accumulated, "differs from that of the whole batch"),
    ("order-invariance", place_matters, "turned round"),
    ("tied-embeddings", copied_embedding, "two tensors"),
    ("tied-embeddings", says_tied, "the configuration ties"),
    ("batch-norm-rows", single_rows, "a single row"),
    ("eval-determinism", drops_always, "differ by"),
    ("padding-invariance", reads_padding, "outputs at real tokens change"),
    ("padding-invariance", padded_left, "on the left"),
    ("batch-size-invariance", squeezes, "alone"),
    ("loss-misuse", with_loss(tabular, double_softmax), "softmax of it again"),
    ("loss-misuse", with_loss(tabular, likelihood_of_logits), "logits, not log-probabilities"),
    ("loss-misuse", with_loss(binary, sigmoid_twice), "sigmoid of it again"),
    ("loss-misuse", with_loss(binary, softmax_of_one), "always 1"),
    ("loss-misuse", with_loss(regression, spread), "each is compared with all"),
    ("loss-misuse", with_loss(regression, spread_by_hand), "each is compared with all"),
]

ODD: list[Case] = [
    ("batch-norm-rows", two_rows, "2 rows"),
    ("gradient-coverage", backbone_left_out, "backbone"),
    ("loss-misuse", with_loss(tabular, log_of_softmax), "logarithm"),
    ("loss-misuse", with_loss(tabular, summed), "sums over the batch"),
    ("weight-decay-groups", groups(0.1, 0.1), "norms and biases"),
    ("weight-decay-groups", groups(0.01, 0.01, kind=torch.optim.Adam), "inside the moments"),
]


def name_of(case: Any) -> str:
    return getattr(case, "__name__", "").replace("<lambda>", "") if callable(case) else str(case)


def expect(case: Case, status: str) -> None:
    name, make, words = case
    outcome = check(name, **make())
    assert outcome.status == status, outcome
    import re

    assert re.search(words, outcome.message), outcome
    if status in ("fail", "warn"):
        assert outcome.meaning
        assert outcome.next


@pytest.mark.parametrize("case", HEALTHY, ids=lambda case: f"{case[0]}-{name_of(case[1])}")
def test_a_healthy_look_alike_passes(case: Case) -> None:
    expect(case, "pass")


@pytest.mark.parametrize("case", SICK, ids=lambda case: f"{case[0]}-{name_of(case[1])}")
def test_it_fails_for_the_right_reason(case: Case) -> None:
    expect(case, "fail")


@pytest.mark.parametrize("case", ODD, ids=lambda case: f"{case[0]}-{name_of(case[1])}")
def test_what_is_unusual_is_a_warning(case: Case) -> None:
    expect(case, "warn")
