# expect: sick
# symptom: the loss falls at first, then oscillates and climbs far above its start value
# axis: optimizer
# cause: error feedback keeps the sent entries in the residual, as the out-of-place masked_fill result is dropped
# says: residual|error.?feedback|(sent|transmitted|top.?k|compress).*(clear|again|accumul|zero|twice|repeat|kept)
# onset_step: 1
# fix: assign the result of masked_fill (or use masked_fill_), so that sent entries are removed from the residual
# mended: the script applies that change if the environment has MENDED=1
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(17)
MENDED = os.environ.get("MENDED") == "1"
WORKERS, PER_WORKER, STEPS, CLASSES, LENGTH = 4, 16, 300, 6, 64


def beats(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, CLASSES, (n,), generator=g)
    t = torch.arange(LENGTH, dtype=torch.float32)
    period = 5.0 + 2.0 * y.float()
    phase = 6.28 * torch.rand(n, 1, generator=g)
    x = torch.sin(6.283 * t / period[:, None] + phase)
    x = x * (0.6 + 0.8 * torch.rand(n, 1, generator=g)) + 0.5 * torch.randn(n, LENGTH, generator=g)
    return x.unsqueeze(1), y


class BeatNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv1d(1, 24, 9, stride=2, padding=4)
        self.mid = nn.Conv1d(24, 32, 5, stride=2, padding=2)
        self.norms = nn.ModuleList([nn.GroupNorm(4, 24), nn.GroupNorm(4, 32)])
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x):
        h = F.relu(self.norms[0](self.stem(x)))
        h = F.relu(self.norms[1](self.mid(h)))
        return self.head(h.amax(-1))


class SparseLink:
    """Sends only the largest share of each tensor; the rest waits for a later round."""

    def __init__(self, share):
        self.share = share
        self.residual = {}

    def pack(self, name, grad):
        acc = grad.flatten().clone()
        if name in self.residual:
            acc += self.residual[name]
        k = max(1, int(self.share * acc.numel()))
        idx = acc.abs().topk(k).indices
        values = acc[idx]
        sent = torch.zeros_like(acc, dtype=torch.bool)
        sent[idx] = True
        rest = acc.masked_fill(sent, 0.0)
        self.residual[name] = rest if MENDED else self._keep(acc, sent)
        return idx, values

    @staticmethod
    def _keep(acc, sent):
        acc.masked_fill(sent, 0.0)
        return acc


def all_reduce(packets, like):
    total = torch.zeros(like.numel())
    for idx, values in packets:
        total.index_add_(0, idx, values)
    return (total / len(packets)).view_as(like)


@torch.no_grad()
def accuracy(model, x, y):
    return (model(x).argmax(1) == y).float().mean().item()


def main():
    x, y = beats(4096, 1)
    vx, vy = beats(800, 2)
    shards = [(x[r::WORKERS], y[r::WORKERS]) for r in range(WORKERS)]
    model = BeatNet()
    links = [SparseLink(0.1) for _ in range(WORKERS)]
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    gens = [torch.Generator().manual_seed(100 + r) for r in range(WORKERS)]
    for step in range(STEPS):
        packets = {n: [] for n, _ in model.named_parameters()}
        losses = []
        for r in range(WORKERS):
            sx, sy = shards[r]
            pick = torch.randint(0, len(sy), (PER_WORKER,), generator=gens[r])
            loss = F.cross_entropy(model(sx[pick]), sy[pick])
            grads = torch.autograd.grad(loss, list(model.parameters()))
            for (n, _), gr in zip(model.named_parameters(), grads):
                packets[n].append(links[r].pack(n, gr))
            losses.append(loss.item())
        for n, p in model.named_parameters():
            p.grad = all_reduce(packets[n], p)
        opt.step()
        if step % 20 == 0:
            print(f"step {step:4d} loss {sum(losses) / WORKERS:.4f}")
    print(f"final loss {sum(losses) / WORKERS:.4f} valid accuracy {accuracy(model, vx, vy):.3f}")


if __name__ == "__main__":
    main()
