# expect: sick
# axis: data
# symptom: after the resume the loss leaps from about 1 to above 5, as if the model knew nothing, then must be learnt again
# cause: the song-to-row mapping is built anew from the order of first appearance in the new day's logs, so the restored embedding and output rows belong to other songs
# says: (vocab|mapping|catalog|catalogue|\bids?\b|index|indices|row|lookup|token|encod|dictionary).{0,200}(rebuil|re-?built|built (anew|again)|differ|chang|order|permut|shuffl|mismatch|not (saved|restored|reused|loaded)|other|another|new|anew|again|wrong|no longer)|(rebuil|re-?built|differ|chang|permut|shuffl|mismatch|other|another|wrong).{0,200}(vocab|mapping|catalog|\bids?\b|index|indices|lookup|token|encod|dictionary)
# onset_step: 120
# fix: keep the map of ids in the checkpoint
# mended: the second phase takes the song-to-row mapping out of the checkpoint file
import os
import tempfile

import numpy as np
import torch
from torch import nn

ALT = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

CAPACITY = 160  # rows in the table, some kept free
LENGTH = 24
BATCH = 32


class Radio:
    """Listeners move from one song to one of three that go well with it."""

    def __init__(self, n_songs=130, seed=3):
        g = np.random.default_rng(seed)
        self.names = [f"{a}-{i:03d}" for i, a in enumerate(g.choice(["kora", "oud", "viola", "tabla"], n_songs))]
        self.after = np.stack([g.choice(n_songs, 3, replace=False) for _ in range(n_songs)])

    def day(self, g, listeners):
        out = []
        for _ in range(listeners):
            here = int(g.integers(len(self.names)))
            heard = [here]
            for _ in range(LENGTH):
                here = int(self.after[here][g.choice(3, p=[0.65, 0.25, 0.10])])
                heard.append(here)
            out.append([self.names[s] for s in heard])
        return out


class NextSong(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.table = nn.Embedding(CAPACITY, width)
        self.rnn = nn.GRU(width, 72, batch_first=True)
        self.head = nn.Linear(72, CAPACITY)

    def forward(self, x):
        h, _ = self.rnn(self.table(x))
        return self.head(h)


def catalogue(logs):
    return {name: row for row, name in enumerate(dict.fromkeys(s for heard in logs for s in heard))}


def as_rows(logs, songs):
    return torch.tensor([[songs[s] for s in heard] for heard in logs])


def build():
    net = NextSong()
    opt = torch.optim.Adam(net.parameters(), lr=4e-3)
    return net, opt


def steps(net, opt, rows, start, stop, g):
    ce = nn.CrossEntropyLoss()
    for t in range(start, stop):
        pick = torch.from_numpy(g.integers(len(rows), size=BATCH))
        seq = rows[pick]
        out = net(seq[:, :-1])
        loss = ce(out.reshape(-1, CAPACITY), seq[:, 1:].reshape(-1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if t % 20 == 0 or t == start:
            print(f"step {t:4d}  loss {loss.item():.4f}", flush=True)
    print(f"step {stop - 1:4d}  loss {loss.item():.4f}")


def monday(radio, path):
    torch.manual_seed(11)
    g = np.random.default_rng(21)
    logs = radio.day(g, 700)
    songs = catalogue(logs)
    net, opt = build()
    steps(net, opt, as_rows(logs, songs), 0, 240, g)
    torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "step": 240, "songs": songs}, path)


def tuesday(radio, path):
    torch.manual_seed(12)
    g = np.random.default_rng(22)
    logs = radio.day(g, 700)
    kept = torch.load(path)
    songs = kept["songs"] if ALT else catalogue(logs)
    net, opt = build()
    net.load_state_dict(kept["net"])
    opt.load_state_dict(kept["opt"])
    print("resumed at step", kept["step"], "songs", len(songs))
    steps(net, opt, as_rows(logs, songs), kept["step"], 360, g)


if __name__ == "__main__":
    radio = Radio()
    where = os.path.join(tempfile.mkdtemp(), "last.pt")
    monday(radio, where)
    tuesday(radio, where)
