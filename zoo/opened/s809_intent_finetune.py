# expect: sick
# symptom: unfreezing the pretrained encoder after the warm-up of the head brings nothing; the accuracy stays at that of the linear probe
# axis: optimizer
# cause: the optimizer was built with only the parameters that required grad at that time (the head); the later unfrozen encoder parameters were never added to it
# says: optimi[sz]er.{0,80}(lack|miss|not (contain|includ|hold|have|know|cover|regist|given|own|see)|without|never|only|omit|added|head|unfrozen|unfreez)|(param|encoder|weight|unfr).{0,80}(not|never|miss|absent|outside|n't).{0,40}optimi[sz]er|add_param_group|param(eter)?.?groups?
# onset_step: 321
# fix: add the encoder's parameters to the optimizer when they are unfrozen (add_param_group)
# mended: with MENDED=1 the unfreeze method calls optimizer.add_param_group
import os
import random

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
VOCAB, LENGTH = 120, 12


def topic_data(n, rng):
    """General corpus: ten topics, every topic has twelve words."""
    x, y = [], []
    for _ in range(n):
        t = rng.randrange(10)
        words = [t * 12 + rng.randrange(12) if rng.random() < 0.6 else rng.randrange(VOCAB) for _ in range(LENGTH)]
        x.append(words)
        y.append(t)
    return TensorDataset(torch.tensor(x), torch.tensor(y))


def intent_data(n, rng):
    """Six intents, told apart by the order of a verb (0-23) and an object (24-47) and by the pair itself."""
    x, y = [], []
    for _ in range(n):
        words = [rng.randrange(48, VOCAB) for _ in range(LENGTH)]
        verb, obj = rng.randrange(24), 24 + rng.randrange(24)
        at = rng.randrange(LENGTH - 1)
        swap = rng.random() < 0.5
        words[at], words[at + 1] = (obj, verb) if swap else (verb, obj)
        x.append(words)
        y.append((verb % 3) * 2 + int(swap))
    return TensorDataset(torch.tensor(x), torch.tensor(y))


class TextCNN(nn.Module):
    def __init__(self, dim=32, channels=64):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim)
        self.c1 = nn.Conv1d(dim, channels, 3, padding=1)
        self.c2 = nn.Conv1d(channels, channels, 3, padding=1)

    def forward(self, ids):
        h = torch.relu(self.c1(self.emb(ids).transpose(1, 2)))
        h = torch.relu(self.c2(h))
        return h.max(-1).values


def train_source(encoder, rng, steps=200):
    head = nn.Linear(64, 10)
    opt = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=2e-3)
    loader = DataLoader(topic_data(steps * 32, rng), batch_size=32)
    for step, (x, y) in enumerate(loader, 1):
        loss = nn.functional.cross_entropy(head(encoder(x)), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 100 == 0:
            print(f"[source] step {step} loss {loss.item():.4f}")


class FineTuner:
    def __init__(self, encoder, classes, lr=3e-3, unfreeze_after=120):
        self.encoder = encoder
        self.head = nn.Linear(64, classes)
        self.unfreeze_after = unfreeze_after
        self.freeze()
        trainable = filter(lambda p: p.requires_grad, [*self.encoder.parameters(), *self.head.parameters()])
        self.optimizer = torch.optim.Adam(trainable, lr=lr)
        self.criterion = nn.CrossEntropyLoss()
        self.step = 0

    def freeze(self):
        for p in self.encoder.parameters():
            p.requires_grad = False

    def unfreeze(self):
        for p in self.encoder.parameters():
            p.requires_grad = True
        if MENDED:
            self.optimizer.add_param_group({"params": list(self.encoder.parameters()), "lr": 2e-3})
        print(f"[finetune] step {self.step}: encoder unfrozen")

    def train_step(self, x, y):
        if self.step == self.unfreeze_after:
            self.unfreeze()
        self.step += 1
        logits = self.head(self.encoder(x))
        loss = self.criterion(logits, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def accuracy(self, dataset):
        x, y = dataset.tensors
        return (self.head(self.encoder(x)).argmax(1) == y).float().mean().item()

    def fit(self, train, valid, epochs):
        loader = DataLoader(train, batch_size=32, shuffle=True)
        for _ in range(epochs):
            for x, y in loader:
                loss = self.train_step(x, y)
                if self.step % 60 == 0:
                    print(f"[finetune] step {self.step} loss {loss:.4f} valid acc {self.accuracy(valid):.3f}")


def main():
    torch.manual_seed(40)
    rng = random.Random(40)
    encoder = TextCNN()
    train_source(encoder, rng)
    FineTuner(encoder, classes=6).fit(intent_data(4000, rng), intent_data(600, rng), epochs=4)


if __name__ == "__main__":
    main()
