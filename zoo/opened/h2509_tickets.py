# expect: healthy
# symptom: a long plateau at first with most parameters without gradient, then a sudden drop (the body is deliberately frozen at first and thawed by a callback)
# axis: model
"""Routing of support tickets with a small BERT, HF Trainer, gradual thaw and Adafactor."""

import os
import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    Adafactor,
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
torch.set_num_threads(1)
set_seed(17)

VOCAB, LENGTH, QUEUES = 160, 24, 5
PAD, CLS = 0, 1
THAW_AT = 60
STEPS = 360


class Tickets(Dataset):
    """Every queue has topic words; a negating word in front of a topic word cancels it."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.rows = []
        for _ in range(n):
            queue = int(rng.integers(QUEUES))
            length = int(rng.integers(12, LENGTH))
            words = rng.integers(60, VOCAB, length)
            words[0] = CLS
            spots = rng.choice(np.arange(2, length, 2), size=4, replace=False)
            for s in spots[:3]:
                words[s] = 10 + 8 * queue + rng.integers(8)
            other = (queue + int(rng.integers(1, QUEUES))) % QUEUES
            words[spots[3]] = 10 + 8 * other + rng.integers(8)
            words[spots[3] - 1] = 2
            ids = np.full(LENGTH, PAD)
            ids[:length] = words
            self.rows.append((ids, (ids != PAD).astype(np.int64), queue))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        ids, mask, queue = self.rows[i]
        return {"input_ids": torch.as_tensor(ids), "attention_mask": torch.as_tensor(mask), "labels": queue}


class Thaw(TrainerCallback):
    def __init__(self, body, at):
        self.body, self.at = body, at

    def on_train_begin(self, args, state, control, **kwargs):
        self.body.requires_grad_(False)

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.at:
            self.body.requires_grad_(True)
            print(f"step {state.global_step}: body thawed")


def metrics(pred):
    return {"accuracy": float((pred.predictions.argmax(-1) == pred.label_ids).mean())}


def main():
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=LENGTH,
        num_labels=QUEUES,
        hidden_dropout_prob=0.05,
        attention_probs_dropout_prob=0.0,
    )
    model = BertForSequenceClassification(config)
    optimizer = Adafactor(model.parameters(), lr=2e-3, scale_parameter=False, relative_step=False, warmup_init=False)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 20) * (1 - 0.8 * s / STEPS))
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder,
            max_steps=STEPS,
            per_device_train_batch_size=32,
            per_device_eval_batch_size=128,
            logging_steps=20,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            max_grad_norm=1.0,
            seed=17,
        )
        trainer = Trainer(
            model=model,
            args=args,
            train_dataset=Tickets(4000, 1),
            eval_dataset=Tickets(500, 2),
            optimizers=(optimizer, schedule),
            compute_metrics=metrics,
            callbacks=[Thaw(model.bert, THAW_AT)],
        )
        trainer.train()
        result = trainer.evaluate()
    print(f"eval loss {result['eval_loss']:.4f} accuracy {result['eval_accuracy']:.3f}")


if __name__ == "__main__":
    main()
