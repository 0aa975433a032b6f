# expect: sick
# symptom: the loss becomes NaN in the third recording session and stays so
# axis: precision
# cause: the frame energy is summed in float16, and loud recordings exceed its range of 65504 and give infinity
# says: (overflow\w*|65504|exceed\w*.{0,30}(range|fp16|float16|half)|(fp16|float16|half).{0,60}(inf|range|overflow|too large|too small|limit|energy|sum|square)|(inf|infinite|energy|square)\w*.{0,60}(fp16|float16|half.?precision))
# onset_step: 81
# fix: compute the energy in float32
# mended: MENDED=1
import os

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(8)
ENERGY_DTYPE = torch.float32 if os.environ.get("MENDED") == "1" else torch.float16
FRAME, FRAMES, STATES = 256, 16, 4


def record(session, n, seed):
    """Raw counts of the microphone: sessions differ in the distance to the machine."""
    g = np.random.default_rng(seed)
    gain = [3.0, 4.0, 9.0, 6.0, 12.0][session]
    state = g.integers(0, STATES, n)
    t = np.arange(FRAME * FRAMES) / FRAME
    wave = g.normal(0, 1, (n, len(t)))
    for i, s in enumerate(state):
        rate = 0.15 + 0.12 * s + g.normal(0, 0.015)
        wave[i] *= 1 + 0.8 * np.sin(2 * np.pi * rate * t + g.uniform(0, 6))
        wave[i] += 0.5 * np.sin(2 * np.pi * (3 + s) * t)
    return torch.tensor(np.round(wave * gain * g.uniform(0.8, 1.3, (n, 1))), dtype=torch.float32), torch.tensor(state)


class Features(nn.Module):
    """Log energy per frame and zero crossings, small enough for the edge box."""

    def forward(self, wave):
        frames = wave.view(len(wave), FRAMES, FRAME).to(ENERGY_DTYPE)
        energy = torch.log(frames.square().sum(-1) + 1e-2)
        energy = energy - energy.mean(1, keepdim=True)
        crossing = (frames[..., 1:].sign() != frames[..., :-1].sign()).float().mean(-1)
        return torch.stack([energy.float(), crossing * 2 - 1], -1)


class StateNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = Features()
        self.conv = nn.Sequential(nn.Conv1d(2, 32, 3, padding=1), nn.ReLU(), nn.Conv1d(32, 32, 5, padding=2), nn.ReLU())
        self.head = nn.Linear(32 * FRAMES, STATES)

    def forward(self, wave):
        h = self.conv(self.features(wave).transpose(1, 2))
        return self.head(h.flatten(1))


def main():
    net = StateNet()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    loss_fn = nn.CrossEntropyLoss()
    step = 0
    for session in range(5):
        wave, state = record(session, 1280, seed=100 + session)
        order = torch.randperm(len(wave))
        for i in range(0, len(wave), 32):
            b = order[i : i + 32]
            out = net(wave[b])
            loss = loss_fn(out, state[b])
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            opt.step()
            step += 1
            if step % 10 == 0:
                acc = (out.argmax(1) == state[b]).float().mean().item()
                print(f"session {session} step {step} loss {loss.item():.4f} acc {acc:.2f}")


if __name__ == "__main__":
    main()
