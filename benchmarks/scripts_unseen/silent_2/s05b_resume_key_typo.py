# expect: sick
# fault: optimizer state in the checkpoint is never loaded
# onset_step: 100
# says: (?i)(optimi[sz]er|moment|adam|exp_avg|state|resum|checkpoint|restor|fresh)
# note: the checkpoint saves the state under 'optim' and the resume asks for 'optimizer' inside an if, so the state is silently skipped.
import io
from collections import OrderedDict

import torch
from torch import nn


class ResBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.f = nn.Sequential(
            OrderedDict(
                c1=nn.Conv2d(c, c, 3, padding=1), n1=nn.GroupNorm(4, c), a=nn.SiLU(), c2=nn.Conv2d(c, c, 3, padding=1)
            )
        )

    def forward(self, x):
        return x + self.f(x)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, padding=1)
        self.body = nn.Sequential(ResBlock(16), ResBlock(16))
        self.tail = nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, x):
        return x - self.tail(self.body(self.stem(x)))


class Experiment:
    def __init__(self):
        self.model = Denoiser()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3, weight_decay=1e-4)
        self.step = 0

    def save(self, f):
        torch.save(
            dict(
                net=self.model.state_dict(),
                optim=self.optimizer.state_dict(),
                step=self.step,
                rng=torch.get_rng_state(),
            ),
            f,
        )

    def load(self, f):
        ck = torch.load(f)
        self.model.load_state_dict(ck["net"])
        if "optimizer" in ck:
            self.optimizer.load_state_dict(ck["optimizer"])
        self.step = ck["step"]
        torch.set_rng_state(ck["rng"])

    def clean(self, n):
        k = torch.randint(1, 5, (n, 1, 1, 1)).float()
        g = torch.linspace(0, 3.14, 14)
        return torch.sin(k * g[None, None, :, None]) * torch.cos(k * g[None, None, None, :])

    def run(self, n):
        for _ in range(n):
            c = self.clean(12)
            noisy = c + 0.3 * torch.randn_like(c)
            loss = (self.model(noisy) - c).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.step += 1
            if self.step % 25 == 0:
                print(self.step, float(loss))


torch.manual_seed(2)
first = Experiment()
first.run(100)
buf = io.BytesIO()
first.save(buf)
del first
buf.seek(0)
second = Experiment()
second.load(buf)
second.run(80)
