# expect: healthy
# symptom: the loss jumps up again and again at regular steps, as in an unstable run or a broken schedule
# axis: schedule
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(43)
STEPS, BATCH, LENGTH = 450, 64, 12
VOCAB = "0123456789+-*"


def expressions(n, g):
    """Token strings over a small alphabet; the class is the clamped sum of the signed digits."""
    digits = torch.randint(0, 4, (n, LENGTH // 2), generator=g)
    signs = torch.randint(0, 2, (n, LENGTH // 2), generator=g)
    tokens = torch.stack([signs + 10, digits], -1).reshape(n, LENGTH)
    total = ((1 - 2 * signs) * digits).sum(1)
    return tokens, total.clamp(-4, 4) + 4


class Counter(nn.Module):
    def __init__(self, width=64, classes=9):
        super().__init__()
        self.emb = nn.Embedding(len(VOCAB), 24)
        self.rnn = nn.GRU(24, width, batch_first=True)
        self.out = nn.Linear(width, classes)

    def forward(self, tokens):
        _, h = self.rnn(self.emb(tokens))
        return self.out(h[-1])


@torch.no_grad()
def accuracy(net, tokens, y):
    return (net(tokens).argmax(1) == y).float().mean().item()


def main():
    g = torch.Generator().manual_seed(1)
    vx, vy = expressions(1000, torch.Generator().manual_seed(2))
    net = Counter()
    opt = torch.optim.Adam(net.parameters(), lr=1.2e-2)
    # cycles of 30, 60, 120, 240 steps, ends at the bottom of the last one
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=30, T_mult=2, eta_min=1e-5)
    snapshots = []
    for step in range(STEPS):
        tokens, y = expressions(BATCH, g)
        loss = F.cross_entropy(net(tokens), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        if step % 15 == 0:
            print(f"step {step:4d} lr {sched.get_last_lr()[0]:.5f} loss {loss.item():.4f}")
        sched.step()
        if sched.T_cur == 0:
            acc = accuracy(net, vx, vy)
            snapshots.append(acc)
            print(f"cycle {len(snapshots)} ends, valid accuracy {acc:.3f}")
    print(f"final loss {loss.item():.4f} valid accuracy {accuracy(net, vx, vy):.3f}")


if __name__ == "__main__":
    main()
