"""Derives a model's task from its loss function, targets and inputs."""

from __future__ import annotations

from torch import Tensor

from steadytrain.checks.subject.model_check import Batch, Look, Task
from steadytrain.checks.subject.scores import Scores, scores_of
from steadytrain.checks.subject.tokens import token_ids

MOST = 0.6
"""Minimum share of the counted targets that must match a shift."""

SHIFTS = (1, 0, 2)


def task_of(look: Look, batch: Batch) -> Task:
    """The task; ``unknown`` if none fits."""
    functions = {call.function for call in look.loss_calls}
    ids = token_ids(batch)
    if any("decoder" in name for name in ids) or _is_encoder_decoder(look):
        return "seq2seq"
    scores = scores_of(look, batch.rows)
    if scores is not None:
        if scores.positions > 1 and ids:
            first, *others = ids.values()
            if agreement(scores, first, 1) < MOST and any(agreement(scores, other, 1) >= MOST for other in others):
                return "seq2seq"
            return _of_tokens(scores, first)
        return "classification"
    if functions & {"binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "nll_loss"}:
        return "classification"
    if functions & {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "gaussian_nll_loss", "difference"}:
        return "regression"
    return "unknown"


def agreement(scores: Scores, ids: Tensor, shift: int) -> float:
    """The share of counted targets at position t that equal the token at t + shift."""
    length = min(scores.positions, ids.shape[1])
    if len(ids) != len(scores.targets) or length <= shift:
        return 0.0
    end = min(length, ids.shape[1] - shift)
    targets, counted = scores.targets[:, :end], scores.counted[:, :end]
    wanted = ids[:, shift : shift + end].to(targets.device)
    total = int(counted.sum())
    return float(((targets == wanted) & counted).sum()) / total if total else 0.0


def _of_tokens(scores: Scores, ids: Tensor) -> Task:
    """A causal or masked language model, or a classification of each token."""
    best = max(SHIFTS, key=lambda shift: agreement(scores, ids, shift))
    if agreement(scores, ids, best) >= MOST:
        return "causal-lm"
    share = float(scores.counted.float().mean())
    largest = int(ids.max())
    if share < MOST and scores.classes > largest // 2:
        return "masked-lm"
    return "classification"


def _is_encoder_decoder(look: Look) -> bool:
    config = getattr(look.calls[-1][0], "config", None) if look.calls else None
    return bool(getattr(config, "is_encoder_decoder", False))
