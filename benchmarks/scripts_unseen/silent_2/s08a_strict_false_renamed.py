# expect: sick
# fault: renamed keys silently not loaded with strict=False
# onset_step: 120
# says: (?i)(not loaded|missing|unexpected|strict|renam|mismatch|key|re-?initiali[sz]|random(ly)? init|partial|load|restor|resum|weights? (were|was) lost|chang)
# note: between the two launches the encoder was renamed to backbone, and strict=False hides that its weights stay random after the resume.
import os
import tempfile
import torch
import torch.nn as nn
import torch.nn.functional as F

CK = os.path.join(tempfile.mkdtemp(), "checkpoint.pth")


class NetV1(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(32, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU())
        self.head = nn.Linear(96, 7)

    def forward(self, x):
        return self.head(self.encoder(x))


class NetV2(nn.Module):
    """same net after the refactor"""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(32, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU())
        self.head = nn.Linear(96, 7)

    def forward(self, x):
        return self.head(self.backbone(x))


torch.manual_seed(0)
P = torch.randn(7, 32)


def batch():
    y = torch.randint(0, 7, (48,))
    return P[y] * 0.6 + torch.randn(48, 32), y


def train(model, start, end, resume=False):
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    if resume:
        ck = torch.load(CK)
        model.load_state_dict(ck["state_dict"], strict=False)
        opt.load_state_dict(ck["optimizer"])
        start = ck["step"]
        print(f"resumed at step {start}")
    for step in range(start, end):
        x, y = batch()
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 15 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")
    torch.save({"state_dict": model.state_dict(), "optimizer": opt.state_dict(), "step": end}, CK)


train(NetV1(), 0, 120)
train(NetV2(), 0, 240, resume=True)
