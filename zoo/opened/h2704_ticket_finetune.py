# expect: healthy
# symptom: resembles parameters that do not train: the encoder is frozen (no gradients) and the loss is nearly flat at first, then drops abruptly
# axis: model
"""Support-ticket routing with a small BERT, HF Trainer, two-stage fine-tuning.

The head is trained alone for the first steps; then the encoder is released.
"""

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
set_seed(12)

QUEUES = ["billing", "network", "hardware", "account"]
TOPIC = {
    "billing": "invoice refund charge payment receipt card price".split(),
    "network": "wifi router latency packet vpn dns signal".split(),
    "hardware": "screen keyboard battery fan charger cable disk".split(),
    "account": "password login email user locked reset profile".split(),
}
FILLER = (
    "hello please the my is not working since yesterday help with and i cannot need again today thanks team have tried"
).split()
WORDS = ["[PAD]", "[CLS]", "[SEP]"] + FILLER + sum(TOPIC.values(), [])
ID = {w: i for i, w in enumerate(WORDS)}
MAX_LEN = 24
UNFREEZE_AT = 60


def ticket(rng):
    """The sender mentions two queues; the one mentioned more often is right."""
    q, other = rng.choice(4, size=2, replace=False)
    words = list(rng.choice(FILLER, size=rng.integers(6, 12)))
    words += list(rng.choice(TOPIC[QUEUES[q]], size=3))
    words += list(rng.choice(TOPIC[QUEUES[other]], size=rng.integers(0, 2)))
    rng.shuffle(words)
    return " ".join(words), int(q)


def encode(text):
    ids = [ID["[CLS]"]] + [ID[w] for w in text.split()][: MAX_LEN - 2] + [ID["[SEP]"]]
    pad = MAX_LEN - len(ids)
    return {"input_ids": ids + [0] * pad, "attention_mask": [1] * len(ids) + [0] * pad}


def build(n, seed):
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n):
        text, label = ticket(rng)
        rows.append({**encode(text), "labels": label})
    return Dataset.from_list(rows)


class ReleaseEncoder(TrainerCallback):
    def on_train_begin(self, args, state, control, model=None, **kw):
        for p in model.bert.encoder.parameters():
            p.requires_grad_(False)
        for p in model.bert.embeddings.parameters():
            p.requires_grad_(False)

    def on_step_begin(self, args, state, control, model=None, **kw):
        if state.global_step == UNFREEZE_AT:
            for p in model.parameters():
                p.requires_grad_(True)
            print(f"step {state.global_step}: encoder released")


class TwoRateTrainer(Trainer):
    """Head at full rate, everything below at half of it."""

    def create_optimizer(self, *args, **kwargs):
        if self.optimizer is None:
            head = list(self.model.classifier.parameters()) + list(self.model.bert.pooler.parameters())
            seen = {id(p) for p in head}
            body = [p for p in self.model.parameters() if id(p) not in seen]
            lr = self.args.learning_rate
            self.optimizer = torch.optim.AdamW(
                [{"params": head, "lr": lr}, {"params": body, "lr": 0.5 * lr}], weight_decay=0.01
            )
        return self.optimizer


def metrics(pred):
    return {"accuracy": float((pred.predictions.argmax(-1) == pred.label_ids).mean())}


def main():
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        num_labels=len(QUEUES),
        max_position_embeddings=MAX_LEN,
        pad_token_id=0,
    )
    model = BertForSequenceClassification(config)
    args = TrainingArguments(
        output_dir="/tmp/ticket_router",
        max_steps=360,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=128,
        learning_rate=2e-3,
        lr_scheduler_type="cosine",
        warmup_steps=20,
        logging_steps=20,
        eval_strategy="steps",
        eval_steps=90,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        seed=12,
        dataloader_num_workers=0,
    )
    trainer = TwoRateTrainer(
        model=model,
        args=args,
        train_dataset=build(3000, 1),
        eval_dataset=build(500, 2),
        compute_metrics=metrics,
        callbacks=[ReleaseEncoder()],
    )
    trainer.train()
    print("final:", trainer.evaluate())


if __name__ == "__main__":
    main()
