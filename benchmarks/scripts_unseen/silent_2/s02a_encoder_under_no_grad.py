# expect: sick
# fault: encoder runs under no_grad though it is in the optimizer
# onset_step: 0
# says: (?i)(no_grad|detach|no gradient|without grad|grad(ient)?s? (is|are)? ?(none|missing|never)|never (learn|train|mov|chang|updat|receiv)|not (learn|train|updat)|cut off|graph|unused|frozen)
# note: extract_features was decorated with no_grad for inference and is then used in training, so the encoder in the optimizer never learns.
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
N = 2048
x = torch.randn(N, 1, 20, 20)
freq = torch.randint(0, 6, (N,))
grid = torch.linspace(0, 3.14, 20)
x = x + torch.stack([torch.sin(grid[None, :] * (f + 1)).expand(20, 20)[None] for f in freq.tolist()])
loader = DataLoader(TensorDataset(x, freq), batch_size=64, shuffle=True, drop_last=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.classifier = nn.Sequential(nn.Linear(32 * 25, 64), nn.ReLU(), nn.Linear(64, 6))

    @torch.no_grad()
    def extract_features(self, img):
        return self.encoder(img)

    def forward(self, img):
        feats = self.extract_features(img)
        return self.classifier(feats)


net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
step = 0
for epoch in range(4):
    net.train()
    total = 0
    for xb, yb in loader:
        out = net(xb)
        loss = F.cross_entropy(out, yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        step += 1
    print(f"epoch {epoch}: train loss {total / len(loader):.4f}")
