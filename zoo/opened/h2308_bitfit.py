# expect: healthy
# symptom: most parameters receive no gradient at all and never change, which resembles a detached or wrongly frozen model
# axis: model
"""Ticket routing with the HF Trainer: a small encoder is pre-trained on one queue set and adapted to another by its bias terms only."""

import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

torch.set_num_threads(1)

PAD, CLS, SEP = 0, 1, 2
TOPICS, WORDS_PER_TOPIC, COMMON = 8, 14, 60
VOCAB = 3 + COMMON + TOPICS * WORDS_PER_TOPIC
MAX_LEN = 28


class Tickets(Dataset):
    """Bags of words with a main topic and a distracting one; the queue depends on the main topic."""

    def __init__(self, n, queue_of_topic, seed):
        rng = np.random.default_rng(seed)
        self.rows = []
        for _ in range(n):
            main, other = rng.choice(TOPICS, 2, replace=False)
            length = rng.integers(12, MAX_LEN - 2)
            kind = rng.choice(3, size=length, p=[0.5, 0.38, 0.12])
            words = np.where(
                kind == 0,
                3 + rng.integers(0, COMMON, length),
                3
                + COMMON
                + np.where(kind == 1, main, other) * WORDS_PER_TOPIC
                + rng.integers(0, WORDS_PER_TOPIC, length),
            )
            ids = [CLS, *words.tolist(), SEP]
            mask = [1] * len(ids) + [0] * (MAX_LEN - len(ids))
            ids = ids + [PAD] * (MAX_LEN - len(ids))
            self.rows.append(
                {
                    "input_ids": torch.tensor(ids),
                    "attention_mask": torch.tensor(mask),
                    "labels": torch.tensor(int(queue_of_topic[main])),
                }
            )

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def score(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def arguments(folder, steps, lr):
    return TrainingArguments(
        output_dir=folder,
        max_steps=steps,
        learning_rate=lr,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=100,
        warmup_steps=20,
        weight_decay=0.0,
        logging_steps=20,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        seed=7,
        dataloader_num_workers=0,
    )


def fit(model, train, test, steps, lr):
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            args=arguments(folder, steps, lr),
            train_dataset=train,
            eval_dataset=test,
            compute_metrics=score,
        )
        trainer.train()
        result = trainer.evaluate()
    print(f"eval loss {result['eval_loss']:.4f}  accuracy {result['eval_accuracy']:.3f}")
    return trainer.model


def main():
    set_seed(7)
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=MAX_LEN,
        num_labels=TOPICS,
        hidden_dropout_prob=0.05,
        attention_probs_dropout_prob=0.0,
        pad_token_id=PAD,
    )
    identity = np.arange(TOPICS)
    print("stage 1: all weights, eight topics")
    model = fit(
        BertForSequenceClassification(config), Tickets(4000, identity, 1), Tickets(500, identity, 2), steps=250, lr=1e-3
    )

    queues = np.array([2, 0, 1, 2, 3, 0, 3, 1])
    model.classifier = torch.nn.Linear(config.hidden_size, 4)
    model.num_labels = model.config.num_labels = 4
    for name, p in model.named_parameters():
        p.requires_grad = name.endswith(".bias") or name.startswith("classifier.")
    tuned = sum(p.numel() for p in model.parameters() if p.requires_grad)
    total = sum(p.numel() for p in model.parameters())
    print(f"stage 2: four queues, tuning {tuned} of {total} parameters")
    fit(model, Tickets(3000, queues, 3), Tickets(500, queues, 4), steps=220, lr=4e-3)


if __name__ == "__main__":
    main()
