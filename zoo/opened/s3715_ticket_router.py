# expect: sick
# symptom: the Trainer runs without error but the loss stays near ln(6) and the accuracy near chance
# axis: schedule
# cause: the LambdaLR function returns the learning rate itself, not a factor, so the lr is squared (1e-6)
# says: (lambda|factor|multipl|squar|schedul).*(multipl|factor|squar|product|relative|absolute|twice|1e-0?6|base)
# onset_step: 0
# fix: return a factor relative to the base learning rate from the function given to LambdaLR
# mended: the script applies that change if the environment has MENDED=1
"""Routes support tickets to one of six queues: DistilBERT-style model, trained with transformers.Trainer."""

import math
import os
import random
import tempfile

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch.utils.data import Dataset
from transformers import (
    DistilBertConfig,
    DistilBertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
MAX_STEPS, WARMUP, PEAK_LR, MIN_LR, BATCH, WIDTH = 260, 25, 1e-3, 5e-5, 16, 24

QUEUES = {
    "billing": "invoice charge refund payment card receipt",
    "login": "password account locked signin reset token",
    "shipping": "parcel courier delay tracking address delivery",
    "hardware": "screen battery charger keyboard broken fan",
    "network": "wifi router slow offline latency signal",
    "sales": "quote license upgrade seats discount plan",
}
COMMON = "hello please help with my i have a problem since monday and the team told me to write here thanks".split()


def make_tickets(n, seed):
    rng = random.Random(seed)
    names = list(QUEUES)
    texts, labels = [], []
    for _ in range(n):
        y = rng.randrange(len(names))
        words = rng.choices(QUEUES[names[y]].split(), k=3) + rng.choices(COMMON, k=rng.randint(8, 14))
        words += rng.choices(QUEUES[rng.choice(names)].split(), k=1)
        rng.shuffle(words)
        texts.append(" ".join(words))
        labels.append(y)
    return texts, labels


class Tickets(Dataset):
    def __init__(self, tok, texts, labels):
        enc = tok.encode_batch(texts)
        self.items = [
            dict(input_ids=torch.tensor(e.ids), attention_mask=torch.tensor(e.attention_mask), labels=torch.tensor(y))
            for e, y in zip(enc, labels)
        ]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def lr_at(step):
    """Linear warm-up, then cosine from PEAK_LR to MIN_LR."""
    if step < WARMUP:
        return PEAK_LR * (step + 1) / WARMUP
    t = min(1.0, (step - WARMUP) / (MAX_STEPS - WARMUP))
    return MIN_LR + 0.5 * (PEAK_LR - MIN_LR) * (1 + math.cos(math.pi * t))


def build_optimizer(model):
    decay, plain = [], []
    for name, p in model.named_parameters():
        (plain if p.dim() < 2 or "embeddings" in name else decay).append(p)
    opt = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}], lr=PEAK_LR
    )
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: lr_at(s) / (PEAK_LR if MENDED else 1))
    return opt, sched


class Printer(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            print(f"step {state.global_step:4d} loss {float(logs['loss']):.4f}")


def metrics(out):
    return {"accuracy": float((np.argmax(out.predictions, -1) == out.label_ids).mean())}


def main():
    set_seed(4)
    texts, labels = make_tickets(2000, 1)
    val_texts, val_labels = make_tickets(300, 2)
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.pre_tokenizer = pre_tokenizers.Whitespace()
    tok.train_from_iterator(
        texts,
        trainers.WordPieceTrainer(vocab_size=260, special_tokens=["[PAD]", "[UNK]", "[CLS]"], show_progress=False),
    )
    tok.enable_padding(length=WIDTH)
    tok.enable_truncation(WIDTH)
    model = DistilBertForSequenceClassification(
        DistilBertConfig(
            vocab_size=tok.get_vocab_size(),
            dim=64,
            hidden_dim=128,
            n_layers=2,
            n_heads=4,
            max_position_embeddings=WIDTH,
            num_labels=len(QUEUES),
            seq_classif_dropout=0.1,
        )
    )
    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(
            output_dir=out,
            max_steps=MAX_STEPS,
            per_device_train_batch_size=BATCH,
            per_device_eval_batch_size=100,
            logging_steps=20,
            report_to="none",
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
            seed=4,
        )
        trainer = Trainer(
            model=model,
            args=args,
            train_dataset=Tickets(tok, texts, labels),
            eval_dataset=Tickets(tok, val_texts, val_labels),
            compute_metrics=metrics,
            optimizers=build_optimizer(model),
            callbacks=[Printer()],
        )
        trainer.train()
        res = trainer.evaluate()
    print(f"final eval loss {res['eval_loss']:.4f} | accuracy {res['eval_accuracy']:.3f}")


if __name__ == "__main__":
    main()
