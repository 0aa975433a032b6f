"""A norm over too few values, or the wrong ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, HINT, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.signs import Signs, above, below, fact, first_name, listed, seen, surveyed, symptom, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class NormalizationMisuse(Cause):
    """A normalisation has too few values, the wrong dimension, or statistics of other data.

    Means:
        Batch norm over one value outputs its bias for any input; over two values it gives plus and minus one. Running
        statistics from damaged or other batches make evaluation wrong while training looks fine. A norm over the wrong
        dimension mixes rows.

    Causes:
        - batch size 1 per device, or a last batch of 1 (pytorch #1206, SparseConvNet #105)
        - a batch of 2 to 4 rows in front of `BatchNorm1d`: its statistics are noise
        - a frozen backbone in training mode: its running statistics move though its weights do not
        - statistics poisoned by one batch; momentum of 1
        - statistics that never move, or hardly: a momentum of 0, or one of 0.001 in a run of some hundred steps
        - an average of the weights (EMA, SWA) without the buffers of the model and without `update_bn`
        - `LayerNorm` over a dimension of size 1

    Next:
        1. Group or layer norm in place of batch norm, or drop the last batch.
        2. Synchronise statistics over ranks.
        3. Compare the loss in training mode and in evaluation mode on one batch.
    """

    axis = "model"
    base_rate = 7.0
    rivals = ("train-eval-mode", "bad-initialization", "dead-units", "learning-rate-too-high", "learning-rate-too-low")
    expects = like("script", removed=("layer-norm",), either=("drop-batch",))
    confirming = ("layer-norm",)
    spared = ("learning-rate-third", "float32")
    interventions = (
        Intervention(
            "drop-last",
            4,
            "leave out a last batch of one row",
            code="loader = DataLoader(dataset, batch_size=batch_size, shuffle=True, drop_last=True)",
        ),
        Intervention(
            "usual-momentum",
            4,
            "the default momentum of batch norms",
            code="torch.nn.BatchNorm2d(channels, momentum=0.1)",
            of=("frozen-running-statistics",),
        ),
        Intervention(
            "average-buffers",
            4,
            "give an average of the weights the buffers of the model, too",
            code="for mine, theirs in zip(average.buffers(), model.buffers()): mine.copy_(theirs)",
            of=("kept-statistics",),
        ),
        Intervention(
            "layer-norm",
            5,
            "group or layer norm in place of batch norm",
            "layer-norm",
            code="x = torch.nn.functional.layer_norm(x, x.shape[-1:])",
        ),
        Intervention(
            "larger-batch", 6, "more rows in each batch", code="loader = DataLoader(dataset, batch_size=4 * batch_size)"
        ),
    )
    grade = "A"
    source = "pytorch #1206; SparseConvNet #105, #190; BMN #22"

    def signature(self, case: Case) -> Signature:
        few = _few(case)
        return Signature(
            (
                *when(bool(few), CERTAIN, few, "fact too_few_values", invariant=True),
                *below(
                    case,
                    "batch_norm_values",
                    4.5,
                    CERTAIN,
                    "a batch norm in training had {value} values a channel",
                    invariant=True,
                ),
                *listed(
                    case, "norm_over_batch", CERTAIN, "norms over a dimension of one value: {names}", invariant=True
                ),
                *when(
                    _variance(case) > 1e6 or 0 <= _variance(case, smallest=True) < 1e-8,
                    FAIR,
                    "running variances are out of bounds",
                    "fact batch_norm_variance",
                ),
                *_never_learned(case),
                *symptom(case, CERTAIN, "kept-statistics", "few-norm-values", invariant=True),
                *symptom(case, STRONG, "moving-frozen-norms", notes=True),
                *symptom(case, HINT, "validation-gap", "no-learning", "plateau", "loss-spike"),
                *when(
                    surveyed(case)
                    and not few
                    and not fact(case, "batch_norm_modules")
                    and not fact(case, "norm_over_batch"),
                    -STRONG,
                    "there is no batch norm",
                    "facts",
                ),
                *above(case, "batch_norm_values", 15.5, -FAIR, "batch norms had at least {value} values a channel"),
            ),
            layer=first_name(case, "norm_over_batch") or first_name(case, "batch_norm_modules"),
        )


def _never_learned(case: Case) -> Signs:
    """Running statistics that the script's own momentum keeps at what they began with: a warning says so."""
    found = seen(case, "frozen-running-statistics")
    told = found is not None and found.severity == "warning"
    return symptom(case, CERTAIN if told else STRONG, "frozen-running-statistics", invariant=told)


def _few(case: Case) -> str:
    """The error that ended the run, if a norm in training mode got one value a channel; else ""."""
    found = fact(case, "too_few_values")
    if not isinstance(found, Mapping):
        return ""
    place = f" at {found['line']}" if found.get("line") else ""
    who = "a batch of one row" if found.get("rows") == 1 or found["shape"][:1] == [1] else "one value a channel"
    return f"a norm in training mode got {who}{place}: its input has the size {found['shape']}"


def _variance(case: Case, *, smallest: bool = False) -> float:
    found = fact(case, "batch_norm_variance")
    return float(found[0 if smallest else 1]) if isinstance(found, list) and len(found) == 2 else -1.0
