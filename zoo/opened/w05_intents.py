# expect: sick
# symptom: the loss leaps with each text, or held-out scores are those of a guess
# axis: data
# cause: the vocabulary is grown anew from the shuffled rows in each epoch
# says: (vocab|tokeni[sz]er|word.?(index|id)|char.?(map|id)|\bids?\b|stoi|encod).{0,120}(anew|each|every|per|rebuil|differ|own|inconsisten|mismatch|not (shared|the same))|(anew|each|every|different|separate).{0,60}(vocab|tokeni[sz]er|\bids?\b)
# onset_step: 0
# fix: build one vocabulary over all texts
# mended: one vocabulary for all epochs
import os
import random
from dataclasses import dataclass

import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"


@dataclass
class Config:
    epochs: int = 8
    batch: int = 32
    dim: int = 32
    lr: float = 5e-3
    seed: int = 7


TEMPLATES = {
    "weather": ["will it {x} in {c} today", "is it going to {x} near {c}", "tell me if {c} gets {x}"],
    "music": ["play {x} by {c}", "put on some {x} from {c}", "i want to hear {x} of {c}"],
    "travel": ["book a {x} to {c}", "find me a cheap {x} to {c}", "when does the {x} leave for {c}"],
    "timer": ["set a {x} for {c} minutes", "remind me to {x} in {c} minutes", "stop the {x} at {c}"],
}
SLOTS = {
    "weather": ["rain", "snow", "freeze", "hail"],
    "music": ["jazz", "songs", "ballads", "records"],
    "travel": ["flight", "train", "ferry", "coach"],
    "timer": ["alarm", "timer", "stretch", "clock"],
}
FILL = ["oslo", "lima", "kyoto", "porto", "ten", "five", "mina", "arlo"]
INTENTS = list(TEMPLATES)


def make_corpus(n):
    rows = []
    for _ in range(n):
        intent = random.choice(INTENTS)
        s = random.choice(TEMPLATES[intent]).format(x=random.choice(SLOTS[intent]), c=random.choice(FILL))
        rows.append((s, INTENTS.index(intent)))
    return rows


KNOWN = {"<pad>": 0}


def prepare(rows):
    vocab = KNOWN if MENDED else {"<pad>": 0}
    encoded = []
    for text, label in rows:
        ids = []
        for w in text.split():
            if w not in vocab:
                vocab[w] = len(vocab)
            ids.append(vocab[w])
        encoded.append((ids, label))
    return encoded


def batches(encoded, size):
    for i in range(0, len(encoded), size):
        part = encoded[i : i + size]
        longest = max(len(ids) for ids, _ in part)
        x = torch.zeros(len(part), longest, dtype=torch.long)
        for j, (ids, _) in enumerate(part):
            x[j, : len(ids)] = torch.tensor(ids)
        yield x, torch.tensor([l for _, l in part])


class IntentNet(nn.Module):
    def __init__(self, n_words, dim, n_out):
        super().__init__()
        self.emb = nn.Embedding(n_words, dim, padding_idx=0)
        self.conv = nn.Conv1d(dim, 48, 3, padding=1)
        self.fc = nn.Linear(48, n_out)

    def forward(self, x):
        h = torch.relu(self.conv(self.emb(x).transpose(1, 2)))
        return self.fc(h.max(dim=2).values)


def train(cfg):
    random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    rows = make_corpus(512)
    model = IntentNet(100, cfg.dim, len(INTENTS))
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    ce = nn.CrossEntropyLoss()
    for epoch in range(cfg.epochs):
        random.shuffle(rows)
        data = prepare(rows)
        losses = []
        for x, y in batches(data, cfg.batch):
            opt.zero_grad()
            loss = ce(model(x), y)
            loss.backward()
            opt.step()
            losses.append(loss.item())
        print(f"epoch {epoch} first {losses[0]:.3f} mean {sum(losses) / len(losses):.3f}")


train(Config())
