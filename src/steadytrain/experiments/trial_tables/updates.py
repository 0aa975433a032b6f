"""Trials that change the update: learning rate, moments, epsilon, decay, the gradient that goes in."""

from __future__ import annotations

from steadytrain.experiments.planning import REWARM_STEPS
from steadytrain.experiments.specs import Change
from steadytrain.experiments.trial import Trial
from steadytrain.experiments.trial_rows import OneChange

ROWS: tuple[Trial, ...] = (
    OneChange(
        "learning-rate-third",
        "A third of the learning rate.",
        changes="The rate of every group times 1/3 from the snapshot on.",
        tells=(
            "Little: what makes steps smaller hides nearly every instability (bad data, wrong moments, a jump of the "
            "rate)."
        ),
        beware="A mitigation and no proof. Slower progress is its price.",
        makes=(Change("learning-rate", {"factor": 1 / 3}),),
        removes="rate moments state logits transient",
        either="data half kernel ranks shift operation script",
        alike="smaller steps",
    ),
    OneChange(
        "learning-rate-tenth",
        "A tenth of the learning rate.",
        changes="The rate of every group times 0.1 from the snapshot on.",
        tells="A rate that is far too high; else as little as learning-rate-third.",
        beware="A mitigation and no proof.",
        makes=(Change("learning-rate", {"factor": 0.1}),),
        removes="rate moments state logits transient",
        either="data half kernel ranks shift operation script",
        alike="smaller steps",
    ),
    OneChange(
        "learning-rate-zero",
        "No update at all.",
        changes="The rate of every group is 0: forward and backward run, weights stay.",
        tells=(
            "Whether the symptom comes of training at all, or of the data alone: a loss that rises without updates is "
            "a shift."
        ),
        beware="Statistics of batch normalization still move.",
        makes=(Change("learning-rate", {"factor": 0.0}),),
        removes="transient",
        either="data rate moments state logits half kernel ranks shift operation script",
    ),
    OneChange(
        "learning-rate-up",
        "Ten times the learning rate.",
        changes="The rate of every group times 10 from the snapshot on.",
        tells="A rate that is too low: the run learns at ten times its rate and did not before.",
        beware="Makes every instability worse.",
        makes=(Change("learning-rate", {"factor": 10.0}),),
        removes="transient",
        either="shift script",
    ),
    OneChange(
        "rewarm",
        "The learning rate warmed up again, moments left as they are.",
        changes=(
            "The rate rises over some steps after the snapshot, and after the script has loaded a state of the "
            "optimizer."
        ),
        tells="The control of reset-moments.",
        beware="A smaller rate for a while, which hides much.",
        makes=(Change("ramp-learning-rate", {"steps": REWARM_STEPS}),),
        removes="transient",
        either="data rate moments state logits operation script",
        alike="smaller steps",
    ),
    OneChange(
        "beta2-lower",
        "A second moment that forgets within ten steps.",
        changes="beta2 is 0.9 from the snapshot on.",
        tells=(
            "Moments: a second moment that lags or is stale. A learning rate that is too high does not answer to it."
        ),
        beware="Noisier updates.",
        makes=(Change("beta2", {"value": 0.9}),),
        removes="moments state transient",
        either="data operation",
    ),
    OneChange(
        "epsilon-up",
        "A thousand times the optimizer's epsilon.",
        changes="epsilon times 1000 from the snapshot on.",
        tells="Weights whose second moment is near nothing, so that noise is divided by epsilon alone.",
        beware="Slows all weights with small gradients.",
        makes=(Change("epsilon", {"factor": 1000.0}),),
        removes="moments transient",
        either="rate state operation script",
    ),
    OneChange(
        "epsilon-down",
        "A thousandth of the optimizer's epsilon.",
        changes="epsilon divided by 1000 from the snapshot on.",
        tells="An epsilon that stands above the second moments and so stops learning.",
        beware="In 16 bits a small epsilon is zero.",
        makes=(Change("epsilon", {"factor": 0.001}),),
        removes="transient",
        either="operation",
    ),
    OneChange(
        "update-clipping",
        "Updates limited to the learning rate.",
        changes="Each tensor's update is divided by the root mean square of (update / rate) where that is above 1.",
        tells="A second moment that lags behind grown gradients.",
        beware="Does nothing for optimizers that take no normalized step.",
        makes=(Change("clip-updates"),),
        removes="moments state transient",
        either="data rate logits operation script",
    ),
    OneChange(
        "weight-decay-higher",
        "Three times the weight decay.",
        changes="Weight decay times 3 from the snapshot on.",
        tells="Norms or logits that grow without a bound.",
        beware="Takes hundreds of steps to show.",
        makes=(Change("weight-decay", {"factor": 3.0}),),
        removes="transient",
        either="logits",
    ),
    OneChange(
        "weight-decay-lower",
        "A third of the weight decay.",
        changes="Weight decay divided by 3 from the snapshot on.",
        tells="Decay that eats the weights.",
        beware="Takes hundreds of steps to show.",
        makes=(Change("weight-decay", {"factor": 1 / 3}),),
        removes="transient",
        either="logits",
        alike="decay",
    ),
    OneChange(
        "weight-decay-none",
        "No weight decay.",
        changes="Weight decay is 0 from the snapshot on.",
        tells="Decay that eats the weights, or has the wrong sign.",
        beware="Takes some steps to show.",
        makes=(Change("weight-decay", {"factor": 0.0}),),
        removes="transient",
        either="logits",
        alike="decay",
    ),
    OneChange(
        "zero-grad",
        "Gradients cleared at the beginning of each step.",
        changes="Before the first forward of a step all gradients are cleared.",
        tells="A missing zero_grad, which mimics a learning rate that is too high.",
        beware="None where the script clears them itself.",
        makes=(Change("zero-gradients"),),
    ),
    OneChange(
        "accumulation-mean",
        "The accumulated gradient divided by its number of micro-batches.",
        changes="At the gate every gradient is divided by the number of calls.",
        tells="A missing division by the number of micro-batches.",
        beware="Under Adam the scale of a gradient matters little.",
        makes=(Change("accumulation-mean"),),
        alike="accumulation",
    ),
    OneChange(
        "accumulation-one",
        "One micro-batch a step.",
        changes="Of an accumulated step only the first micro-batch counts, its gradient times their number.",
        tells="Accumulation that sums where it should average, or mixes micro-batches.",
        beware="Noisier gradients. Right where the script divides by the number of micro-batches.",
        makes=(Change("accumulation-one"),),
        alike="accumulation",
    ),
)
