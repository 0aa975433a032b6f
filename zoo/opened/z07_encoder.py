# expect: healthy
# symptom: states are saved and loaded, which looks like one that is forgotten
# axis: none
# mended: none
import os
import tempfile
import torch
from torch import nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 24), nn.ReLU())

    def forward(self, x):
        return self.body(x)


def pretrain(path, mix, steps=70):
    enc, dec = Encoder(), nn.Linear(24, 16)
    opt = torch.optim.Adam([*enc.parameters(), *dec.parameters()], lr=5e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    for i in range(steps):
        x = torch.randn(64, 6) @ mix
        noisy = x + 0.3 * torch.randn_like(x)
        loss = F.mse_loss(dec(enc(noisy)), x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if (i + 1) % 14 == 0:
            print(f"pretrain {i + 1:3d} loss {loss.item():.4f}")
    torch.save(
        {
            "encoder": enc.state_dict(),
            "decoder": dec.state_dict(),
            "optimizer": opt.state_dict(),
            "scheduler": sched.state_dict(),
            "step": steps,
        },
        path,
    )


def finetune(path, mix, steps=50):
    enc = Encoder()
    enc.load_state_dict(torch.load(path)["encoder"])
    head = nn.Linear(24, 2)
    opt = torch.optim.AdamW([{"params": enc.parameters(), "lr": 1e-3}, {"params": head.parameters(), "lr": 1e-2}])
    sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.1, total_iters=steps)
    for i in range(steps):
        z = torch.randn(32, 6)
        y = (z[:, 0] > z[:, 1]).long()
        loss = F.cross_entropy(head(enc(z @ mix)), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if (i + 1) % 10 == 0:
            print(f"finetune {i + 1:3d} loss {loss.item():.4f}")


if __name__ == "__main__":
    torch.manual_seed(12)
    mix = torch.randn(6, 16) / 6**0.5
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "pretrained.pt")
        pretrain(path, mix)
        finetune(path, mix)
