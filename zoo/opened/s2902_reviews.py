# expect: sick
# symptom: loss and accuracy improve during the first epoch and then stay frozen for all the following epochs
# axis: schedule
# cause: num_training_steps of the linear warmup/decay schedule is the number of batches of one epoch instead of epochs times batches, so the learning rate has decayed to zero at the end of the first epoch and the rest of the run updates nothing
# says: (?=.*(learning.?rate|\blr\b|schedul|decay|num_training_steps|total.?steps))(?=.*(one|first|single|per|1|an|each|\bthe\b|len\(|multipl|times|factor|forg|omit|ignor|without).{0,40}(epoch|loader))(?=.*(zero|\b0(\.0)?\b|vanish|nothing|too (early|soon|short|small|few)|(one|single|1|an) epoch|len\(|multipl|instead|rather))
# onset_step: 141
# fix: pass num_training_steps = EPOCHS * len(train_loader)
# mended: yes
"""Sentiment of short product reviews with a small BERT trained from scratch (word level vocabulary)."""

import os
import random

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

torch.set_num_threads(1)

EPOCHS = 5
BATCH_SIZE = 32
LR = 1e-3
WARMUP_RATIO = 0.1
MAX_LEN = 24

ASPECTS = (
    "battery screen keyboard camera speaker hinge charger strap lid fan zipper lens "
    "handle motor cable button display case"
).split()
GOOD = "great solid crisp superb reliable lovely bright sturdy quick comfortable neat sharp".split()
BAD = "awful flimsy dull useless broken cheap slow noisy fragile dim clumsy blurry".split()
HEDGE = "really quite honestly somewhat very rather".split()
FILL = (
    "i bought this last month for my office and the delivery was on time we use it every day "
    "at home with two kids it came in a box"
).split()


def clause(rng):
    positive = rng.random() < 0.5
    negated = rng.random() < 0.2
    adj = rng.choice(GOOD if positive != negated else BAD)
    words = ["the", rng.choice(ASPECTS), "is"]
    if negated:
        words.append("not")
    if rng.random() < 0.4:
        words.append(rng.choice(HEDGE))
    words.append(adj)
    return words, (1 if positive else -1)


def make_review(rng):
    """One or two clauses; after 'but' the second opinion decides, with 'and' both agree or are resampled."""
    while True:
        (a, sa), (b, sb) = clause(rng), clause(rng)
        start = rng.randrange(0, len(FILL) - 6)
        pre = FILL[start : start + rng.randrange(2, 6)]
        if rng.random() < 0.4:
            return pre + a, int(sa > 0)
        if rng.random() < 0.4:
            if rng.random() < 0.5:
                return pre + a + ["but"] + b, int(sb > 0)
            return pre + ["although"] + b + ["i", "think"] + a, int(sa > 0)
        if sa == sb:
            return pre + a + ["and"] + b, int(sa > 0)


class Vocab:
    def __init__(self):
        words = sorted(set(ASPECTS + GOOD + BAD + HEDGE + FILL + "the is not but and although i think".split()))
        self.stoi = {w: i for i, w in enumerate(["[PAD]", "[CLS]", "[SEP]"] + words)}

    def __len__(self):
        return len(self.stoi)

    def encode(self, words):
        ids = [1] + [self.stoi[w] for w in words][: MAX_LEN - 2] + [2]
        return ids + [0] * (MAX_LEN - len(ids)), [1] * len(ids) + [0] * (MAX_LEN - len(ids))


class Reviews(Dataset):
    def __init__(self, n, seed, vocab):
        rng = random.Random(seed)
        rows = [make_review(rng) for _ in range(n)]
        enc = [vocab.encode(w) for w, _ in rows]
        self.ids = torch.tensor([e[0] for e in enc])
        self.mask = torch.tensor([e[1] for e in enc])
        self.y = torch.tensor([y for _, y in rows])

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "attention_mask": self.mask[i], "labels": self.y[i]}


def evaluate(model, loader):
    model.eval()
    hit = tot = 0
    with torch.no_grad():
        for batch in loader:
            logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
            hit += (logits.argmax(-1) == batch["labels"]).sum().item()
            tot += len(batch["labels"])
    model.train()
    return hit / tot


def main():
    torch.manual_seed(5)
    vocab = Vocab()
    train_loader = DataLoader(Reviews(4480, 0, vocab), batch_size=BATCH_SIZE, shuffle=True)
    val_loader = DataLoader(Reviews(600, 1, vocab), batch_size=100)
    cfg = BertConfig(
        vocab_size=len(vocab),
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=MAX_LEN,
        num_labels=2,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
    )
    model = BertForSequenceClassification(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01)

    num_training_steps = len(train_loader)
    if os.environ.get("MENDED") == "1":
        num_training_steps = EPOCHS * len(train_loader)
    scheduler = get_linear_schedule_with_warmup(
        optimizer,
        num_warmup_steps=int(WARMUP_RATIO * num_training_steps),
        num_training_steps=num_training_steps,
    )

    model.train()
    for epoch in range(EPOCHS):
        running = 0.0
        for i, batch in enumerate(train_loader, 1):
            out = model(**batch)
            out.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            running += out.loss.item()
            if i % 25 == 0:
                print(f"epoch {epoch + 1} batch {i:3d}/{len(train_loader)} loss {running / 25:.4f}")
                running = 0.0
        print(f"== epoch {epoch + 1}: val accuracy {evaluate(model, val_loader):.3f}")


if __name__ == "__main__":
    main()
