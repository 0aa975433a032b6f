# expect: healthy
# symptom: most of the network does not move (frozen embeddings and lower layers) and the learning rate goes to zero and jumps back several times, with bumps of the loss
# axis: schedule
"""Routing of support tickets: small BERT, HF Trainer, restarts of the cosine."""

import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

torch.set_num_threads(1)
set_seed(13)

TOPICS = {
    "billing": "invoice charge refund card payment tax receipt price overcharged subscription".split(),
    "login": "password account reset locked email code signin token verify browser".split(),
    "shipping": "parcel delivery courier tracking late address customs lost warehouse box".split(),
    "hardware": "screen battery charger button broken noise overheating cable fan keyboard".split(),
    "feature": "export dark mode calendar api shortcut widget sync integration report".split(),
    "cancel": "cancel terminate close stop contract leave downgrade delete renew notice".split(),
}
FILLER = (
    "hello please i my the is was with for and since yesterday again today still could you "
    "help me thanks team urgent we our it not works problem about after before"
).split()
VOCAB = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"] + sorted({w for ws in TOPICS.values() for w in ws} | set(FILLER))
IDS = {w: i for i, w in enumerate(VOCAB)}
NAMES = list(TOPICS)


def write_ticket(rng):
    label = int(rng.integers(len(NAMES)))
    other = int(rng.integers(len(NAMES)))
    words = list(rng.choice(TOPICS[NAMES[label]], 3)) + list(rng.choice(TOPICS[NAMES[other]], 1))
    words += list(rng.choice(FILLER, rng.integers(5, 14)))
    rng.shuffle(words)
    if rng.random() < 0.03:
        label = int(rng.integers(len(NAMES)))
    return words, label


class Tickets(Dataset):
    def __init__(self, n, seed, max_len=22):
        rng = np.random.default_rng(seed)
        self.items = []
        for _ in range(n):
            words, label = write_ticket(rng)
            ids = [IDS["[CLS]"]] + [IDS.get(w, IDS["[UNK]"]) for w in words] + [IDS["[SEP]"]]
            mask = [1] * len(ids) + [0] * (max_len - len(ids))
            ids = ids + [IDS["[PAD]"]] * (max_len - len(ids))
            self.items.append(
                {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask), "labels": torch.tensor(label)}
            )

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def metrics(p):
    return {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())}


def main():
    cfg = BertConfig(
        vocab_size=len(VOCAB),
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=192,
        max_position_embeddings=32,
        num_labels=len(NAMES),
        pad_token_id=0,
        hidden_dropout_prob=0.1,
        initializer_range=0.08,
    )
    model = BertForSequenceClassification(cfg)
    # fixed random features below; only the upper part is trained
    model.bert.embeddings.requires_grad_(False)
    model.bert.encoder.layer[0].requires_grad_(False)
    n_all = sum(p.numel() for p in model.parameters())
    n_on = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print(f"trainable {n_on} of {n_all}")
    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(
            output_dir=out,
            per_device_train_batch_size=32,
            per_device_eval_batch_size=128,
            max_steps=360,
            learning_rate=1.5e-3,
            lr_scheduler_type="cosine_with_restarts",
            lr_scheduler_kwargs={"num_cycles": 3},
            warmup_steps=30,
            weight_decay=0.01,
            max_grad_norm=1.0,
            logging_steps=20,
            eval_strategy="steps",
            eval_steps=90,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            seed=13,
            dataloader_num_workers=0,
        )
        trainer = Trainer(
            model=model,
            args=args,
            train_dataset=Tickets(6000, 1),
            eval_dataset=Tickets(1000, 2),
            compute_metrics=metrics,
        )
        trainer.train()
        print(trainer.evaluate())


if __name__ == "__main__":
    main()
