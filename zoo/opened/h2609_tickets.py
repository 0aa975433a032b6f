# expect: healthy
# symptom: most parameters get no gradient and never change during fine-tuning (resembles detached or forgotten layers)
# axis: model
"""Ticket routing with a small BERT: masked-token pretraining first, then a Trainer run on a frozen trunk."""

import os

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

torch.set_num_threads(1)
PAD, CLS, SEP, MASK, BASE = 0, 1, 2, 3, 4
N_TOPICS, WORDS, LEN = 6, 100, 20


def corpus(n, seed):
    """Each topic prefers its own share of the vocabulary; the rest is common filler."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(0, N_TOPICS, n)
    ids = np.full((n, LEN), PAD)
    for r in range(n):
        k = rng.integers(10, LEN - 1)
        own = topics[r] * 12 + rng.integers(0, 12, k)
        filler = 72 + rng.integers(0, WORDS - 72, k)
        stray = rng.integers(0, 72, k)
        u = rng.random(k)
        w = np.where(u < 0.6, own, np.where(u < 0.85, filler, stray))
        ids[r, 0] = CLS
        ids[r, 1 : k + 1] = BASE + w
        ids[r, k + 1 if k + 1 < LEN else LEN - 1] = SEP
    return torch.tensor(ids), torch.tensor(topics)


class Tickets(torch.utils.data.Dataset):
    def __init__(self, ids, y):
        self.ids, self.y = ids, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "attention_mask": (self.ids[i] != PAD).long(), "labels": self.y[i]}


class ShowLoss(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kw):
        keep = {
            k: (round(v, 4) if isinstance(v, float) else v)
            for k, v in (logs or {}).items()
            if k in ("loss", "eval_loss", "eval_accuracy", "grad_norm")
        }
        if keep:
            print("step", state.global_step, keep, flush=True)


def pretrain(cfg, ids, steps=400):
    lm = BertForMaskedLM(cfg)
    opt = torch.optim.AdamW(lm.parameters(), lr=3e-3, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=steps)
    for s in range(1, steps + 1):
        x = ids[torch.randint(len(ids), (48,))]
        hide = (torch.rand(x.shape) < 0.2) & (x >= BASE)
        logits = lm(input_ids=x.masked_fill(hide, MASK), attention_mask=(x != PAD).long()).logits
        loss = F.cross_entropy(logits[hide], x[hide])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if s % 50 == 0:
            print(f"pretrain {s} mlm loss {loss.item():.4f}")
    return lm.bert.state_dict()


def main():
    set_seed(19)
    ids, y = corpus(6000, 1)
    v_ids, v_y = corpus(800, 2)
    cfg = BertConfig(
        vocab_size=BASE + WORDS,
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=LEN,
        num_labels=N_TOPICS,
        initializer_range=0.06,
        hidden_dropout_prob=0.05,
        attention_probs_dropout_prob=0.05,
    )
    trunk = pretrain(cfg, ids)
    model = BertForSequenceClassification(cfg)
    model.bert.load_state_dict(trunk, strict=False)
    for p in model.bert.embeddings.parameters():
        p.requires_grad_(False)
    for layer in model.bert.encoder.layer[:2]:
        for p in layer.parameters():
            p.requires_grad_(False)
    n_all = sum(p.numel() for p in model.parameters())
    n_on = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print(f"trainable {n_on} of {n_all}")
    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(
            output_dir=out,
            per_device_train_batch_size=32,
            per_device_eval_batch_size=200,
            max_steps=240,
            learning_rate=1e-3,
            warmup_steps=20,
            lr_scheduler_type="cosine",
            logging_steps=20,
            eval_strategy="steps",
            eval_steps=80,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            dataloader_num_workers=0,
            seed=19,
        )
        acc = lambda p: {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())}
        tr = Trainer(
            model=model,
            args=args,
            train_dataset=Tickets(ids[:2500], y[:2500]),
            eval_dataset=Tickets(v_ids, v_y),
            compute_metrics=acc,
            callbacks=[ShowLoss()],
        )
        tr.train()
        print("final", {k: round(v, 4) for k, v in tr.evaluate().items() if k in ("eval_loss", "eval_accuracy")})


if __name__ == "__main__":
    main()
