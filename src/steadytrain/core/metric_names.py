"""Names of metrics that are logged occasionally: whether one is a loss or a score, and its task or domain."""

from __future__ import annotations

import re

LOSS = frozenset({"loss", "nll", "ce", "perplexity", "ppl"})
SCORE = frozenset({"acc", "accuracy", "bleu", "em", "f1", "mrr", "ndcg", "precision", "recall", "rouge", "score"})
HELD_OUT = frozenset({"eval", "evaluation", "val", "valid", "validation", "test", "dev"})
TIMES = frozenset({"runtime", "second", "seconds", "samples", "steps", "time", "throughput", "memory", "lr", "rate"})
SUMMARIES = frozenset(
    {"avg", "epoch", "exact", "macro", "match", "mean", "metric", "metrics", "micro", "step", "total"}
)

HIGHER = SCORE | {
    "auc",
    "dice",
    "iou",
    "map",
    "psnr",
    "rew",
    "return",
    "returns",
    "reward",
    "rewards",
    "ssim",
    "success",
    "win",
}
LOWER = LOSS | {"bpb", "bpc", "cer", "err", "error", "fid", "mae", "mse", "rmse", "wer"}
NO_LEVEL = frozenset(
    {"chosen", "coef", "count", "kl", "length", "margin", "margins", "max", "min", "num", "ratio", "rejected", "scale"}
    | {"std", "var", "weight"}
)
"""Words that name metrics without a preferred direction."""

GENERIC = LOSS | SCORE | HELD_OUT | SUMMARIES
"""Words for how something was measured. The remaining words of a name say what was measured."""

EVALUATION_LOSS = "evaluation-loss"
"""The loss of an evaluation that the script makes itself, as a watch reads it; further ones have numbers."""

OF_SCALE, OF_PART = "(own scale)", "(part)"
"""The training loss is another one, so that the levels say nothing; there are several losses of one evaluation."""

TRAINING_LEVEL = "training-level"
"""The training loss at each of them, first that of the first steps."""


def words(name: str) -> list[str]:
    """Split a name into lower-case words: ``eval/news_accuracy`` becomes ``eval``, ``news``, ``accuracy``."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name.replace("mAP", " map "))
    return [word for word in re.split(r"[^a-z0-9]+", spaced.lower()) if word]


def is_loss(name: str) -> bool:
    """Whether ``name`` is a loss on held-out data: lower is better."""
    found = set(words(name))
    return bool(found & LOSS) and bool(found & HELD_OUT) and not found & TIMES


def is_score(name: str) -> bool:
    """Whether ``name`` is a score: higher is better."""
    found = set(words(name))
    return bool(found & SCORE) and not found & (LOSS | TIMES)


def is_of_script(name: str) -> bool:
    """Whether a watch has read the values of ``name`` itself."""
    return name.startswith((EVALUATION_LOSS, TRAINING_LEVEL))


def qualifier(name: str) -> str:
    """The task or domain in ``name``, "" if it has none."""
    if is_of_script(name):
        return ""
    return " ".join(word for word in words(name) if word not in GENERIC and not word.isdigit())


def direction(name: str) -> int:
    """1 if higher is better (accuracy, return), -1 if lower is better (perplexity, losses), 0 if unknown."""
    found = set(words(name))
    if found & (TIMES | NO_LEVEL):
        return 0
    return -1 if found & LOWER else 1 if found & HIGHER else 0
