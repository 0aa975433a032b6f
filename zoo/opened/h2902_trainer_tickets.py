# expect: healthy
# symptom: resembles dead or unregistered parameters and a badly set schedule: most of the encoder has no gradient, the rate restarts several times
# axis: schedule
"""Routing of support tickets: HF Trainer, adapters on a frozen pretrained encoder, cosine schedule with restarts."""

import random
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import (
    DistilBertConfig,
    DistilBertForMaskedLM,
    DistilBertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

torch.set_num_threads(1)
TOPICS = {
    "billing": "invoice refund charge card payment receipt tax price".split(),
    "login": "password account email locked code signin username reset".split(),
    "shipping": "parcel courier delivery address tracking late box customs".split(),
    "hardware": "screen battery keyboard noise fan cable overheats broken".split(),
    "cancel": "subscription cancel plan renew trial downgrade stop contract".split(),
}
COMMON = (
    "hello i have a question about my order please help me with the since yesterday it does not work thanks".split()
)
WORDS = ["[PAD]", "[CLS]", "[MASK]"] + sorted(set(sum(TOPICS.values(), [])) | set(COMMON))
STOI = {w: i for i, w in enumerate(WORDS)}
LEN = 20


def ticket(rng):
    label = rng.randrange(len(TOPICS))
    names = list(TOPICS)
    own = TOPICS[names[label]]
    other = TOPICS[names[rng.randrange(len(TOPICS))]]
    n = rng.randrange(9, LEN - 1)
    words = [
        rng.choice(own) if (u := rng.random()) < 0.42 else rng.choice(other) if u < 0.52 else rng.choice(COMMON)
        for _ in range(n)
    ]
    return [1] + [STOI[w] for w in words] + [0] * (LEN - 1 - n), label


class Tickets(Dataset):
    def __init__(self, n, seed):
        rng = random.Random(seed)
        rows = [ticket(rng) for _ in range(n)]
        self.ids = torch.tensor([r[0] for r in rows])
        self.label = [r[1] for r in rows]

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "attention_mask": (self.ids[i] != 0).long(), "labels": self.label[i]}


class Adapter(nn.Module):
    """Bottleneck adapter after the feed-forward part; starts as the identity."""

    def __init__(self, ffn, dim, rank=12):
        super().__init__()
        self.ffn, self.down, self.up = ffn, nn.Linear(dim, rank), nn.Linear(rank, dim)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x):
        y = self.ffn(x)
        return y + self.up(torch.nn.functional.gelu(self.down(y)))


def pretrain(config, data, steps=150):
    mlm = DistilBertForMaskedLM(config)
    opt = torch.optim.AdamW(mlm.parameters(), lr=2e-3)
    for s in range(1, steps + 1):
        ids = data.ids[torch.randint(0, len(data), (48,))]
        real = ids > 2
        hide = real & (torch.rand(ids.shape) < 0.2)
        loss = mlm(
            input_ids=ids.masked_fill(hide, 2), attention_mask=(ids != 0).long(), labels=ids.masked_fill(~hide, -100)
        ).loss
        loss.backward()
        opt.step()
        opt.zero_grad()
        if s % 30 == 0:
            print(f"mlm {s}: {loss.item():.4f}")
    return mlm.distilbert


def metrics(pred):
    return {"accuracy": float((np.argmax(pred.predictions, -1) == pred.label_ids).mean())}


def main():
    set_seed(12)
    config = DistilBertConfig(
        vocab_size=len(WORDS),
        dim=48,
        n_layers=2,
        n_heads=4,
        hidden_dim=96,
        max_position_embeddings=LEN,
        num_labels=len(TOPICS),
        initializer_range=0.06,
    )
    train, val = Tickets(1920, 1), Tickets(400, 2)
    body = pretrain(config, train)
    model = DistilBertForSequenceClassification(config)
    model.distilbert.load_state_dict(body.state_dict())
    for p in model.distilbert.parameters():
        p.requires_grad_(False)
    for layer in model.distilbert.transformer.layer:
        layer.ffn = Adapter(layer.ffn, config.dim)
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print(f"trainable {trainable} of {sum(p.numel() for p in model.parameters())}")
    with tempfile.TemporaryDirectory() as tmp:
        args = TrainingArguments(
            output_dir=tmp,
            num_train_epochs=8,
            per_device_train_batch_size=32,
            per_device_eval_batch_size=100,
            learning_rate=4e-3,
            lr_scheduler_type="cosine_with_restarts",
            lr_scheduler_kwargs={"num_cycles": 4},
            warmup_steps=20,
            logging_steps=30,
            eval_strategy="epoch",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            seed=12,
        )
        trainer = Trainer(model=model, args=args, train_dataset=train, eval_dataset=val, compute_metrics=metrics)
        trainer.train()
        print("final", trainer.evaluate())


if __name__ == "__main__":
    main()
