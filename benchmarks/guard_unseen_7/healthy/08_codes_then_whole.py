# A variational autoencoder of spectra on top of a frozen encoder: at step 300 the encoder is set free with a rate of its own, and by
# plan the loss changes from a mean over the channels to a sum (64 times larger) while the weight of the code's cost ramps up. AdamW.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

STEPS, BATCH, CHANNELS, CODE, LINES = 700, 128, 64, 6, 4
FREE = 300
world = torch.Generator().manual_seed(8808)
axis = torch.arange(CHANNELS).float()
centre = torch.tensor([10.0, 22.0, 37.0, 52.0])


def spectra(count, generator=None):
    strength = 0.4 * torch.randn(count, LINES, 1, generator=generator).exp()
    moved = centre.view(1, -1, 1) + 3 * torch.randn(count, 1, 1, generator=generator)
    width = 2.5 + torch.rand(count, 1, 1, generator=generator)
    line = torch.exp(-0.5 * ((axis - moved) / width) ** 2)
    return (strength * line).sum(1) + 0.1 * torch.randn(count, CHANNELS, generator=generator)


class Autoencoder(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(CHANNELS, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.code = nn.Linear(width, 2 * CODE)
        self.decoder = nn.Sequential(
            nn.Linear(CODE, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, CHANNELS)
        )

    def forward(self, x):
        mean, log = self.code(self.encoder(x)).chunk(2, -1)
        log = log.clamp(-8, 4)
        code = mean + (0.5 * log).exp() * torch.randn_like(mean) if self.training else mean
        cost = 0.5 * (mean**2 + log.exp() - 1 - log).sum(1).mean()
        return self.decoder(code), cost


def error_of(model, x):
    again, cost = model(x)
    return F.mse_loss(again, x), cost


held_out = spectra(4000, world)
torch.manual_seed(args.seed)
model = Autoencoder()
for p in model.encoder.parameters():
    p.requires_grad_(False)
optimizer = torch.optim.AdamW([*model.code.parameters(), *model.decoder.parameters()], lr=2e-3)
for step in range(STEPS):
    if step == FREE:
        for p in model.encoder.parameters():
            p.requires_grad_(True)
        optimizer.add_param_group({"params": list(model.encoder.parameters()), "lr": 5e-4})
    error, cost = error_of(model, spectra(BATCH))
    if step < FREE:
        loss = error + 1e-5 * cost
    else:
        loss = CHANNELS * error + 0.02 * min(1.0, (step - FREE) / 100) * cost
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 35 == 0:
        print(f"step {step} loss {loss.item():.4f} error {error.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", error_of(model, held_out)[0].item())
