# expect: sick
# symptom: the loss turns NaN in the middle of the first pass and stays NaN
# axis: precision
# cause: the log of the half precision mel energies uses eps 1e-10, which rounds to zero in float16, so digitally silent frames give log(0) = -inf and NaN after normalisation
# says: log[\s\S]{0,30}(\(?\b0\b|zero|silen|-?inf)|(silen\w*|zero|digital|empty)[\s\S]{0,60}(log|-?inf|half|fp16|float16|mel|frame|energ|clip|input|sampl|feature)|(eps|epsilon|1e-10)[\s\S]{0,60}(fp16|float.?16|half|underflow|zero|too small|vanish)|(fp16|float.?16|half)[\s\S]{0,60}(underflow|eps|1e-10|log|-inf)|(non.?finite|nan|inf)[\w/ -]{0,20}(in |values? in )?(the )?(input|feature|data|batch|sample|mel)|(input|feature|data|batch|sample|mel)s?\b[\s\S]{0,30}(non.?finite|contains? (nan|inf)|\binf\b)
# onset_step: 25
# fix: convert the mels to float32 before the log (or an eps of about 1e-5 that float16 can hold)
# mended: with MENDED=1 the mels are converted to float32 before the log
import math
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
RATE, LENGTH, N_FFT, HOP, N_MEL = 8000, 4000, 256, 128, 32
WORDS = ["up", "down", "flat", "double", "pulse", "warble"]


def synth(word, rng):
    t = np.arange(LENGTH // 2) / RATE
    dur = t[-1]
    f = rng.uniform(500, 1200)
    if word == "up":
        ph = f * t + f * t**2 / (2 * dur)
    elif word == "down":
        ph = 2 * f * t - f * t**2 / (2 * dur)
    elif word == "warble":
        ph = f * t + 12 * np.sin(2 * np.pi * 12 * t)
    else:
        ph = f * t
    x = np.sin(2 * np.pi * ph)
    if word == "double":
        x = 0.6 * x + 0.6 * np.sin(2 * np.pi * 2.5 * f * t)
    if word == "pulse":
        x = x * (np.sin(2 * np.pi * 16 * t) > 0)
    return x * np.hanning(len(x)) ** 0.3 * rng.uniform(0.3, 0.9)


def record_session(path, n, seed, room_noise):
    """One recording session: fixed length clips, some rooms are noisy, the studio uses a noise gate."""
    rng = np.random.default_rng(seed)
    clips = np.zeros((n, LENGTH), np.float32)
    labels = rng.integers(0, len(WORDS), n)
    for i in range(n):
        start = rng.integers(0, LENGTH // 2)
        clips[i] = room_noise * rng.standard_normal(LENGTH)
        clips[i, start : start + LENGTH // 2] += synth(WORDS[labels[i]], rng)
    np.savez(path, clips=clips, labels=labels)


def mel_matrix():
    def mel(f):
        return 2595 * math.log10(1 + f / 700)

    edges = [700 * (10 ** (m / 2595) - 1) for m in np.linspace(mel(60), mel(RATE / 2), N_MEL + 2)]
    freqs = torch.linspace(0, RATE / 2, N_FFT // 2 + 1)
    rows = []
    for lo, mid, hi in zip(edges[:-2], edges[1:-1], edges[2:]):
        up, down = (freqs - lo) / (mid - lo), (hi - freqs) / (hi - mid)
        rows.append(torch.minimum(up, down).clamp(min=0))
    return torch.stack(rows)


class SessionDataset(Dataset):
    """Keeps the mel energies in half precision: they take half the memory."""

    def __init__(self, paths):
        bank, window = mel_matrix(), torch.hann_window(N_FFT)
        mels, labels = [], []
        for p in paths:
            z = np.load(p)
            spec = torch.stft(torch.from_numpy(z["clips"]), N_FFT, HOP, window=window, return_complex=True)
            mels.append(torch.matmul(bank, spec.abs() ** 2 / N_FFT).half())
            labels.append(torch.from_numpy(z["labels"]))
        self.mels, self.labels = torch.cat(mels), torch.cat(labels)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        m = self.mels[i]
        if os.environ.get("MENDED") == "1":
            m = m.float()
        x = torch.log(m + 1e-10).float()
        return (x - x.mean()) / x.std(), self.labels[i]


class KeywordNet(nn.Module):
    def __init__(self, ch=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(N_MEL, ch, 5, padding=2),
            nn.BatchNorm1d(ch),
            nn.ReLU(),
            nn.Conv1d(ch, ch, 5, padding=2, stride=2),
            nn.BatchNorm1d(ch),
            nn.ReLU(),
            nn.Conv1d(ch, ch, 3, padding=1),
            nn.BatchNorm1d(ch),
            nn.ReLU(),
        )
        self.head = nn.Linear(ch, len(WORDS))

    def forward(self, x):
        h = self.net(x)
        return self.head(h.mean(-1))


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as root:
        noise = [0.02, 0.01, 0.015, 0.0, 0.02, 0.0]
        paths = [os.path.join(root, f"session{i}.npz") for i in range(len(noise) + 1)]
        for i, level in enumerate(noise):
            record_session(paths[i], 256, i, level)
        record_session(paths[-1], 200, 77, 0.01)
        train, test = SessionDataset(paths[:-1]), SessionDataset(paths[-1:])

    loader = DataLoader(train, batch_size=32, shuffle=False)
    model = KeywordNet()
    loss_fn = nn.CrossEntropyLoss()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    for epoch in range(7):
        model.train()
        for x, y in loader:
            loss = loss_fn(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 12 == 0:
                print(f"step {step:4d} loss {loss.item():.4f}")
        model.eval()
        with torch.no_grad():
            hits = [(model(x).argmax(1) == y).float().mean().item() for x, y in DataLoader(test, batch_size=100)]
        print(f"epoch {epoch} test accuracy {sum(hits) / len(hits):.3f}")


if __name__ == "__main__":
    main()
