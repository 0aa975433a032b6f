# expect: sick
# symptom: the total falls while the tasks learn less
# axis: loss
# cause: learned weights of the losses have no term that keeps them from running away
# says: (weight|uncertain|variance|sigma|log.?var|balanc).{0,160}
# onset_step: 0
# fix: add the term of the weights
# mended: the same with the fix
import os
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"


class MultiTask(nn.Module):
    def __init__(self, d_in=12, hidden=48):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(d_in, hidden), nn.ReLU())
        self.depth = nn.Linear(hidden, 1)
        self.kind = nn.Linear(hidden, 4)
        self.log_var = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        h = self.trunk(x)
        return self.depth(h).squeeze(-1), self.kind(h)

    def combine(self, losses):
        total = (torch.exp(-self.log_var) * losses).sum()
        if MENDED:
            total = total + 0.5 * self.log_var.sum()
        return total


def batch(g, proj, n=64):
    x = torch.randn(n, 12, generator=g)
    z = x @ proj
    depth = 3.0 * torch.tanh(z[:, 0]) + 0.3 * torch.randn(n, generator=g)
    return x, depth, z[:, 1:].argmax(1)


def main():
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(0)
    proj = torch.randn(12, 5, generator=g) / 3
    model = MultiTask()
    opt = torch.optim.SGD(
        [
            {"params": [p for n, p in model.named_parameters() if n != "log_var"]},
            {"params": [model.log_var], "lr": 0.05},
        ],
        lr=0.02,
        momentum=0.9,
    )
    for step in range(120):
        x, depth, kind = batch(g, proj)
        d, k = model(x)
        losses = torch.stack([F.mse_loss(d, depth), F.cross_entropy(k, kind)])
        total = model.combine(losses)
        opt.zero_grad()
        total.backward()
        opt.step()
        if step % 20 == 19:
            w = torch.exp(-model.log_var).tolist()
            print(
                f"step {step + 1:3d} loss {total.item():.4f} "
                f"depth {losses[0].item():.4f} kind {losses[1].item():.4f} "
                f"w {w[0]:.3f} {w[1]:.3f}"
            )


if __name__ == "__main__":
    main()
