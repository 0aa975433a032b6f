# expect: healthy
# symptom: learned weights of losses, which look as if nothing held them
# axis: none
# mended: none
import math
import torch
import torch.nn as nn
import torch.nn.functional as F


class Tower(nn.Module):
    def __init__(self, d_in, d_out=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d_in, 48), nn.ReLU(), nn.Linear(48, d_out))

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


class PairModel(nn.Module):
    def __init__(self, d_a, d_b):
        super().__init__()
        self.a, self.b = Tower(d_a), Tower(d_b)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, a, b):
        return self.logit_scale.exp() * self.a(a) @ self.b(b).t()


def clip_loss(logits):
    target = torch.arange(len(logits))
    return 0.5 * (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target))


def pairs(n, view_a, view_b, g):
    z = torch.randn(n, 5, generator=g)
    a = torch.tanh(z @ view_a) + 0.05 * torch.randn(n, view_a.shape[1], generator=g)
    b = torch.sin(z @ view_b) + 0.05 * torch.randn(n, view_b.shape[1], generator=g)
    return a, b


def main():
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(1)
    view_a, view_b = torch.randn(5, 14, generator=g), 0.5 * torch.randn(5, 18, generator=g)
    model = PairModel(14, 18)
    decay = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 1e-3}, {"params": plain, "weight_decay": 0.0}], lr=5e-3)
    for step in range(1, 121):
        logits = model(*pairs(48, view_a, view_b, g))
        loss = clip_loss(logits)
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0.0, math.log(100))
        if step % 20 == 0:
            hit = (logits.argmax(1) == torch.arange(48)).float().mean().item()
            print(f"step {step} loss {loss.item():.4f} top1 {hit:.3f} scale {model.logit_scale.exp().item():.2f}")


if __name__ == "__main__":
    main()
