# expect: healthy
# symptom: the loss is negative, half of the parameters never get a gradient, the predictor ignores the schedule, and the rate ends at zero (BYOL with an EMA target)
# axis: none
# mended: none
"""Self-supervised sentence-like embeddings: two corrupted views, online and EMA target network."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

CLASSES, DIM, HIDDEN, PROJ = 8, 64, 96, 48
STEPS, BATCH = 400, 128


class Topics:
    """Class centres on a curved manifold plus nuisance directions shared by all classes."""

    def __init__(self, seed):
        g = torch.Generator().manual_seed(seed)
        self.centres = torch.randn(CLASSES, 10, generator=g) * 1.3
        self.lift = torch.randn(10, DIM, generator=g) / math.sqrt(10)
        self.nuisance = torch.randn(4, DIM, generator=g)

    def sample(self, n, g):
        y = torch.randint(CLASSES, (n,), generator=g)
        z = self.centres[y] + 0.5 * torch.randn(n, 10, generator=g)
        return torch.tanh(z @ self.lift), y

    def view(self, x, g):
        n = len(x)
        keep = (torch.rand(n, DIM, generator=g) > 0.3).float()
        drift = torch.randn(n, 4, generator=g) @ self.nuisance * 0.4
        return x * keep + drift + 0.1 * torch.randn(n, DIM, generator=g)


def mlp(i, h, o):
    return nn.Sequential(nn.Linear(i, h, bias=False), nn.BatchNorm1d(h), nn.ReLU(), nn.Linear(h, o))


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = mlp(DIM, HIDDEN, HIDDEN)
        self.projector = mlp(HIDDEN, HIDDEN, PROJ)

    def forward(self, x):
        return self.projector(F.relu(self.backbone(x)))

    @torch.no_grad()
    def embed(self, x):
        return self.backbone(x)


class Byol(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = Branch()
        self.predictor = mlp(PROJ, HIDDEN, PROJ)
        self.target = copy.deepcopy(self.online)
        for p in self.target.parameters():
            p.requires_grad_(False)

    def forward(self, a, b):
        pa, pb = self.predictor(self.online(a)), self.predictor(self.online(b))
        with torch.no_grad():
            ta, tb = self.target(a), self.target(b)
        # plain negative cosine, so the optimum is -1 rather than 0
        return -0.5 * (F.cosine_similarity(pa, tb).mean() + F.cosine_similarity(pb, ta).mean())

    @torch.no_grad()
    def update_target(self, momentum):
        for t, o in zip(self.target.parameters(), self.online.parameters()):
            t.lerp_(o, 1 - momentum)


@torch.no_grad()
def knn_accuracy(model, bank, bank_y, query, query_y, k=10):
    model.eval()
    b = F.normalize(model.online.embed(bank), dim=1)
    q = F.normalize(model.online.embed(query), dim=1)
    spread = b.std(0).mean().item() * math.sqrt(b.size(1))
    votes = bank_y[(q @ b.T).topk(k).indices]
    pred = F.one_hot(votes, CLASSES).sum(1).argmax(1)
    model.train()
    return (pred == query_y).float().mean().item(), spread


def main():
    torch.manual_seed(1)
    topics = Topics(5)
    gen = torch.Generator().manual_seed(2)
    bank, bank_y = topics.sample(600, gen)
    query, query_y = topics.sample(300, gen)
    # evaluation is done on corrupted inputs too
    bank, query = topics.view(bank, gen), topics.view(query, gen)
    model = Byol()
    base_lr = 0.1
    opt = torch.optim.SGD(
        [
            {"params": model.online.parameters(), "lr": base_lr},
            {"params": model.predictor.parameters(), "lr": base_lr, "fixed": True},
        ],
        momentum=0.9,
        weight_decay=1e-4,
    )
    acc, spread = knn_accuracy(model, bank, bank_y, query, query_y)
    print(f"before training: knn accuracy {acc:.3f} spread {spread:.2f}")
    for step in range(1, STEPS + 1):
        lr = base_lr * min(step / 40, 0.5 * (1 + math.cos(math.pi * step / STEPS)))
        for group in opt.param_groups:
            # the predictor keeps its full rate, as in SimSiam
            group["lr"] = base_lr if group.get("fixed") else lr
        x, _ = topics.sample(BATCH, gen)
        loss = model(topics.view(x, gen), topics.view(x, gen))
        opt.zero_grad()
        loss.backward()
        opt.step()
        tau = 1 - 0.04 * 0.5 * (1 + math.cos(math.pi * step / STEPS))
        model.update_target(tau)
        if step % 40 == 0 or step == 1:
            print(f"step {step:4d} loss {loss.item():+.4f} lr {lr:.4f} tau {tau:.4f}")
        if step % 200 == 0:
            acc, spread = knn_accuracy(model, bank, bank_y, query, query_y)
            print(f"step {step:4d} knn accuracy {acc:.3f} spread {spread:.2f}")


if __name__ == "__main__":
    main()
