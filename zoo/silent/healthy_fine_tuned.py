"""Fine-tuning: the prefix of a wrapper is removed, the old head left out, and a new one of another name is trained."""

import io

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

centers = torch.randn(8, 16)


class Classifier(nn.Module):
    def __init__(self, head, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.last = head
        self.add_module(head, nn.Linear(32, classes))

    def forward(self, x):
        return self.get_submodule(self.last)(self.body(x))


def train(model, classes, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        labels = torch.randint(8, (32,))
        loss = F.cross_entropy(model(centers[labels] + torch.randn(32, 16)), labels % classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


pretrained = nn.DataParallel(Classifier("head", 8))
train(pretrained, 8, 40)
kept = io.BytesIO()
torch.save(pretrained.state_dict(), kept)

kept.seek(0)
state = {name.removeprefix("module."): one for name, one in torch.load(kept).items()}
model = Classifier("classifier", 4)
model.load_state_dict(state, strict=False)
train(model, 4, 60)
