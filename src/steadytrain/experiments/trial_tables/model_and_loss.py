"""Trials that change what the model computes, which parameters learn, or what the loss measures."""

from __future__ import annotations

from steadytrain.experiments.specs import Change
from steadytrain.experiments.trial import Trial
from steadytrain.experiments.trial_rows import OneChange

QK_LIMIT = 30.0
"""Limit of attention logits: above those of healthy runs (lower ones are evidence against the cause) and below the 100
of 2507.20534, so that it stops growth in time."""

ROWS: tuple[Trial, ...] = (
    OneChange(
        "attention-softcap",
        "Attention scores with a soft limit of 30.",
        changes="Scores s become 30 tanh(s / 30) before the softmax.",
        tells="Attention logits that grow until the softmax is one-hot.",
        beware="A model that needs sharp attention gets worse.",
        makes=(Change("attention-softcap", {"cap": 30.0}),),
        removes="logits transient",
        either="rate half",
        alike="attention scores",
        axis="model",
    ),
    OneChange(
        "qk-clip",
        "Queries and keys scaled down where their products are too large.",
        changes=(
            "If the largest score of a head is above 30, all its scores are scaled so that it is 30, with the factor "
            "as a constant: the same as clipping the query and key weights in this step."
        ),
        axis="model",
        tells=(
            "Attention scores that grow until each query attends to one position. Unlike a cap it "
            "keeps the order and the "
            "ratios of the scores."
        ),
        beware="The weights are not clipped, so the script's own scores keep growing.",
        makes=(Change("qk-clip", {"limit": QK_LIMIT}),),
        removes="logits transient",
        either="rate half",
        alike="attention scores",
    ),
    OneChange(
        "z-loss",
        "A loss term that limits the scale of the logits.",
        changes="1e-4 times the mean of (log of the sum of exp of the logits) squared is added to the cross-entropy.",
        tells="Output logits that drift together, which does not change the loss.",
        beware="Works over hundreds of steps.",
        makes=(Change("z-loss", {"weight": 0.0001}),),
        removes="transient",
        either="logits half",
        other_loss=True,
        axis="loss",
    ),
    OneChange(
        "loss-from-logits",
        "Probabilities turned back into logits before the cross-entropy.",
        changes="A cross-entropy that gets probabilities gets their logarithm.",
        tells="A softmax before a loss that takes logits.",
        beware="None where the loss gets logits.",
        makes=(Change("loss-from-logits"),),
        other_loss=True,
        axis="loss",
    ),
    OneChange(
        "match-shapes",
        "Targets in the shape of the predictions.",
        changes="A loss whose target would be broadcast gets it reshaped.",
        tells="[N] against [N, 1].",
        beware="None where the shapes agree.",
        makes=(Change("match-shapes"),),
        other_loss=True,
        axis="loss",
    ),
    OneChange(
        "scale-targets",
        "Regression targets a tenth as large.",
        changes="Targets of regression losses times 0.1.",
        tells="Targets outside the range of the model's output.",
        beware="A different problem with a smaller loss; compare the probes.",
        makes=(Change("scale-targets", {"factor": 0.1}),),
        other_loss=True,
        axis="loss",
    ),
    OneChange(
        "layer-norm",
        "Each row normalized separately in place of batch normalization.",
        changes="Batch normalization becomes a normalization of each row, with the same scale and shift.",
        tells="Statistics of the batch: batches of one row, mixed sources, train against eval.",
        beware="Another function: the loss may jump at first.",
        makes=(Change("layer-norm"),),
        removes="transient",
        either="data rate moments state logits half kernel ranks shift operation script",
        own_scale=True,
        axis="model",
    ),
    OneChange(
        "leaky-units",
        "ReLU with a slope of a hundredth.",
        changes="relu becomes leaky_relu.",
        tells="Dead units without a gradient.",
        beware="Another function.",
        makes=(Change("leaky-units"),),
        removes="transient",
        either="rate moments state logits half operation",
        own_scale=True,
        axis="model",
    ),
    OneChange(
        "train-mode",
        "The model in training mode in every step.",
        changes="train() before the first forward of each step.",
        tells="A forgotten train() after an evaluation.",
        beware="Layers that should be in eval mode are not.",
        makes=(Change("mode", {"mode": "train"}),),
        own_scale=True,
        axis="harness",
    ),
    OneChange(
        "eval-mode",
        "The model in evaluation mode in every step.",
        changes="eval() before the first forward of each step.",
        tells="Dropout and statistics of the batch.",
        beware="Another function: no dropout, running statistics.",
        makes=(Change("mode", {"mode": "eval"}),),
        removes="transient",
        either="data rate moments state logits half shift operation script",
        own_scale=True,
        axis="model",
    ),
    OneChange(
        "thaw",
        "Frozen parameters of the optimizer get gradients.",
        changes="requires_grad is True for every parameter that the optimizer holds.",
        tells="Parameters frozen by mistake.",
        beware="What was frozen on purpose is trained as well.",
        makes=(Change("thaw"),),
        own_scale=True,
        axis="model",
    ),
    OneChange(
        "optimize-all",
        "Every parameter of the model is trained.",
        changes="Frozen parameters get gradients; those that the optimizer lacks are added to its first group.",
        tells="Parameters left out by mistake.",
        beware="What was frozen on purpose is trained as well.",
        makes=(Change("optimize-all"),),
        removes="transient",
        either="data rate moments state logits half shift operation script",
        own_scale=True,
        axis="optimizer",
    ),
    OneChange(
        "reinitialize",
        "Weights drawn anew.",
        changes="Each torch module initialises its weights again with its default; moments are cleared.",
        tells="Weights that were never initialised, or so badly that the model cannot learn.",
        beware="The model loses everything that it learned.",
        makes=(Change("reinitialize"),),
        removes="logits transient",
        either="data rate moments state half kernel ranks shift operation script",
        own_scale=True,
        axis="model",
    ),
)
