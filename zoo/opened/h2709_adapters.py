# expect: healthy
# symptom: resembles a model that is frozen by accident: most weights never move and half of the trainable ones have zero gradient at the first step
# axis: model
"""Sentiment of support tickets with the HF Trainer: train a small encoder on one product line,
then move to another product line with the encoder frozen and zero-initialised adapters."""

import random
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

torch.set_num_threads(1)
set_seed(31)

GOOD = "great fast solid quiet bright helpful smooth reliable".split()
BAD = "slow broken noisy dim rude flaky laggy useless".split()
FILL = "the my a very really this unit arrived today and with from box support screen".split()
PRODUCTS = {
    "router": "router wifi signal antenna firmware port".split(),
    "kettle": "kettle water lid boil cord handle".split(),
}
NEG = ["not", "never", "hardly"]
WORDS = (
    ["[PAD]", "[CLS]"] + GOOD + BAD + FILL + NEG + sum(PRODUCTS.values(), []) + ["icy", "rapid", "scorched", "leaky"]
)
INDEX = {w: i for i, w in enumerate(dict.fromkeys(WORDS))}
MAXLEN = 20


class Tickets(Dataset):
    def __init__(self, n, product, seed, flip=0.0):
        r = random.Random(seed)
        self.rows = []
        for _ in range(n):
            score, words = 0, []
            for _ in range(r.choice([1, 3])):
                sign = r.choice([1, -1])
                w = r.choice(GOOD if sign > 0 else BAD)
                if product == "kettle":
                    w = r.choice([w, "rapid"] if sign > 0 else [w, "leaky", "scorched"])
                if r.random() < 0.3:
                    words.append(r.choice(NEG))
                    sign = -sign
                words.append(w)
                score += sign
                words += r.sample(FILL, r.randint(0, 2)) + [r.choice(PRODUCTS[product])]
            label = int(score > 0)
            if r.random() < flip:
                label = 1 - label
            ids = [INDEX["[CLS]"]] + [INDEX[w] for w in words][: MAXLEN - 1]
            pad = MAXLEN - len(ids)
            self.rows.append(dict(input_ids=ids + [0] * pad, attention_mask=[1] * len(ids) + [0] * pad, labels=label))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {k: torch.tensor(v) for k, v in self.rows[i].items()}


class Adapter(nn.Module):
    """Wraps a linear layer with a low-rank detour that starts at exactly zero."""

    def __init__(self, base, rank=8, scale=2.0):
        super().__init__()
        self.base, self.scale = base, scale
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.scale * self.up(self.down(x))


class Report(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kw):
        shown = {k: round(v, 4) for k, v in logs.items() if k in ("loss", "learning_rate", "eval_loss", "eval_acc")}
        if shown:
            print(f"step {state.global_step}: {shown}", flush=True)


def accuracy(pred):
    return {"acc": float((np.argmax(pred.predictions, -1) == pred.label_ids).mean())}


def fit(model, train, held, steps, lr):
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        max_steps=steps,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=200,
        learning_rate=lr,
        lr_scheduler_type="linear",
        warmup_steps=20,
        logging_steps=40,
        eval_strategy="steps",
        eval_steps=80,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        seed=31,
    )
    trainer = Trainer(
        model=model, args=args, train_dataset=train, eval_dataset=held, compute_metrics=accuracy, callbacks=[Report()]
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()


cfg = BertConfig(
    vocab_size=len(INDEX),
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=128,
    max_position_embeddings=MAXLEN,
    hidden_dropout_prob=0.05,
    attention_probs_dropout_prob=0.0,
    num_labels=2,
)
model = BertForSequenceClassification(cfg)
print("== routers, full model")
fit(model, Tickets(6000, "router", 1), Tickets(400, "router", 2), 360, 1e-3)

print("== kettles, encoder frozen")
for p in model.bert.parameters():
    p.requires_grad = False
for layer in model.bert.encoder.layer:
    att = layer.attention.self
    att.query, att.value = Adapter(att.query), Adapter(att.value)
    layer.output.dense = Adapter(layer.output.dense)
live = sum(p.numel() for p in model.parameters() if p.requires_grad)
print(f"trainable {live} of {sum(p.numel() for p in model.parameters())}")
fit(model, Tickets(4000, "kettle", 3), Tickets(400, "kettle", 4), 320, 3e-3)
