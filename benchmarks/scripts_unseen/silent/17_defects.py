# EXPECT: sick
# FAULT: sigmoid in the model and BCEWithLogitsLoss
# ONSET: 1
# SAYS: sigmoid|logits
import torch
import torch.nn as nn

torch.set_num_threads(1)
SEED = 55
torch.manual_seed(SEED)


class DefectNet(nn.Module):
    """Patch -> probability that there is a scratch."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 8, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveMaxPool2d(1),
        )
        self.fc = nn.Linear(16, 1)
        self.sigmoid = nn.Sigmoid()

    def forward(self, x):
        return self.sigmoid(self.fc(self.conv(x).flatten(1)))


def patches(bs):
    x = torch.randn(bs, 1, 14, 14) * 0.5
    y = (torch.rand(bs, 1) < 0.15).float()  # defects are rare
    for b in range(bs):
        if y[b] > 0:
            r = torch.randint(0, 14, (1,)).item()
            x[b, 0, r, 3:11] += 2.0
    return x, y


net = DefectNet()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
loss_fn = nn.BCEWithLogitsLoss()
for step in range(100):
    x, y = patches(48)
    loss = loss_fn(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss:.4f}")
