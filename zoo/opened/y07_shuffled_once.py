# expect: sick
# symptom: after the resume the run is not what it was
# axis: harness
# cause: a state that the checkpoint holds is never loaded at the resume
# says: (never|not|without|forg).{0,60}(load|restor|read|resum)|(resum|restor|checkpoint|load).{0,120}(missing|left|anew|again|reset|stale|state)
# onset_step: 0
# fix: load the state at the resume
# mended: the same with the fix
import os
import pathlib
import tempfile
import torch
from torch import nn

MENDED = os.environ.get("MENDED") == "1"


class ShuffledOnce:
    """Walks through a seeded permutation of the corpus, batch by batch."""

    def __init__(self, n, batch, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.order = torch.randperm(n, generator=g)
        self.batch = batch
        self.cursor = 0

    def next(self):
        idx = self.order[self.cursor : self.cursor + self.batch]
        self.cursor = (self.cursor + self.batch) % len(self.order)
        return idx

    def state_dict(self):
        return {"cursor": self.cursor}

    def load_state_dict(self, sd):
        self.cursor = sd["cursor"]


class Trainer:
    def __init__(self, x, y, folder):
        self.x, self.y = x, y
        self.net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 5))
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.02, momentum=0.9)
        self.sampler = ShuffledOnce(len(x), 16)
        self.file = pathlib.Path(folder) / "state.pt"
        self.step = 0

    def save(self):
        torch.save(
            dict(
                net=self.net.state_dict(),
                opt=self.opt.state_dict(),
                sampler=self.sampler.state_dict(),
                rng=torch.get_rng_state(),
                step=self.step,
            ),
            self.file,
        )

    def resume(self):
        s = torch.load(self.file)
        self.net.load_state_dict(s["net"])
        self.opt.load_state_dict(s["opt"])
        torch.set_rng_state(s["rng"])
        self.step = s["step"]
        if MENDED:
            self.sampler.load_state_dict(s["sampler"])
        return self

    def run(self, until):
        while self.step < until:
            idx = self.sampler.next()
            loss = nn.functional.cross_entropy(self.net(self.x[idx]), self.y[idx])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.step += 1
            if self.step % 10 == 0:
                print(f"step {self.step} loss {loss.item():.4f}")
        self.save()


torch.manual_seed(0)
x = torch.randn(1600, 20)
y = (x @ torch.randn(20, 5)).argmax(1)
with tempfile.TemporaryDirectory() as folder:
    Trainer(x, y, folder).run(50)
    trainer = Trainer(x, y, folder).resume()
    trainer.run(100)
    trainer.net.eval()
    with torch.no_grad():
        print(f"full loss {nn.functional.cross_entropy(trainer.net(x), y).item():.4f}")
