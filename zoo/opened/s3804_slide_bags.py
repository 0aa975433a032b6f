# expect: sick
# symptom: the loss sinks slowly and validation accuracy stays far under what the data allow, no error
# axis: model
# cause: attention softmax over the last dim of size 1 instead of over the instances, so all weights are 1
# says: softmax.*(dim|axis|size|instance|patch|single)|attention.*\b(all|always|every|constant|uniform|equal|one)\b
# onset_step: 0
# fix: take the softmax over dim=1, the instances of a bag
# mended: the script applies that change if the environment has MENDED=1
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(2)
MENDED = os.environ.get("MENDED") == "1"

N_PATCH, N_FEAT, N_GRADES = 40, 24, 4


class SlideBags(Dataset):
    """Feature vectors of the patches of a slide; the grade is that of the most atypical patch."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        proj = torch.Generator().manual_seed(99)
        basis = torch.linalg.qr(torch.randn(N_FEAT, N_FEAT, generator=proj))[0]
        grade = torch.randint(0, N_GRADES, (n, N_PATCH), generator=g)
        atypia = torch.rand(n, N_PATCH, generator=g) * 2.0
        lead = torch.randint(0, N_PATCH, (n,), generator=g)
        atypia[torch.arange(n), lead] = 3.0 + torch.rand(n, generator=g)
        latent = 0.3 * torch.randn(n, N_PATCH, N_FEAT, generator=g)
        latent[..., :N_GRADES] += 2.0 * F.one_hot(grade, N_GRADES)
        latent[..., N_GRADES] += atypia
        self.x = latent @ basis
        self.y = grade[torch.arange(n), lead]

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class GatedAttentionPool(nn.Module):
    def __init__(self, dim, hidden=32):
        super().__init__()
        self.v = nn.Linear(dim, hidden)
        self.u = nn.Linear(dim, hidden)
        self.w = nn.Linear(hidden, 1)

    def forward(self, h):
        scores = self.w(torch.tanh(self.v(h)) * torch.sigmoid(self.u(h)))
        alpha = torch.softmax(scores, dim=1 if MENDED else -1)
        return (alpha * h).sum(dim=1), alpha.squeeze(-1)


class SlideClassifier(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(N_FEAT, dim), nn.LayerNorm(dim))
        self.pool = GatedAttentionPool(dim)
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Dropout(0.1), nn.Linear(dim, N_GRADES))

    def forward(self, x):
        pooled, alpha = self.pool(self.embed(x))
        return self.head(pooled), alpha


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hits = total = 0
    for x, y in loader:
        logits, _ = model(x)
        hits += (logits.argmax(1) == y).sum().item()
        total += len(y)
    model.train()
    return hits / total


def main():
    train = DataLoader(SlideBags(2400, 0), batch_size=48, shuffle=True)
    val = DataLoader(SlideBags(600, 1), batch_size=200)
    model = SlideClassifier()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-4)
    step = 0
    for epoch in range(8):
        for x, y in train:
            logits, _ = model(x)
            loss = F.cross_entropy(logits, y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            if step % 25 == 0:
                print(f"step {step:4d} loss {loss.item():.4f}")
            step += 1
        print(f"epoch {epoch} val acc {accuracy(model, val):.3f}")
    print(f"final loss {loss.item():.4f} val_acc {accuracy(model, val):.3f}")


if __name__ == "__main__":
    main()
