# expect: sick
# symptom: loss falls to nearly 0, leaps at step 20 and again every 19 steps; accuracy over all classes stays at chance
# axis: data
# cause: the rows are sorted by class and the loader does not shuffle
# says: (?i)sorted|shuffl|by class|class order|data order|in order\b|one class at a time
# onset_step: 20
# fix: shuffle=True
# mended: MENDED=1 python s27_sorted_tiles.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(28)


class TileFolder(Dataset):
    """Like an image folder: listing goes directory by directory."""

    def __init__(self, per_class=19 * 32, classes=5):
        g = torch.Generator().manual_seed(16)
        proto = torch.randn(classes, 3, 8, 8, generator=g)
        self.files = [(c, k) for c in range(classes) for k in range(per_class)]
        self.noise = torch.randn(len(self.files), 3, 8, 8, generator=g)
        self.proto = proto

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        c = self.files[i][0]
        return 0.6 * self.proto[c] + self.noise[i], c


data = TileFolder()
net = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 16, 3, padding=1),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(256, 5),
)
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
probe = [data[i] for i in range(0, len(data), 11)]
px, py = torch.stack([p[0] for p in probe]), torch.tensor([p[1] for p in probe])
step = 0
for epoch in range(2):
    for x, y in DataLoader(data, batch_size=32, shuffle=os.environ.get("MENDED") == "1"):
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step % 6 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    with torch.no_grad():
        print(f"epoch {epoch} accuracy over all {(net(px).argmax(1) == py).float().mean().item():.3f}")
