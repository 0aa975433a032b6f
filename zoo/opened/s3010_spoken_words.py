# expect: sick
# symptom: train loss falls slowly and stays high, the accuracy remains poor on both sets; no error
# axis: data
# cause: the feature cache is keyed by the utterance number only, which repeats over speakers: wrong features
# says: cach.*(key|colli|speaker|stale|wrong|utterance|another|other|repeat)|(key|colli|speaker|stale).*cach|memoi
# onset_step: 1
# fix: key the feature cache by speaker and utterance
# mended: the script applies that change if the environment has MENDED=1
"""Spoken word classifier: log spectrogram front end, small temporal CNN."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
FLAG = os.environ.get("MENDED") == "1"
WORDS, RATE, LENGTH = 10, 4000, 2000


class Utterance:
    """A recording as the corpus lists it: speaker, number within the session, word."""

    def __init__(self, speaker, number, word, wave):
        self.speaker, self.number, self.word, self.wave = speaker, number, word, wave

    @property
    def uid(self):
        return f"{self.speaker}/u{self.number:04d}" if FLAG else f"u{self.number:04d}"


def record(speaker, count, formants, rng):
    t = np.arange(LENGTH) / RATE
    pitch = rng.uniform(90, 180)
    stretch = rng.uniform(0.95, 1.05)
    session = []
    for n in range(count):
        w = int(rng.integers(WORDS))
        f1, f2, glide = formants[w]
        ph = rng.uniform(0, 6.28, 3)
        wave = (
            np.sin(2 * np.pi * f1 * stretch * t + ph[0]) * np.exp(-3 * t)
            + np.sin(2 * np.pi * (f2 + glide * t) * stretch * t + ph[1])
            + 0.5 * np.sin(2 * np.pi * pitch * t + ph[2])
        )
        wave = wave * rng.uniform(0.5, 1.5) + 0.5 * rng.normal(size=LENGTH)
        session.append(Utterance(speaker, n, w, torch.from_numpy(wave).float()))
    return session


class FeatureStore:
    """Spectrograms are computed once and kept, the front end is the slow part."""

    def __init__(self):
        self.done = {}
        self.window = torch.hann_window(128)

    def __call__(self, utt):
        if utt.uid not in self.done:
            spec = torch.stft(utt.wave, 128, hop_length=64, window=self.window, return_complex=True).abs()
            feat = (spec + 1e-3).log()
            self.done[utt.uid] = (feat - feat.mean()) / feat.std()
        return self.done[utt.uid]


class SpokenWords(Dataset):
    def __init__(self, utterances):
        self.utterances = utterances
        self.features = FeatureStore()

    def __len__(self):
        return len(self.utterances)

    def __getitem__(self, i):
        utt = self.utterances[i]
        return self.features(utt), utt.word


class WordNet(nn.Module):
    def __init__(self, bins=65, width=48):
        super().__init__()
        self.c1 = nn.Conv1d(bins, width, 5, padding=2)
        self.c2 = nn.Conv1d(width, width, 5, padding=2, stride=2)
        self.n1, self.n2 = nn.GroupNorm(4, width), nn.GroupNorm(4, width)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(width, WORDS)

    def forward(self, x):
        x = F.gelu(self.n1(self.c1(x)))
        x = F.gelu(self.n2(self.c2(x)))
        return self.out(self.drop(x.mean(-1)))


def accuracy(model, loader):
    model.eval()
    with torch.no_grad():
        hits = [(model(x).argmax(1) == y).float() for x, y in loader]
    model.train()
    return torch.cat(hits).mean().item()


def main():
    torch.manual_seed(21)
    rng = np.random.default_rng(21)
    formants = [(rng.uniform(250, 800), rng.uniform(900, 1700), rng.uniform(-200, 200)) for _ in range(WORDS)]
    corpus = [u for s in range(8) for u in record(f"spk{s:02d}", 80, formants, rng)]
    held_out = record("spk90", 120, formants, rng)
    train = DataLoader(SpokenWords(corpus), batch_size=32, shuffle=True, drop_last=True)
    test = DataLoader(SpokenWords(held_out), batch_size=60)
    model = WordNet()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    step = 0
    for epoch in range(12):
        for x, y in train:
            loss = F.cross_entropy(model(x), y, label_smoothing=0.02)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 20 == 0:
                print(f"epoch {epoch} step {step:4d} loss {loss.item():.4f}")
    print(
        f"final loss {loss.item():.4f} accuracy train {accuracy(model, train):.3f} "
        f"held-out speaker {accuracy(model, test):.3f}"
    )


if __name__ == "__main__":
    main()
