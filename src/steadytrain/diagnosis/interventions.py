"""Changes that fix a run, fast to invasive, each with the trial that makes the same change on a replay.

The rungs follow the order in which people try them: 1 learning rate and warm-up, 2 precision and loss scale, 3 clipping
and other limits of an update, 4 data and seeds, 5 sound operations and wiring in place of suspect ones, 6 batch size
and accumulation, 7 a minimal example and a search through versions. An intervention for a single cause is in that
cause's file. Your own package can offer one under the entry-point group ``steadytrain.interventions``.
"""

from __future__ import annotations

from steadytrain.diagnosis.cause import Intervention

LOWER_RATE = Intervention("lower-learning-rate", 1, "a third of the learning rate", "learning-rate-third")
HIGHER_RATE = Intervention("higher-learning-rate", 1, "ten times the learning rate", "learning-rate-up")
LONGER_WARMUP = Intervention("longer-warmup", 1, "warm the learning rate up, longer", "longer-warmup")

FLOAT32 = Intervention("float32", 2, "float32 in place of mixed precision", "float32")
BFLOAT16 = Intervention("bfloat16", 2, "bfloat16 in place of float16", "bfloat16")
LOSS_SCALE = Intervention("lower-loss-scale", 2, "a smaller loss scale", "loss-scale-down")

CLIP = Intervention("clip", 3, "clip the global norm to a tenth of its median", "clip")
UPDATE_CLIPPING = Intervention(
    "update-clipping", 3, "limit the update by the RMS of gradient over moment", "update-clipping"
)
LOWER_MOMENTUM = Intervention("lower-momentum", 3, "a momentum of 0.9", "momentum-lower")
CLIP_USUAL = Intervention("clip-usual", 3, "clip the global norm at the largest that is usual", "clip-usual")
BETA2 = Intervention("lower-beta2", 3, "beta2 of 0.9", "beta2-lower")
RESET_MOMENTS = Intervention("reset-moments", 3, "clear the optimizer's moments and warm up again", "reset-moments")
EPSILON_UP = Intervention("larger-epsilon", 3, "a thousand times the optimizer's epsilon", "epsilon-up")
EPSILON_DOWN = Intervention("smaller-epsilon", 3, "a thousandth of the optimizer's epsilon", "epsilon-down")
WEIGHT_DECAY_LOWER = Intervention("lower-weight-decay", 3, "a third of the weight decay", "weight-decay-lower")

DROP_BATCH = Intervention("drop-batch", 4, "continue without the batch", "drop-batch")
FRESH_DATA = Intervention("fresh-data", 4, "earlier batches in place of the current ones", "fresh-data")
CLEAN_ROWS = Intervention("clean-data", 4, "read the rows, and check the data set for similar ones")
SEEDS = Intervention("seeds", 4, "a seed for every generator: Python, NumPy, torch, each worker")
ONE_WORKER = Intervention("one-worker", 4, "one loader worker", "one-worker")

MATH_ATTENTION = Intervention("math-attention", 5, "attention by plain operations", "math-attention")
EAGER = Intervention("eager", 5, "without compilation", "eager")
NORM = Intervention("layer-norm", 5, "a norm before the named layer")

EXAMPLE = Intervention(
    "minimal-example", 7, "a minimal example with `steadytrain repro`, and a search through versions"
)

ROWS: tuple[Intervention, ...] = ()
"""Interventions that no cause lists. Each names the causes that it ``mends``."""
