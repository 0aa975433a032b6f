# Convolutional autoencoder, AdamW, cosine to zero. Fault: at step 560 of 600 a hook initializes the decoder again.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(22)
basis = torch.randn(5, 16, 16, generator=fixed)
basis = nn.functional.avg_pool2d(basis[:, None], 3, 1, 1)[:, 0] * 2


def pictures(n, g=None):
    return torch.einsum("nk,khw->nhw", torch.randn(n, 5, generator=g), basis)[:, None] + 0.5 * torch.randn(
        n, 1, 16, 16, generator=g
    )


class Auto(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2, 1), nn.SiLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.SiLU(), nn.Flatten(), nn.Linear(256, 8)
        )
        self.decoder = nn.Sequential(
            nn.Linear(8, 256),
            nn.SiLU(),
            nn.Unflatten(1, (16, 4, 4)),
            nn.ConvTranspose2d(16, 8, 4, 2, 1),
            nn.SiLU(),
            nn.ConvTranspose2d(8, 1, 4, 2, 1),
        )

    def forward(self, x):
        return self.decoder(self.encoder(x))


test = pictures(600, fixed)
torch.manual_seed(args.seed)
model = Auto()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 600)
for step in range(600):
    if step == 560:
        for layer in model.decoder:
            if hasattr(layer, "reset_parameters") and not args.twin:
                layer.reset_parameters()
    x = pictures(32)
    loss = nn.functional.mse_loss(model(x), x)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 50 == 0:
        print(f"step {step} mse {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", nn.functional.mse_loss(model(test), test).item())
