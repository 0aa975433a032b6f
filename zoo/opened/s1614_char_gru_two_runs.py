# expect: sick
# symptom: the loss falls smoothly; right after the resume from the checkpoint it jumps back to about its value at initialisation (from 0.4 to 3.7) and training starts nearly from scratch
# axis: harness
# cause: the vocabulary (character to id map) is rebuilt from the new corpus at the resume, sorted by frequency, so the ids mean other characters than those the checkpoint's embedding and output rows were trained for
# says: vocab|char(acter)?s?[- ]?(to[- ]|->|2)?(id|index|map)|token(izer)?[^.]{0,60}(map|id|rebuil|order|differ|chang|mismatch)|stoi|\bid(s)? (map|mapping|assign)|(re)?(map|number|order|index)\w*[^.]{0,30}(token|character|symbol)s?|(token|character|symbol|embedding)[^.]{0,40}(remap|renumber|permut|shuffl|reorder)
# onset_step: 300
# fix: save the vocabulary in the checkpoint and load it at the resume instead of rebuilding it
# mended: the second run takes the vocabulary from the checkpoint
import os
import tempfile
from collections import Counter

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

SEQ, BATCH = 48, 24
ADJ = "old quiet green narrow bright heavy lazy quick frozen jolly".split()
NOUN = "river fox wizard market jacket box zebra village queen harbour".split()
VERB = "sees follows paints crosses fixes enjoys watches mixes".split()


def write_text(n, seed, places):
    r = np.random.default_rng(seed)
    out = []
    for _ in range(n):
        s = f"the {r.choice(ADJ)} {r.choice(NOUN)} {r.choice(VERB)} a {r.choice(ADJ)} {r.choice(NOUN)}"
        if r.random() < places:
            s += f", {r.integers(1900, 2000)}, km {r.integers(10, 99)}"
        out.append(s + ". ")
    return "".join(out)


def build_vocab(text):
    return {c: i for i, (c, _) in enumerate(Counter(text).most_common())}


class CharGRU(nn.Module):
    def __init__(self, vocab, dim=48, hidden=96):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, hidden, num_layers=2, batch_first=True)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


class Run:
    def __init__(self, text, ckpt_path, resume):
        self.ckpt_path = ckpt_path
        state = torch.load(ckpt_path) if resume else None
        self.stoi = build_vocab(text)
        if MENDED and state is not None:
            self.stoi = state["stoi"]
        self.data = torch.tensor([self.stoi[c] for c in text])
        self.model = CharGRU(len(self.stoi))
        self.opt = torch.optim.Adam(self.model.parameters(), lr=3e-3)
        self.step = 0
        if state is not None:
            self.model.load_state_dict(state["model"])
            self.opt.load_state_dict(state["opt"])
            self.step = state["step"]
            print(f"resumed from step {self.step}")

    def batch(self, g):
        i = torch.randint(0, len(self.data) - SEQ - 1, (BATCH,), generator=g)
        w = torch.stack([self.data[j : j + SEQ + 1] for j in i])
        return w[:, :-1], w[:, 1:]

    def train(self, until):
        g = torch.Generator().manual_seed(self.step)
        while self.step < until:
            x, y = self.batch(g)
            loss = F.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
            self.opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            if self.step % 20 == 0:
                print(f"step {self.step:4d}  loss {loss.item():.4f}")
            self.step += 1
        print(f"step {self.step:4d}  last loss {loss.item():.4f}")
        torch.save(
            {"model": self.model.state_dict(), "opt": self.opt.state_dict(), "step": self.step, "stoi": self.stoi},
            self.ckpt_path,
        )


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "last.pt")
        monday = write_text(2500, seed=1, places=0.30)
        Run(monday, path, resume=False).train(300)
        tuesday = monday + write_text(2500, seed=2, places=0.45)
        Run(tuesday, path, resume=True).train(440)


if __name__ == "__main__":
    main()
