# expect: healthy
# symptom: resembles a broken schedule and a partly detached model: learning rate restarts, loss bumps, and most parameters get no gradient
# axis: schedule
"""Adapting a small GPT-2 to a new corpus with the Hugging Face Trainer.

Phase A: language model on corpus A.  Phase B: the lower blocks stay fixed, the
upper block, final norm and embeddings adapt to corpus B with warm restarts.
"""

import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

torch.set_num_threads(1)
set_seed(12)

VOCAB, LEN = 40, 24


class MarkovCorpus(Dataset):
    """Second-order sequences: next token depends on the last two tokens."""

    def __init__(self, size, seed, table_seed):
        tab = np.random.default_rng(table_seed)
        self.a, self.b, self.c = tab.permutation(VOCAB), tab.permutation(VOCAB), int(tab.integers(1, VOCAB))
        g = np.random.default_rng(seed)
        seq = np.zeros((size, LEN), dtype=np.int64)
        seq[:, :2] = g.integers(0, VOCAB, (size, 2))
        for t in range(2, LEN):
            nxt = self.a[seq[:, t - 1]] if t % 2 else self.b[seq[:, t - 1]]
            noise = g.random(size) < 0.1
            seq[:, t] = np.where(noise, g.integers(0, VOCAB, size), nxt)
        self.seq = torch.from_numpy(seq)

    def __len__(self):
        return len(self.seq)

    def __getitem__(self, i):
        return {"input_ids": self.seq[i], "labels": self.seq[i]}


class Printer(TrainerCallback):
    def __init__(self, tag):
        self.tag = tag

    def on_log(self, args, state, control, logs=None, **kw):
        keys = ("loss", "eval_loss", "learning_rate", "grad_norm")
        shown = {k: round(float(v), 5) for k, v in (logs or {}).items() if k in keys}
        if shown:
            print(self.tag, state.global_step, shown)


def arguments(steps, lr, **extra):
    return TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        max_steps=steps,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=64,
        learning_rate=lr,
        logging_steps=20,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        dataloader_num_workers=0,
        weight_decay=0.01,
        max_grad_norm=1.0,
        seed=12,
        **extra,
    )


def main():
    config = GPT2Config(
        vocab_size=VOCAB,
        n_positions=LEN,
        n_embd=64,
        n_layer=3,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)

    first = Trainer(
        model=model,
        args=arguments(220, 2e-3, lr_scheduler_type="cosine", warmup_steps=20),
        train_dataset=MarkovCorpus(6000, 1, 100),
        eval_dataset=MarkovCorpus(256, 2, 100),
        callbacks=[Printer("A")],
    )
    first.train()
    print("A eval", round(first.evaluate()["eval_loss"], 4))

    for block in model.transformer.h[:2]:
        block.requires_grad_(False)
    model.transformer.wpe.requires_grad_(False)
    n_all = sum(p.numel() for p in model.parameters())
    n_on = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print(f"adapting {n_on} of {n_all} parameters")

    second = Trainer(
        model=model,
        args=arguments(
            300, 3e-3, lr_scheduler_type="cosine_with_restarts", warmup_steps=10, lr_scheduler_kwargs={"num_cycles": 3}
        ),
        train_dataset=MarkovCorpus(9600, 3, 200),
        eval_dataset=MarkovCorpus(256, 4, 200),
        callbacks=[Printer("B")],
    )
    print("B eval before", round(second.evaluate()["eval_loss"], 4))
    second.train()
    print("B eval after", round(second.evaluate()["eval_loss"], 4))


if __name__ == "__main__":
    main()
