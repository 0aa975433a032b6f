# expect: sick
# symptom: training is fine while only the classifier is trained; soon after the fine-tuning phase begins the loss swings up, and runs away or sticks at chance
# axis: optimizer
# cause: in the fine-tuning phase the loop still calls zero_grad() of the first-phase (head) optimizer, so the gradients of the encoder are never cleared and accumulate from step to step
# says: (?=.*(zero_?grad|zeroed|clear|reset|zeroing|zeroes|accumulat|stale|add(ed|s)? up|pile|sum of all))(?=.*(grad))(?=.*(encoder|backbone|head|fine.?tun|second|stage|phase|wrong|other|first|unfroz|full|body|conv))
# onset_step: 262
# fix: clear the gradients of the optimizer that steps (model.zero_grad() or optimizer.zero_grad())
# mended: yes
"""Beat classification in one-lead ECG.

Stage A: denoising pretraining of the encoder on unlabelled beats.
Stage B: linear probe on labelled beats.
Stage C: fine-tuning of the whole network with a lower rate for the encoder.
"""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
T = 96
CLASSES = ["normal", "pvc", "st_elev", "lbbb", "t_inv"]


def beats(n, seed):
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 1, T)[None, :]
    y = rng.integers(0, len(CLASSES), n)

    def wave(center, width, amp):
        return amp[:, None] * np.exp(-0.5 * ((t - center[:, None]) / width[:, None]) ** 2)

    jit = rng.normal(0, 0.035, n)
    one = np.ones(n)
    gain = rng.uniform(0.7, 1.3, n)
    qrs_w = 0.016 * one + 0.028 * (y == 1) + 0.014 * (y == 3)
    t_amp = 0.3 * one - 0.5 * (y == 4) + rng.normal(0, 0.05, n)
    p_amp = 0.16 * (y != 1) + rng.normal(0, 0.02, n)
    sig = wave(0.22 + jit, 0.028 * one, p_amp)
    sig += wave(0.42 + jit, qrs_w, 1.1 * one) - wave(0.42 + jit + 1.9 * qrs_w, qrs_w, 0.4 * one)
    sig += wave(0.47 + jit, 0.012 * one, 0.5 * (y == 3))
    sig += wave(0.55 + jit, 0.06 * one, 0.28 * (y == 2))
    sig += wave(0.70 + jit + rng.normal(0, 0.02, n), 0.05 * one, t_amp)
    drift = rng.uniform(0, 0.2, (n, 1)) * np.sin(2 * np.pi * (rng.uniform(0.3, 1.2, (n, 1)) * t + rng.random((n, 1))))
    x = gain[:, None] * sig + drift + rng.normal(0, 0.09, (n, T))
    return torch.tensor(x, dtype=torch.float32).unsqueeze(1), torch.tensor(y)


class Encoder(nn.Module):
    def __init__(self, c=24):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, c, 7, stride=2, padding=3),
            nn.GroupNorm(4, c),
            nn.ReLU(),
            nn.Conv1d(c, 2 * c, 5, stride=2, padding=2),
            nn.GroupNorm(4, 2 * c),
            nn.ReLU(),
            nn.Conv1d(2 * c, 2 * c, 5, stride=2, padding=2),
            nn.GroupNorm(4, 2 * c),
            nn.ReLU(),
        )

    def forward(self, x):
        return self.net(x)


class BeatNet(nn.Module):
    def __init__(self, encoder, c=48):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(c, len(CLASSES))

    def forward(self, x):
        return self.head(self.encoder(x).mean(-1))


def pretrain(encoder, x, steps=100):
    decoder = nn.Sequential(
        nn.ConvTranspose1d(48, 24, 8, stride=4, padding=2), nn.ReLU(), nn.ConvTranspose1d(24, 1, 4, stride=2, padding=1)
    )
    opt = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=2e-3)
    for s in range(1, steps + 1):
        xb = x[torch.randint(0, len(x), (64,))]
        keep = (torch.rand_like(xb) > 0.3).float()
        loss = F.mse_loss(decoder(encoder(xb * keep)), xb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if s % 25 == 0:
            print(f"[pretrain] {s:3d}  mse {loss.item():.4f}")


@torch.no_grad()
def accuracy(model, x, y):
    return (model(x).argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(3)
    x, y = beats(4000, 50)
    xv, yv = beats(800, 51)
    encoder = Encoder()
    pretrain(encoder, x)

    model = BeatNet(encoder)
    head_optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1, momentum=0.9)
    probe_steps, finetune_steps = 160, 440
    optimizer = head_optimizer
    model.encoder.requires_grad_(False)
    losses = []
    for step in range(1, probe_steps + finetune_steps + 1):
        if step == probe_steps + 1:
            print("unfreezing encoder")
            model.encoder.requires_grad_(True)
            optimizer = torch.optim.SGD(
                [{"params": model.encoder.parameters(), "lr": 0.006}, {"params": model.head.parameters(), "lr": 0.01}],
                momentum=0.9,
                weight_decay=1e-4,
            )
        idx = torch.randint(0, len(x), (96,))
        loss = F.cross_entropy(model(x[idx]), y[idx])
        if os.environ.get("MENDED") == "1":
            optimizer.zero_grad()
        else:
            head_optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 20 == 0:
            stage = "probe" if step <= probe_steps else "finetune"
            print(f"[{stage}] {step:3d}  loss {np.mean(losses[-20:]):.4f}")
        if step % 80 == 0:
            print(f"    val acc {accuracy(model, xv, yv):.3f}")


if __name__ == "__main__":
    main()
