# expect: sick
# symptom: the distillation loss is negative and the student's perplexity is worse than that of its teacher by far
# axis: loss
# cause: F.kl_div gets the student's probabilities as input although it expects log-probabilities
# says: kl.?div.*log|log.?(soft|prob)|(student|input).*(softmax|prob).*(instead|not|without|missing).*log
# onset_step: 0
# fix: pass log_softmax of the student's logits to F.kl_div
# mended: the script applies that change if the environment has MENDED=1
"""Distil a small GPT-2 into a smaller one with a Trainer subclass (temperature-scaled teacher targets)."""

import math
import os
import tempfile

import torch
import torch.nn.functional as F
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
set_seed(17)
VOCAB, T = 60, 32


class ChainCorpus(Dataset):
    """Second order chains: the next token depends on the two before it through a sparse table."""

    def __init__(self, n, seed):
        table = torch.randint(0, VOCAB, (VOCAB, 4, 3), generator=torch.Generator().manual_seed(0))
        g = torch.Generator().manual_seed(seed)
        ids = torch.zeros(n, T, dtype=torch.long)
        ids[:, :2] = torch.randint(0, VOCAB, (n, 2), generator=g)
        pick = torch.multinomial(torch.tensor([0.6, 0.3, 0.1]), n * T, True, generator=g).view(n, T)
        for t in range(2, T):
            ids[:, t] = table[ids[:, t - 1], ids[:, t - 2] % 4, pick[:, t]]
        self.ids = ids

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


def gpt(d, layers):
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCAB,
            n_positions=T,
            n_embd=d,
            n_layer=layers,
            n_head=4,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


@torch.no_grad()
def perplexity(model, data):
    model.eval()
    loss = model(input_ids=data.ids, labels=data.ids).loss.item()
    return math.exp(min(loss, 50.0))


class DistilTrainer(Trainer):
    def __init__(self, *args, teacher, temperature=2.0, **kw):
        super().__init__(*args, **kw)
        self.teacher, self.temperature = teacher.eval().requires_grad_(False), temperature

    def compute_loss(self, model, inputs, return_outputs=False, **kw):
        out = model(input_ids=inputs["input_ids"])
        with torch.no_grad():
            ref = self.teacher(input_ids=inputs["input_ids"]).logits
        tau = self.temperature
        normalise = F.log_softmax if MENDED else F.softmax
        student = normalise(out.logits / tau, dim=-1).flatten(0, 1)
        target = F.softmax(ref / tau, dim=-1).flatten(0, 1)
        loss = tau * tau * F.kl_div(student, target, reduction="batchmean")
        return (loss, out) if return_outputs else loss


class Show(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kw):
        if logs and "loss" in logs:
            print(f"distil step {state.global_step:4d} loss {float(logs['loss']):.4f}")


def main():
    train, held = ChainCorpus(4000, 1), ChainCorpus(200, 2)
    teacher = gpt(96, 2)
    opt = torch.optim.AdamW(teacher.parameters(), lr=3e-3, weight_decay=0.01)
    warm = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=250, pct_start=0.1)
    for step in range(250):
        ids = train.ids[torch.randint(0, len(train), (24,))]
        loss = teacher(input_ids=ids, labels=ids).loss
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(teacher.parameters(), 1.0)
        opt.step()
        warm.step()
        if step % 50 == 0:
            print(f"teacher step {step:4d} loss {loss.item():.4f}")
    print(f"teacher perplexity {perplexity(teacher, held):.2f}")

    student = gpt(64, 1)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        max_steps=250,
        per_device_train_batch_size=24,
        learning_rate=3e-3,
        warmup_steps=20,
        lr_scheduler_type="cosine",
        logging_steps=20,
        weight_decay=0.01,
        report_to="none",
        use_cpu=True,
        save_strategy="no",
        seed=17,
        disable_tqdm=True,
    )
    trainer = DistilTrainer(model=student, args=args, train_dataset=train, teacher=teacher, callbacks=[Show()])
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    print(f"student perplexity {perplexity(student, held):.2f} (teacher {perplexity(teacher, held):.2f})")


if __name__ == "__main__":
    main()
