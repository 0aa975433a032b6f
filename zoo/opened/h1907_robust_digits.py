# expect: healthy
# symptom: the training loss stays well above zero and climbs while the attack grows stronger; the model is put in eval mode and gradients of the inputs are taken inside the training step (resembles a stuck run or an eval-mode / stray-gradient fault)
# axis: harness
# cause: none
# says: none
# onset_step: none
# fix: none
# mended: no
import torch
import torch.nn as nn
import torch.nn.functional as F

SEGMENTS = torch.tensor(
    [
        [1, 1, 1, 0, 1, 1, 1],
        [0, 0, 1, 0, 0, 1, 0],
        [1, 0, 1, 1, 1, 0, 1],
        [1, 0, 1, 1, 0, 1, 1],
        [0, 1, 1, 1, 0, 1, 0],
        [1, 1, 0, 1, 0, 1, 1],
        [1, 1, 0, 1, 1, 1, 1],
        [1, 0, 1, 0, 0, 1, 0],
        [1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 0, 1, 1],
    ]
).float()


def digits(n, gen):
    """Seven-segment digits drawn on a flat canvas of 105 values (15 a segment)."""
    y = torch.randint(10, (n,), generator=gen)
    lit = SEGMENTS[y].repeat_interleave(15, dim=1)
    gain = 0.7 + 0.6 * torch.rand(n, 1, generator=gen)
    return lit * gain + 0.35 * torch.randn(n, 105, generator=gen), y


class Classifier(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(105, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Linear(width, 10),
        )

    def forward(self, x):
        return self.net(x)


def attack(model, x, y, eps, iters):
    if eps == 0:
        return x
    was = model.training
    model.eval()  # fixed statistics while searching
    delta = torch.zeros_like(x).uniform_(-eps, eps)
    for _ in range(iters):
        delta.requires_grad_(True)
        (grad,) = torch.autograd.grad(F.cross_entropy(model(x + delta), y), delta)
        delta = (delta.detach() + eps / 2 * grad.sign()).clamp(-eps, eps)
    model.train(was)
    return (x + delta).detach()


def scores(model, eps, gen):
    model.eval()
    x, y = digits(1000, gen)
    clean = (model(x).argmax(1) == y).float().mean().item()
    hard = (model(attack(model, x, y, eps, 5)).argmax(1) == y).float().mean().item()
    model.train()
    return clean, hard


def main(steps=500, eps=0.32):
    torch.manual_seed(77)
    gen = torch.Generator().manual_seed(78)
    model = Classifier()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps, 1e-4)
    for step in range(steps):
        x, y = digits(96, gen)
        strength = eps * min(1.0, max(0.0, (step - 60) / 200))
        loss = F.cross_entropy(model(attack(model, x, y, strength, 3)), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} eps {strength:.3f}")
        if step % 100 == 99:
            clean, hard = scores(model, eps, torch.Generator().manual_seed(4))
            print(f"step {step} clean_acc {clean:.3f} robust_acc {hard:.3f}")


if __name__ == "__main__":
    main()
