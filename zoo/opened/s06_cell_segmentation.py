# expect: sick
# symptom: loss leaps up by orders of magnitude after the first update and ends in NaN or never comes back
# axis: loss
# cause: the pixel loss is summed over the batch and all pixels instead of averaged, so the gradient is thousands of times too large
# says: (?i)(sum(med)?\b|reduction|not averaged|instead of (the )?(mean|average))
# onset_step: 1
# fix: reduction="mean" instead of "sum"
# mended: MENDED=1 python s06_cell_segmentation.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(21)


class Cells(Dataset):
    def __init__(self, n, size=24):
        g = torch.Generator().manual_seed(4)
        yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        c = torch.randint(5, size - 5, (n, 2, 1, 1), generator=g)
        r = torch.randint(2, 5, (n, 1, 1), generator=g)
        self.mask = ((yy - c[:, 0]) ** 2 + (xx - c[:, 1]) ** 2 < r**2).float().unsqueeze(1)
        self.img = self.mask + 0.5 * torch.randn(n, 1, size, size, generator=g)

    def __len__(self):
        return len(self.img)

    def __getitem__(self, i):
        return {"image": self.img[i], "mask": self.mask[i]}


def conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.ReLU())


class SmallUNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2 = conv(1, 8), conv(8, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.last = nn.Sequential(conv(16, 8), nn.Conv2d(8, 1, 1))

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(nn.functional.max_pool2d(a, 2))
        return self.last(torch.cat([a, self.up(b)], 1))


criterion = nn.BCEWithLogitsLoss(reduction="mean" if os.environ.get("MENDED") == "1" else "sum")
net = SmallUNet()
sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for step, batch in enumerate(DataLoader(Cells(16 * 160), batch_size=16, shuffle=True), start=1):
    sgd.zero_grad()
    loss = criterion(net(batch["image"]), batch["mask"])
    loss.backward()
    sgd.step()
    if step <= 5 or step % 20 == 0:
        print(f"{step:4d} loss {loss.item():.5g}")
