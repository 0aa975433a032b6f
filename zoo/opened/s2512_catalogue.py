# expect: sick
# symptom: loss jumps when the assortment is extended, as expected, but afterwards it hardly recovers and hit rate stays low
# axis: optimizer
# cause: extending the catalogue replaces the item embedding by a new Parameter that was never registered with the optimizer, which still holds the old table, so item vectors are no longer updated
# says: (?=[\s\S]*(embedding|item (vector|table|weight|matri)|item\.weight|item parameter|\btable\b|new (param|weight|tensor)|replaced (param|weight|tensor)))(?=[\s\S]*(optimi[sz]er|adam|param.?group|update))(?=[\s\S]*(not (in|part|regist|known|updat|train|cover)|never|n't|still (hold|point|refer|updat|track)|old (table|param|weight|embedding|tensor)|missing|stale|without|no longer|not been|not contain|unregistered|frozen|orphan|detached from|left out|unaware|lost|keeps? (hold|point|refer|track|updat|step)))
# onset_step: 261
# fix: build the optimizer anew after the extension (or add the new table to it)
# mended: yes
"""Session based recommender with a growing catalogue, average-pooled history, tied item vectors."""

import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

TOPICS = 24
FIRST, SECOND = 600, 1800
HISTORY = 8
DIM = 48
LAUNCH = 260
STEPS = 700


class Shop:
    """Visitors stay mostly within one topic; inside a topic the items have a popularity."""

    def __init__(self, seed):
        g = torch.Generator().manual_seed(seed)
        self.topic = torch.randint(0, TOPICS, (SECOND,), generator=g)
        self.popular = torch.exp(0.8 * torch.randn(SECOND, generator=g))
        self.gen = g
        self.open_to(FIRST)

    def open_to(self, n):
        weight = torch.zeros(TOPICS, n)
        weight[self.topic[:n], torch.arange(n)] = self.popular[:n]
        self.weight = weight / weight.sum(1, keepdim=True)
        self.weight = 0.92 * self.weight + 0.08 / n

    def visits(self, n, gen=None):
        gen = gen or self.gen
        topic = torch.randint(0, TOPICS, (n,), generator=gen)
        seq = torch.multinomial(self.weight[topic], HISTORY + 1, replacement=True, generator=gen)
        return seq[:, :HISTORY], seq[:, HISTORY]


class SessionModel(nn.Module):
    def __init__(self, items):
        super().__init__()
        self.item = nn.Embedding(items, DIM)
        nn.init.normal_(self.item.weight, std=0.1)
        self.place = nn.Parameter(torch.zeros(HISTORY))
        self.visitor = nn.Sequential(nn.Linear(DIM, DIM), nn.Tanh(), nn.Linear(DIM, DIM))

    def extend(self, items):
        old = self.item.weight.data
        grown = nn.Embedding(items, DIM)
        nn.init.normal_(grown.weight, std=0.1)
        grown.weight.data[: len(old)] = old
        self.item = grown

    def forward(self, history):
        attention = self.place.softmax(0)[:, None]
        pooled = (attention * self.item(history)).sum(1)
        state = pooled + self.visitor(pooled)
        return state @ self.item.weight.T


def build_optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=1e-2, betas=(0.9, 0.99), weight_decay=1e-6)


def report(model, shop, step, loss):
    history, target = shop.visits(1500, torch.Generator().manual_seed(99))
    with torch.no_grad():
        logits = model(history)
        test = F.cross_entropy(logits, target).item()
        hits = (logits.topk(20, dim=1).indices == target[:, None]).any(1).float().mean().item()
    print(
        f"step {step:4d} loss {loss:.4f} test loss {test:.4f} hit@20 {hits:.3f} "
        f"catalogue {logits.shape[1]} (ln {math.log(logits.shape[1]):.2f})"
    )


def main():
    torch.manual_seed(31)
    shop = Shop(seed=32)
    model = SessionModel(FIRST)
    opt = build_optimizer(model)
    smooth = None
    for step in range(1, STEPS + 1):
        if step == LAUNCH + 1:
            shop.open_to(SECOND)
            model.extend(SECOND)
            if MENDED:
                opt = build_optimizer(model)
            print(f"step {step}: catalogue extended from {FIRST} to {SECOND} items")
        history, target = shop.visits(256)
        loss = F.cross_entropy(model(history), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        smooth = loss.item() if smooth is None else 0.9 * smooth + 0.1 * loss.item()
        if step % 35 == 0:
            report(model, shop, step, smooth)


if __name__ == "__main__":
    main()
