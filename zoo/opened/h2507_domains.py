# expect: healthy
# symptom: one of the two printed losses rises and ends at ln 2, as if the discriminator did not learn (domain adversarial training that works)
# axis: loss
"""Domain adversarial adaptation of a vibration classifier from the test bench to the field."""

import math

import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)

N_FAULTS = 4
SAMPLES = 96


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.scale * grad, None


def bench(n, gen):
    y = torch.randint(0, N_FAULTS, (n,), generator=gen)
    t = torch.linspace(0, 1, SAMPLES)
    base = torch.tensor([5.0, 9.0, 14.0, 20.0])[y][:, None]
    phase = 2 * math.pi * torch.rand(n, 1, generator=gen)
    x = torch.sin(2 * math.pi * base * t + phase) + 0.4 * torch.sin(4 * math.pi * base * t + 2 * phase)
    return x + 0.25 * torch.randn(n, SAMPLES, generator=gen), y


def field(n, gen):
    x, y = bench(n, gen)
    t = torch.linspace(0, 1, SAMPLES)
    hum = 0.5 * torch.sin(2 * math.pi * 2.0 * t + 6.28 * torch.rand(n, 1, generator=gen))
    return 0.7 * x + hum + 0.2 + 0.15 * torch.randn(n, SAMPLES, generator=gen), y


class Encoder(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv1d(1, 24, 9, stride=2, padding=4),
            nn.GroupNorm(4, 24),
            nn.ReLU(),
            nn.Conv1d(24, 48, 7, stride=2, padding=3),
            nn.GroupNorm(4, 48),
            nn.ReLU(),
            nn.Conv1d(48, 48, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
            nn.Linear(48, 32),
            nn.ReLU(),
        )


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.faults = nn.Linear(32, N_FAULTS)
        self.domain = nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, x, scale):
        z = self.encoder(x[:, None])
        return self.faults(z), self.domain(Reverse.apply(z, scale)).squeeze(1)


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        logits, _ = model(x, 0.0)
    model.train()
    return (logits.argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(9)
    gen = torch.Generator().manual_seed(10)
    field_x, field_y = field(1000, torch.Generator().manual_seed(11))
    model = Adapted()
    opt = torch.optim.Adam(
        [
            {"params": model.encoder.parameters(), "lr": 1e-3},
            {"params": model.faults.parameters(), "lr": 1e-3},
            {"params": model.domain.parameters(), "lr": 2e-3},
        ],
        betas=(0.5, 0.99),
    )
    steps = 500
    for step in range(1, steps + 1):
        progress = max(0.0, (step - 80) / (steps - 80))
        scale = 0.15 * (2.0 / (1.0 + math.exp(-5.0 * progress)) - 1.0)
        xs, ys = bench(64, gen)
        xt, _ = field(64, gen)
        fault_logits, domain_logits = model(torch.cat([xs, xt]), scale)
        is_field = torch.cat([torch.zeros(64), torch.ones(64)])
        loss_fault = F.cross_entropy(fault_logits[:64], ys)
        loss_domain = F.binary_cross_entropy_with_logits(domain_logits, is_field)
        opt.zero_grad()
        (loss_fault + loss_domain).backward()
        opt.step()
        if step % 25 == 0:
            print(
                f"step {step} scale {scale:.2f} fault loss {loss_fault.item():.4f} "
                f"domain loss {loss_domain.item():.4f} field accuracy {accuracy(model, field_x, field_y):.3f}"
            )


if __name__ == "__main__":
    main()
