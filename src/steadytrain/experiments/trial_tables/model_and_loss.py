"""Trials that change what the model computes, which parameters learn, or what the loss measures."""

from __future__ import annotations

from steadytrain.experiments.specs import Change
from steadytrain.experiments.trial import Trial
from steadytrain.experiments.trial_rows import OneChange

QK_LIMIT = 30.0
"""Above what attention in sound runs was seen to have (the cause is spoken against below it), below the 100 of
2507.20534, so that a growth is stopped before it has done its harm."""

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
    ),
    OneChange(
        "qk-clip",
        "Queries and keys made smaller where their products are too large.",
        changes=(
            "Scores of a head whose largest is above 30 are scaled down together so that it is 30, the factor taken "
            "as a constant: what clipping of the weights of queries and keys would give in this step."
        ),
        tells=(
            "Attention whose scores grow until it looks at one place only. Unlike a cap it leaves the order and the "
            "ratios of the scores as they are."
        ),
        beware="The weights are not clipped, so the scores of the script itself go on growing.",
        makes=(Change("qk-clip", {"limit": QK_LIMIT}),),
        removes="logits transient",
        either="rate half",
        alike="attention scores",
    ),
    OneChange(
        "z-loss",
        "A term that holds the logits' scale.",
        changes="1e-4 times the mean of (log of the sum of exp of the logits) squared is added to the cross-entropy.",
        tells="Output logits that drift together, which the loss does not see.",
        beware="Works over hundreds of steps.",
        makes=(Change("z-loss", {"weight": 0.0001}),),
        removes="transient",
        either="logits half",
        other_loss=True,
    ),
    OneChange(
        "loss-from-logits",
        "Probabilities turned back into logits before the cross-entropy.",
        changes="A cross-entropy that gets probabilities gets their logarithm.",
        tells="A softmax before a loss that takes logits.",
        beware="None where the loss gets logits.",
        makes=(Change("loss-from-logits"),),
        other_loss=True,
    ),
    OneChange(
        "match-shapes",
        "Targets in the shape of the predictions.",
        changes="A loss whose target would be broadcast gets it reshaped.",
        tells="[N] against [N, 1].",
        beware="None where the shapes agree.",
        makes=(Change("match-shapes"),),
        other_loss=True,
    ),
    OneChange(
        "scale-targets",
        "Targets of regression a tenth as large.",
        changes="Targets of regression losses times 0.1.",
        tells="Targets out of the model's reach.",
        beware="Another problem: the loss is smaller anyway; judged on the probes.",
        makes=(Change("scale-targets", {"factor": 0.1}),),
        other_loss=True,
    ),
    OneChange(
        "layer-norm",
        "Rows normalized by themselves in the place of batch normalization.",
        changes="Batch normalization becomes a normalization of each row, same scale and shift.",
        tells="Statistics of the batch: batches of one row, mixed sources, train against eval.",
        beware="Another function: the loss may jump at first.",
        makes=(Change("layer-norm"),),
        removes="transient",
        either="data rate moments state logits half kernel ranks shift operation script",
    ),
    OneChange(
        "leaky-units",
        "ReLU with a slope of a hundredth.",
        changes="relu becomes leaky_relu.",
        tells="Units that are dead and get no gradient.",
        beware="Another function.",
        makes=(Change("leaky-units"),),
        removes="transient",
        either="rate moments state logits half operation",
    ),
    OneChange(
        "train-mode",
        "The model in training mode in every step.",
        changes="train() before the first forward of each step.",
        tells="A forgotten train() after an evaluation.",
        beware="Layers that were meant to be in eval mode are not.",
        makes=(Change("mode", {"mode": "train"}),),
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
    ),
    OneChange(
        "thaw",
        "Frozen parameters of the optimizer get gradients.",
        changes="requires_grad is True for every parameter that the optimizer holds.",
        tells="Parameters that stay frozen by mistake.",
        beware="What was frozen on purpose is trained as well.",
        makes=(Change("thaw"),),
    ),
    OneChange(
        "optimize-all",
        "Every parameter of the model is trained.",
        changes="Frozen parameters get gradients; those that the optimizer lacks are added to its first group.",
        tells="Parameters that were left out by mistake.",
        beware="What was frozen on purpose is trained as well.",
        makes=(Change("optimize-all"),),
        removes="transient",
        either="data rate moments state logits half shift operation script",
    ),
    OneChange(
        "reinitialize",
        "Weights drawn anew.",
        changes="Each module of torch draws its weights as it does by itself; moments are cleared.",
        tells="Weights that were never drawn, or so that nothing is learnt.",
        beware="Everything that was learnt is lost.",
        makes=(Change("reinitialize"),),
        removes="logits transient",
        either="data rate moments state half kernel ranks shift operation script",
    ),
)
