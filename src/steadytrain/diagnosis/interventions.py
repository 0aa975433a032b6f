"""Changes that fix a run, fast to invasive, each with the trial that makes the same change on a replay.

The rungs follow the order in which people try them: 1 learning rate and warm-up, 2 precision and loss scale, 3 clipping
and other limits of an update, 4 data and seeds, 5 sound operations and wiring in place of suspect ones, 6 batch size
and accumulation, 7 a minimal example and a search through versions. An intervention for a single cause is in that
cause's file. Your own package can offer one under the entry-point group ``steadytrain.interventions``.
"""

from __future__ import annotations

from steadytrain.diagnosis.cause import Intervention

AT_STEP = "BAD_STEP"
"""Stands in the code of a fix for the number of the step at fault."""

LOWER_RATE = Intervention(
    "lower-learning-rate",
    1,
    "a third of the learning rate",
    "learning-rate-third",
    code="optimizer = AdamW(model.parameters(), lr=lr / 3)",
)
TENTH_RATE = Intervention(
    "tenth-learning-rate",
    1,
    "a tenth of the learning rate",
    "learning-rate-tenth",
    code="optimizer = AdamW(model.parameters(), lr=lr / 10)  # of a schedule: its peak, max_lr / 10",
)
HOLD_RATE = Intervention(
    "hold-learning-rate",
    1,
    "hold the learning rate where it was",
    "constant-learning-rate",
    code="# leave out scheduler.step(): the rate then stays where it is",
)
FAR_LOWER_RATE = Intervention(
    "far-lower-learning-rate",
    1,
    "a hundredth of the learning rate",
    "learning-rate-hundredth",
    code="optimizer = AdamW(model.parameters(), lr=lr / 100)",
)
FARTHEST_LOWER_RATE = Intervention(
    "farthest-lower-learning-rate",
    1,
    "a thousandth of the learning rate",
    "learning-rate-thousandth",
    code="optimizer = AdamW(model.parameters(), lr=lr / 1000)",
)
HIGHER_RATE = Intervention(
    "higher-learning-rate",
    1,
    "ten times the learning rate",
    "learning-rate-up",
    code="optimizer = AdamW(model.parameters(), lr=10 * lr)",
)
LONGER_WARMUP = Intervention(
    "longer-warmup",
    1,
    "warm the learning rate up, longer",
    "longer-warmup",
    code="scheduler = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 1000))",
)

FLOAT32 = Intervention(
    "float32",
    2,
    "float32 in place of mixed precision",
    "float32",
    code='with torch.autocast("cuda", enabled=False):  # around the step',
)
BFLOAT16 = Intervention(
    "bfloat16", 2, "bfloat16 in place of float16", "bfloat16", code='with torch.autocast("cuda", dtype=torch.bfloat16):'
)
LOSS_SCALE = Intervention(
    "lower-loss-scale",
    2,
    "a smaller loss scale",
    "loss-scale-down",
    code="scaler = torch.amp.GradScaler(init_scale=2.0**10)",
)

CLIP = Intervention(
    "clip",
    3,
    "clip the global norm to a tenth of its median",
    "clip",
    code="torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)  # between backward and step",
)
UPDATE_CLIPPING = Intervention(
    "update-clipping",
    3,
    "limit the update by the RMS of gradient over moment",
    "update-clipping",
    code='group["lr"] = lr / max(1.0, rms)  # rms: root mean square of grad / sqrt(exp_avg_sq)',
)
LOWER_MOMENTUM = Intervention(
    "lower-momentum",
    3,
    "a momentum of 0.9",
    "momentum-lower",
    code="optimizer = SGD(model.parameters(), lr=lr, momentum=0.9)",
)
CLIP_USUAL = Intervention(
    "clip-usual",
    3,
    "clip the global norm at the largest that is usual",
    "clip-usual",
    code="torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)  # between backward and step",
)
BETA2 = Intervention(
    "lower-beta2",
    3,
    "beta2 of 0.9",
    "beta2-lower",
    code="optimizer = AdamW(model.parameters(), lr=lr, betas=(0.9, 0.9))",
)
RESET_MOMENTS = Intervention(
    "reset-moments",
    3,
    "clear the optimizer's moments and warm up again",
    "reset-moments",
    code="optimizer.state.clear()  # then warm the rate up again",
)
EPSILON_UP = Intervention(
    "larger-epsilon",
    3,
    "a thousand times the optimizer's epsilon",
    "epsilon-up",
    code="optimizer = AdamW(model.parameters(), lr=lr, eps=1e-5)",
)
EPSILON_DOWN = Intervention(
    "smaller-epsilon",
    3,
    "a thousandth of the optimizer's epsilon",
    "epsilon-down",
    code="optimizer = AdamW(model.parameters(), lr=lr, eps=1e-11)",
)
WEIGHT_DECAY_LOWER = Intervention(
    "lower-weight-decay",
    3,
    "a third of the weight decay",
    "weight-decay-lower",
    code="optimizer = AdamW(model.parameters(), lr=lr, weight_decay=weight_decay / 3)",
)

DROP_BATCH = Intervention(
    "drop-batch",
    4,
    "stopgap: leave the batch out",
    "drop-batch",
    code=f"if step == {AT_STEP}: continue  # counted from 1; its rows stay in the data set, and the cause stays",
)
FRESH_DATA = Intervention(
    "fresh-data",
    4,
    "earlier batches in place of the current ones",
    "fresh-data",
    code="random.shuffle(order)  # mix the part that begins here with the rest",
)
CLEAN_ROWS = Intervention(
    "clean-data",
    4,
    "read the rows, and check the data set for similar ones",
    code="print(dataset[index])  # for each row that the diagnosis names",
)
SEEDS = Intervention(
    "seeds",
    4,
    "a seed for every generator: Python, NumPy, torch, each worker",
    code="random.seed(0); numpy.random.seed(0); torch.manual_seed(0)  # and in worker_init_fn",
)
ONE_WORKER = Intervention(
    "one-worker", 4, "one loader worker", "one-worker", code="loader = DataLoader(dataset, num_workers=1)"
)

LESS_DROPOUT = Intervention("less-dropout", 5, "a dropout of 0.1, or none", "dropout-none", code="nn.Dropout(0.1)")
LESS_SMOOTHING = Intervention(
    "less-smoothing",
    5,
    "a label smoothing of 0.1, or none",
    "smoothing-none",
    code="F.cross_entropy(logits, labels, label_smoothing=0.1)",
)

MATH_ATTENTION = Intervention(
    "math-attention",
    5,
    "attention by plain operations",
    "math-attention",
    code="with sdpa_kernel(SDPBackend.MATH):  # from torch.nn.attention",
)
EAGER = Intervention("eager", 5, "without compilation", "eager", code="# leave out torch.compile(model)")
NORM = Intervention(
    "layer-norm", 5, "a norm before the named layer", code="x = torch.nn.functional.layer_norm(x, x.shape[-1:])"
)

EXAMPLE = Intervention(
    "minimal-example",
    7,
    "a minimal example with `steadytrain repro`, and a search through versions",
    command="steadytrain repro {incident}",
)

ROWS: tuple[Intervention, ...] = ()
"""Interventions that no cause lists. Each names the causes that it ``mends``."""
