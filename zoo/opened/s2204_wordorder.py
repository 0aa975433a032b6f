# expect: sick
# symptom: the loss settles at ln 2 and validation accuracy stays at chance although the task is easy; nothing explodes
# axis: harness
# cause: reentrant gradient checkpointing over frozen embeddings - the input of the checkpointed layers does not require grad, so the encoder layers get no gradients and only the classifier trains
# says: checkpoint.{0,250}(reentrant|grad|frozen|froze|requires_grad|not (train|updat)|never (train|updat))|(reentrant|no gradients?|None|frozen|froze|requires_grad).{0,250}checkpoint
# onset_step: 1
# fix: call checkpoint with use_reentrant=False (or make the embedding output require grad)
# mended: yes
"""Train a compact text encoder on a synthetic 'who did it' sentence task with the HF Trainer.

Each sentence holds two names, a verb in the active or passive voice and filler words. The label says
which gender the acting person has. Word vectors are kept as delivered.
"""

import os
import random
import tempfile
import time

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

torch.set_num_threads(1)
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

FEM = ["anna", "berta", "clara", "dora", "emma", "frida"]
MASC = ["adam", "boris", "carl", "david", "emil", "felix"]
VERBS = ["saw", "hired", "paid", "called", "followed", "trusted"]
FILL = ["yesterday", "quietly", "again", "perhaps", "often", "then"]
VOCAB = ["[PAD]", "[CLS]", "[SEP]", "was", "by"] + FEM + MASC + VERBS + FILL
IDX = {w: i for i, w in enumerate(VOCAB)}
MAX_LEN = 12


def sentence(rng):
    f, m = rng.choice(FEM), rng.choice(MASC)
    first, second = (f, m) if rng.random() < 0.5 else (m, f)
    words = [first]
    if rng.random() < 0.5:
        words += [rng.choice(VERBS), second]
        actor = first
    else:
        words += ["was", rng.choice(VERBS), "by", second]
        actor = second
    for _ in range(rng.randint(0, 3)):
        words.insert(rng.choice([0, len(words)]), rng.choice(FILL))
    return words, int(actor in FEM)


def encode(words):
    ids = [IDX["[CLS]"]] + [IDX[w] for w in words] + [IDX["[SEP]"]]
    pad = MAX_LEN - len(ids)
    return ids + [0] * pad, [1] * len(ids) + [0] * pad


def build(n, seed):
    rng = random.Random(seed)
    rows = {"input_ids": [], "attention_mask": [], "labels": []}
    for _ in range(n):
        words, y = sentence(rng)
        ids, mask = encode(words)
        rows["input_ids"].append(ids)
        rows["attention_mask"].append(mask)
        rows["labels"].append(y)
    return Dataset.from_dict(rows)


def word_vectors(dim, seed=17):
    """Stand-in for the delivered vectors: clustered by word class."""
    rng = np.random.default_rng(seed)
    vec = rng.normal(0, 0.25, (len(VOCAB), dim))
    for group in (FEM, MASC, VERBS, FILL):
        vec[[IDX[w] for w in group]] += rng.normal(0, 0.5, dim)
    return torch.tensor(vec, dtype=torch.float32)


class Encoder(nn.Module):
    def __init__(self, dim=64, layers=3, heads=4, reentrant=True):
        super().__init__()
        self.reentrant = reentrant
        self.words = nn.Embedding.from_pretrained(word_vectors(dim), freeze=True, padding_idx=0)
        pos = torch.arange(MAX_LEN)[:, None] / torch.logspace(0, 1.5, dim // 2)[None]
        self.register_buffer("pos", torch.cat([pos.sin(), pos.cos()], 1) * 0.5)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, heads, 2 * dim, dropout=0.05, batch_first=True, activation="gelu")
            for _ in range(layers)
        )
        self.classifier = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2))

    def forward(self, input_ids, attention_mask, labels=None):
        x = self.words(input_ids) + self.pos
        pad = attention_mask == 0
        for layer in self.layers:
            if self.training:
                x = checkpoint(layer, x, None, pad, use_reentrant=self.reentrant)
            else:
                x = layer(x, src_key_padding_mask=pad)
        logits = self.classifier(x[:, 0])
        out = {"logits": logits}
        if labels is not None:
            out = {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}
        return out


def accuracy(pred):
    return {"accuracy": float((pred.predictions.argmax(-1) == pred.label_ids).mean())}


class Printer(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kw):
        keep = {k: round(v, 4) for k, v in logs.items() if k in ("loss", "learning_rate", "eval_loss", "eval_accuracy")}
        if keep:
            print(state.global_step, keep, flush=True)


def main():
    set_seed(21)
    start = time.time()
    model = Encoder(reentrant=os.environ.get("MENDED") != "1")
    n_train = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print(f"trainable parameters: {n_train}")
    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(
            output_dir=out,
            max_steps=500,
            per_device_train_batch_size=32,
            per_device_eval_batch_size=200,
            learning_rate=1e-3,
            warmup_steps=40,
            lr_scheduler_type="cosine",
            weight_decay=0.01,
            logging_steps=25,
            eval_strategy="steps",
            eval_steps=100,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            seed=21,
            use_cpu=True,
        )
        trainer = Trainer(
            model=model,
            args=args,
            train_dataset=build(4000, 1),
            eval_dataset=build(600, 2),
            compute_metrics=accuracy,
            callbacks=[Printer()],
        )
        for cb in list(trainer.callback_handler.callbacks):
            if cb.__class__.__name__ in ("PrinterCallback", "ProgressCallback"):
                trainer.remove_callback(cb.__class__)
        trainer.train()
        final = trainer.evaluate()
    print(f"final accuracy {final['eval_accuracy']:.4f}, {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
