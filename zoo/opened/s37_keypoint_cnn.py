# expect: sick
# symptom: loss falls in the first epoch, at step 120 (second epoch) it leaps to the variance of the targets and stays
# axis: data
# cause: at each new epoch the images are permuted but not their targets: the pairing is lost
# says: (?i)(pair|permut|misalign|mismatch|(input|image|target|label).{0,40}(order|shuffl|other row|another row)|shuffl.{0,40}(separate|apart|without))
# onset_step: 120
# fix: permute images and targets with the same order
# mended: MENDED=1 python s37_keypoint_cnn.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(39)


class Blobs(Dataset):
    def __init__(self, n, size=12):
        g = torch.Generator().manual_seed(24)
        self.point = torch.rand(n, 2, generator=g)
        u = torch.linspace(0, 1, size)
        yy, xx = torch.meshgrid(u, u, indexing="ij")
        d = (xx - self.point[:, 0].view(-1, 1, 1)) ** 2 + (yy - self.point[:, 1].view(-1, 1, 1)) ** 2
        self.img = torch.exp(-d / 0.02).unsqueeze(1) + 0.1 * torch.randn(n, 1, size, size, generator=g)
        self.target = (self.point - 0.5) * 3.4

    def on_epoch_start(self, epoch):
        if epoch == 0:
            return
        order = torch.randperm(len(self.img), generator=torch.Generator().manual_seed(epoch))
        self.img = self.img[order]
        if os.environ.get("MENDED") == "1":
            self.target = self.target[order]

    def __len__(self):
        return len(self.img)

    def __getitem__(self, i):
        return self.img[i], self.target[i]


data = Blobs(119 * 32)
net = nn.Sequential(
    nn.Conv2d(1, 8, 3, stride=2, padding=1),
    nn.ReLU(),
    nn.Conv2d(8, 16, 3, stride=2, padding=1),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(144, 48),
    nn.ReLU(),
    nn.Linear(48, 2),
)
opt, step = torch.optim.Adam(net.parameters(), lr=2e-3), 0
for epoch in range(3):
    data.on_epoch_start(epoch)
    for img, target in DataLoader(data, batch_size=32):
        loss = nn.functional.mse_loss(net(img), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step % 20 == 0 or 117 < step < 123:
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
