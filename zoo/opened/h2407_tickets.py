# expect: healthy
# symptom: learning rate and loss jump up again at every restart, and the embeddings do not move at first
# axis: schedule
"""Support-ticket routing with a tiny BERT under the Hugging Face Trainer.

Cosine schedule with hard restarts; the embedding table stays frozen for the
first cycle and is thawed by a callback.
"""

import os
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from datasets import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

torch.set_num_threads(1)
set_seed(31)
rng = np.random.default_rng(31)

TEAMS = {
    "billing": "invoice refund charge card price payment receipt tax".split(),
    "network": "vpn wifi router latency dns packet cable outage".split(),
    "account": "login password locked reset email username token signin".split(),
    "hardware": "screen battery keyboard fan disk laptop dock broken".split(),
    "shipping": "parcel courier delivery address tracking customs box late".split(),
}
FILLER = (
    "please help the my a is not with since yesterday again after update "
    "we have i on it cannot still when urgent thanks hello team can you"
).split()
NAMES = list(TEAMS)
vocab = ["[PAD]", "[CLS]", "[SEP]"] + FILLER + [w for ws in TEAMS.values() for w in ws]
ids = {w: i for i, w in enumerate(vocab)}


def ticket():
    team = int(rng.integers(len(NAMES)))
    words = list(rng.choice(FILLER, rng.integers(5, 14)))
    for _ in range(rng.integers(2, 4)):
        words.insert(rng.integers(len(words) + 1), rng.choice(TEAMS[NAMES[team]]))
    if rng.random() < 0.5:
        other = int(rng.integers(len(NAMES)))
        words.insert(rng.integers(len(words) + 1), rng.choice(TEAMS[NAMES[other]]))
    return ["[CLS]"] + words + ["[SEP]"], team


def build(n):
    rows = [ticket() for _ in range(n)]
    return Dataset.from_dict(
        {
            "input_ids": [[ids[w] for w in words] for words, _ in rows],
            "labels": [t for _, t in rows],
        }
    )


def collate(features):
    width = max(len(f["input_ids"]) for f in features)
    batch = torch.zeros(len(features), width, dtype=torch.long)
    mask = torch.zeros_like(batch)
    for i, f in enumerate(features):
        n = len(f["input_ids"])
        batch[i, :n] = torch.tensor(f["input_ids"])
        mask[i, :n] = 1
    return {"input_ids": batch, "attention_mask": mask, "labels": torch.tensor([f["labels"] for f in features])}


class Thaw(TrainerCallback):
    def __init__(self, at):
        self.at = at

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step == self.at:
            for p in model.bert.embeddings.parameters():
                p.requires_grad_(True)
            print(f"embeddings thawed at step {state.global_step}")


def metrics(pred):
    return {"accuracy": float((pred.predictions.argmax(-1) == pred.label_ids).mean())}


train, dev = build(3600), build(500)
config = BertConfig(
    vocab_size=len(vocab),
    hidden_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=96,
    max_position_embeddings=40,
    num_labels=len(NAMES),
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.1,
)
model = BertForSequenceClassification(config)
with torch.no_grad():
    model.bert.embeddings.word_embeddings.weight.mul_(10)

args = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    max_steps=300,
    per_device_train_batch_size=24,
    per_device_eval_batch_size=128,
    learning_rate=2.5e-3,
    weight_decay=0.01,
    lr_scheduler_type="cosine_with_restarts",
    lr_scheduler_kwargs={"num_cycles": 3},
    warmup_steps=12,
    logging_steps=20,
    eval_strategy="steps",
    eval_steps=100,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
    seed=31,
    dataloader_num_workers=0,
)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, weight_decay=0.01)
for p in model.bert.embeddings.parameters():
    p.requires_grad_(False)

trainer = Trainer(
    model=model,
    args=args,
    train_dataset=train,
    eval_dataset=dev,
    data_collator=collate,
    compute_metrics=metrics,
    optimizers=(optimizer, None),
    callbacks=[Thaw(108)],
)
trainer.train()
print("final", {k: round(v, 4) for k, v in trainer.evaluate().items() if k in ("eval_loss", "eval_accuracy")})
