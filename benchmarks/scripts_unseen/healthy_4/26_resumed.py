# expect: healthy
# cause: none, the run is interrupted and resumed with weights, optimizer, schedule, generator and position in the data all restored
import os
import tempfile

import torch
import torch.nn as nn

STEPS, CUT = 320, 150
path = os.path.join(tempfile.gettempdir(), f"fluid_{os.getpid()}.pt")


def flow_fields(n, g):
    """predict the pressure drop of a pipe network from roughness, width and flow at eight sections"""
    rough, width, flow = torch.rand(3, n, 8, generator=g)
    drop = ((0.02 + 0.1 * rough) * (0.3 + flow) ** 2 / (0.6 + width) ** 2).sum(1, keepdim=True)
    return torch.cat([rough, width, flow], 1) * 2 - 1, drop


class Pipeline:
    def __init__(self):
        torch.manual_seed(260)
        self.model = nn.Sequential(nn.Linear(24, 192), nn.SiLU(), nn.Linear(192, 192), nn.SiLU(), nn.Linear(192, 1))
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=3e-3, weight_decay=1e-2)
        self.sched = torch.optim.lr_scheduler.OneCycleLR(self.opt, 3e-3, total_steps=STEPS, pct_start=0.2)
        self.gen = torch.Generator().manual_seed(1)
        self.x, self.y = flow_fields(4000, torch.Generator().manual_seed(2))
        self.xv, self.yv = flow_fields(500, torch.Generator().manual_seed(3))
        mean, std = self.y.mean(), self.y.std()
        self.y, self.yv = (self.y - mean) / std, (self.yv - mean) / std
        self.step = 0

    def save(self):
        torch.save(
            {
                "model": self.model.state_dict(),
                "opt": self.opt.state_dict(),
                "sched": self.sched.state_dict(),
                "gen": self.gen.get_state(),
                "step": self.step,
            },
            path,
        )

    def restore(self):
        s = torch.load(path)
        self.model.load_state_dict(s["model"])
        self.opt.load_state_dict(s["opt"])
        self.sched.load_state_dict(s["sched"])
        self.gen.set_state(s["gen"])
        self.step = s["step"]

    def run(self, until):
        while self.step < until:
            i = torch.randint(0, 4000, (96,), generator=self.gen)
            loss = nn.functional.mse_loss(self.model(self.x[i]), self.y[i])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.sched.step()
            self.step += 1
            if self.step % 30 == 0:
                with torch.no_grad():
                    val = nn.functional.mse_loss(self.model(self.xv), self.yv).item()
                print(f"step {self.step} lr {self.sched.get_last_lr()[0]:.5f} loss {loss.item():.4f} val {val:.4f}")


first = Pipeline()
first.run(CUT)
first.save()
del first
print("-- interrupted, new process state --")
second = Pipeline()
second.restore()
second.run(STEPS)
os.remove(path)
