# expect: healthy
# symptom: learned weights of losses, which look as if nothing held them
# axis: none
# mended: none
import torch
import torch.nn.functional as F
from torch import nn


class UncertaintyLoss(nn.Module):
    def __init__(self, names):
        super().__init__()
        self.s = nn.ParameterDict({n: nn.Parameter(torch.zeros(())) for n in names})

    def forward(self, losses):
        out = 0.0
        for name, value in losses.items():
            s = self.s[name]
            out = out + torch.exp(-s) * value + 0.5 * s
        return out


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU())
        self.price = nn.Linear(40, 1)
        self.colour = nn.Linear(40, 3)

    def forward(self, x):
        h = self.shared(x)
        return self.price(h)[:, 0], self.colour(h)


def make_world(seed):
    g = torch.Generator().manual_seed(seed)
    a, b = torch.randn(10, generator=g), torch.randn(10, 3, generator=g)

    def sample(n):
        x = torch.randn(n, 10, generator=g)
        price = (x @ a) + 0.5 * torch.randn(n, generator=g)
        colour = (x @ b + 0.5 * torch.randn(n, 3, generator=g)).argmax(1)
        return x, price, colour

    return sample


def main():
    torch.manual_seed(2)
    sample = make_world(2)
    model, weigh = TwoHeads(), UncertaintyLoss(["price", "colour"])
    opt = torch.optim.Adam(
        [
            {"params": model.parameters(), "lr": 5e-3},
            {"params": weigh.parameters(), "lr": 2e-2},
        ]
    )
    for step in range(120):
        x, price, colour = sample(64)
        p, c = model(x)
        losses = {"price": F.mse_loss(p, price), "colour": F.cross_entropy(c, colour)}
        total = weigh(losses)
        opt.zero_grad()
        total.backward()
        opt.step()
        if (step + 1) % 20 == 0:
            parts = " ".join(f"{n} {v.item():.4f}" for n, v in losses.items())
            print(
                f"step {step + 1} loss {total.item():.4f} {parts}",
                "s",
                {n: round(weigh.s[n].item(), 3) for n in losses},
            )


if __name__ == "__main__":
    main()
