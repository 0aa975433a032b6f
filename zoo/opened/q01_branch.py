# expect: healthy
# axis: none
# symptom: when the second phase begins the loss is higher than where the first one ended
# cause: on purpose: the second phase branches off from the checkpoint of step 100 (not the last one) to try the rest of the run with stronger weight decay; mapping, weights and optimizer are all restored
import copy
import os
import tempfile

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)

SETTINGS = {"rows": 128, "width": 40, "hidden": 64, "lr": 3e-3, "decay": 0.0, "batch": 32, "length": 22}


def visits(g, shops, follow, count, length):
    """Walks of shoppers through a market, as lists of shop names."""
    walks = []
    for _ in range(count):
        at = int(g.integers(len(shops)))
        walk = [shops[at]]
        for _ in range(length):
            at = int(follow[at][g.choice(3, p=[0.6, 0.3, 0.1])])
            walk.append(shops[at])
        walks.append(walk)
    return walks


class Walker(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.emb = nn.Embedding(s["rows"], s["width"])
        self.rnn = nn.GRU(s["width"], s["hidden"], batch_first=True)
        self.out = nn.Linear(s["hidden"], s["rows"])

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


class Job:
    def __init__(self, settings, folder, numbering):
        self.s = settings
        self.folder = folder
        self.numbering = numbering
        self.net = Walker(settings)
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=settings["lr"], weight_decay=settings["decay"])
        self.step = 0

    def path(self, step):
        return os.path.join(self.folder, f"at{step}.pt")

    def keep(self):
        torch.save(
            {
                "net": self.net.state_dict(),
                "opt": self.opt.state_dict(),
                "step": self.step,
                "numbering": self.numbering,
            },
            self.path(self.step),
        )

    @classmethod
    def branch(cls, settings, folder, step):
        kept = torch.load(os.path.join(folder, f"at{step}.pt"))
        job = cls(settings, folder, kept["numbering"])
        job.net.load_state_dict(kept["net"])
        job.opt.load_state_dict(kept["opt"])
        for group in job.opt.param_groups:
            group["weight_decay"] = settings["decay"]
        job.step = kept["step"]
        return job

    def run(self, walks, until, g, save_every=100):
        rows = torch.tensor([[self.numbering[n] for n in w] for w in walks])
        while self.step < until:
            seq = rows[torch.from_numpy(g.integers(len(rows), size=self.s["batch"]))]
            scores = self.net(seq[:, :-1])
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), seq[:, 1:].flatten())
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            if self.step % 20 == 0:
                print(f"step {self.step:4d}  loss {loss.item():.4f}", flush=True)
            self.step += 1
            if self.step % save_every == 0:
                self.keep()
        return loss.item()


def main():
    torch.manual_seed(5)
    g = np.random.default_rng(5)
    shops = [f"stall {i}" for i in range(120)]
    follow = np.stack([g.choice(len(shops), 3, replace=False) for _ in shops])
    walks = visits(g, shops, follow, 800, SETTINGS["length"])
    numbering = {name: i for i, name in enumerate(sorted(shops))}
    folder = tempfile.mkdtemp()

    first = Job(SETTINGS, folder, numbering)
    a = first.run(walks, 260, g)
    print(f"run A ended with {a:.4f}")

    other = copy.deepcopy(SETTINGS)
    other["decay"] = 0.2
    print("run B: from step 100 of run A, weight decay", other["decay"])
    second = Job.branch(other, folder, 100)
    b = second.run(walks, 260, g)
    print(f"run B ended with {b:.4f}")


if __name__ == "__main__":
    main()
