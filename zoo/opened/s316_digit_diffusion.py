# expect: sick
# symptom: from step 300 on the training loss jumps up after every sampling round and never gets below its earlier level
# axis: harness
# cause: for sampling the averaged (EMA) weights are copied into the model, and the trained weights are never put back
# says: (\bema\b|averag\w*|shadow|exponential moving).{0,140}(cop(y|ied|ies)|restor\w*|put back|overwrit\w*|replac\w*|swap\w*|left|stay\w*|remain\w*|instead|into the (model|train)|reset|revert|loaded)|(restor\w*|overwrit\w*|overwritten|replac\w*|swap\w*|put back|cop(y|ied|ies)|revert\w*|reset).{0,100}(\bema\b|averag\w*|shadow)|(trained|training|live|raw|model) weights.{0,60}(overwrit\w*|replac\w*|never (restor|put)|not restor|lost)
# onset_step: 301
# fix: keep a copy of the trained weights and restore it after sampling
# mended: MENDED=1
import copy
import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(16)
T = 100


class Denoiser(nn.Module):
    def __init__(self, dim=64, width=192):
        super().__init__()
        self.time = nn.Sequential(nn.Embedding(T, 64), nn.Linear(64, width))
        self.inp, self.out = nn.Linear(dim, width), nn.Linear(width, dim)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU()) for _ in range(3)
        )

    def forward(self, x, t):
        h = self.inp(x)
        c = self.time(t)
        for layer in self.layers:
            h = h + layer(h + c)
        return self.out(h)


class Ema:
    def __init__(self, model, decay=0.997):
        self.decay = decay
        self.values = {k: v.detach().clone() for k, v in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model):
        for k, v in model.state_dict().items():
            self.values[k].lerp_(v, 1 - self.decay)

    def copy_to(self, model):
        model.load_state_dict(self.values)


class Diffusion:
    def __init__(self):
        beta = torch.linspace(1e-3, 0.12, T)
        self.alpha, self.beta = 1 - beta, beta
        self.bar = torch.cumprod(self.alpha, 0)

    def loss(self, model, x):
        t = torch.randint(0, T, (len(x),))
        e = torch.randn_like(x)
        b = self.bar[t].unsqueeze(1)
        return F.mse_loss(model(b.sqrt() * x + (1 - b).sqrt() * e, t), e)

    @torch.no_grad()
    def sample(self, model, n=8):
        x = torch.randn(n, 64)
        for i in reversed(range(T)):
            e = model(x, torch.full((n,), i))
            x = (x - self.beta[i] / (1 - self.bar[i]).sqrt() * e) / self.alpha[i].sqrt()
            if i:
                x = x + self.beta[i].sqrt() * torch.randn_like(x)
        return x


def main():
    x = torch.tensor(load_digits().data, dtype=torch.float32) / 8 - 1
    model, diffusion = Denoiser(), Diffusion()
    ema = Ema(model)
    opt = torch.optim.AdamW(model.parameters(), lr=1.5e-3, weight_decay=0.0)
    smooth = 1.0
    for step in range(1, 521):
        loss = diffusion.loss(model, x[torch.randint(0, len(x), (96,))])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        ema.update(model)
        smooth += 0.1 * (loss.item() - smooth)
        if step % 20 == 0 or (step > 300 and step % 30 < 4):
            print(f"step {step} loss {loss.item():.4f} smooth {smooth:.4f}")
        if step >= 300 and step % 30 == 0:
            kept = copy.deepcopy(model.state_dict()) if os.environ.get("MENDED") == "1" else None
            ema.copy_to(model)
            images = diffusion.sample(model)
            print(f"   samples mean {images.mean():.3f} std {images.std():.3f}")
            if kept is not None:
                model.load_state_dict(kept)


if __name__ == "__main__":
    main()
