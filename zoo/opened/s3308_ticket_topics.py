# expect: sick
# symptom: training goes very well, accuracy nearly perfect, then loss and weights are NaN from one step on
# axis: loss
# cause: focal loss with exponent below 1: (1-p)**gamma has an infinite gradient once p rounds to 1, giving NaN
# says: focal.{0,150}(nan|inf|grad|deriv)|1(\.0)? ?- ?p\w*.{0,60}(pow|\*\*|gamma|zero|\b0\b|inf)|miss ?\*\*
# onset_step: 103
# fix: clamp 1-p from below (1e-6) before the power
# mended: the script applies that change if the environment has MENDED=1
"""Routing of support tickets to a desk: small convolutional text model with a focal objective."""

import os
import random

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(5)
FLOOR = 1e-6 if os.environ.get("MENDED") == "1" else 0.0

DESKS = {
    "billing": "invoice refund charge card payment amount receipt vat".split(),
    "network": "router wifi latency packet vpn dns outage cable".split(),
    "account": "login password reset email profile token locked username".split(),
    "hardware": "screen battery keyboard fan charger dock hinge speaker".split(),
}
FILLER = "the a my is not please help since today with on and it still again after why you can from".split()
VOCAB = {w: i + 1 for i, w in enumerate(FILLER + [w for ws in DESKS.values() for w in ws])}
LENGTH = 18


class Tickets(Dataset):
    def __init__(self, n, seed):
        rng = random.Random(seed)
        names = list(DESKS)
        self.rows = []
        for _ in range(n):
            y = rng.choices(range(4), weights=[6, 3, 2, 1])[0]
            words = [rng.choice(FILLER) for _ in range(rng.randint(6, 12))]
            for _ in range(rng.randint(2, 6)):
                words.insert(rng.randint(0, len(words)), rng.choice(DESKS[names[y]]))
            if rng.random() < 0.1:
                words.insert(0, rng.choice(DESKS[rng.choice(names)]))
            ids = [VOCAB[w] for w in words][:LENGTH]
            self.rows.append((ids + [0] * (LENGTH - len(ids)), y))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        ids, y = self.rows[i]
        return torch.tensor(ids), y


class TextCNN(nn.Module):
    def __init__(self, vocab, dim=48, chan=64, classes=4):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=0)
        self.convs = nn.ModuleList(nn.Conv1d(dim, chan, k, padding=k // 2) for k in (1, 3, 5))
        self.fc = nn.Linear(3 * chan, classes)

    def forward(self, ids):
        e = self.emb(ids).transpose(1, 2)
        feats = [F.relu(c(e)).sum(-1) for c in self.convs]
        return self.fc(F.dropout(torch.cat(feats, 1), 0.1, self.training))


class FocalLoss(nn.Module):
    """Focal objective; a mild exponent works best with our class balance."""

    def __init__(self, gamma=0.5):
        super().__init__()
        self.gamma = gamma

    def forward(self, logits, target):
        logp = F.log_softmax(logits, -1).gather(1, target[:, None]).squeeze(1)
        miss = (1.0 - logp.exp()).clamp(min=FLOOR) if FLOOR else 1.0 - logp.exp()
        return -(miss**self.gamma * logp).mean()


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hit = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return hit / len(loader.dataset)


def main():
    train = DataLoader(
        Tickets(2400, 1), batch_size=48, shuffle=True, drop_last=True, generator=torch.Generator().manual_seed(2)
    )
    valid = DataLoader(Tickets(600, 77), batch_size=200)
    model = TextCNN(len(VOCAB) + 1)
    criterion = FocalLoss()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    step = 0
    for epoch in range(9):
        for ids, y in train:
            loss = criterion(model(ids), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 20 == 0:
                print(f"step {step:4d} loss {loss.item():.5f}", flush=True)
            step += 1
        print(f"epoch {epoch} valid accuracy {accuracy(model, valid):.4f}", flush=True)


if __name__ == "__main__":
    main()
