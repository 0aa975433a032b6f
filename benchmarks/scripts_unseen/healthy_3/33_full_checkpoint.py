# expect: healthy
# fault: resume
# note: model, optimizer, scheduler, step and generator are all saved and restored in a new trainer; the curve goes on without a seam.
import tempfile
from pathlib import Path
import torch
from torch import nn

torch.set_num_threads(1)


class Trainer:
    def __init__(self):
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Linear(8, 48), nn.GELU(), nn.Linear(48, 48), nn.GELU(), nn.Linear(48, 3))
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=4e-3)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, 200)
        self.gen = torch.Generator().manual_seed(99)
        self.step = 0

    def batch(self):
        x = torch.randn(48, 8, generator=self.gen)
        return x, (torch.stack([x[:, 0] * x[:, 1], x[:, 2], x[:, 3].abs() - 0.8], 1)).argmax(1)

    def train(self, until):
        while self.step < until:
            x, y = self.batch()
            loss = nn.functional.cross_entropy(self.net(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.sched.step()
            if self.step % 20 == 0:
                print(self.step, f"{loss.item():.4f} lr {self.sched.get_last_lr()[0]:.5f}")
            self.step += 1

    def save(self, path):
        torch.save(
            {
                "net": self.net.state_dict(),
                "opt": self.opt.state_dict(),
                "sched": self.sched.state_dict(),
                "gen": self.gen.get_state(),
                "step": self.step,
            },
            path,
        )

    def load(self, path):
        c = torch.load(path)
        self.net.load_state_dict(c["net"])
        self.opt.load_state_dict(c["opt"])
        self.sched.load_state_dict(c["sched"])
        self.gen.set_state(c["gen"])
        self.step = c["step"]


with tempfile.TemporaryDirectory() as d:
    t = Trainer()
    t.train(100)
    t.save(Path(d) / "ck.pt")
    t = Trainer()
    t.load(Path(d) / "ck.pt")
    t.train(200)
