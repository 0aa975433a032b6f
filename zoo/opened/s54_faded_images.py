# expect: sick
# symptom: loss leaps at step 620, the beginning of the second epoch, and again at each epoch; it ends near chance
# axis: data
# cause: the contrast augmentation works in place on the stored images, so every epoch trains on images faded further
# says: (?i)in.?place|overwrit|mutat|(modif|alter)\w*.{0,40}(data|image|sample|row|tensor)|(data|image|sample|row|tensor)s?.{0,40}(modif|alter)|accumulat.{0,30}(augment|fad)|faded further
# onset_step: 620
# fix: clone the image before augmenting it
# mended: MENDED=1 python s54_faded_images.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(61)


class Marks(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(37)
        self.labels = torch.randint(0, 6, (n,), generator=g)
        self.images = torch.randn(6, 1, 6, 6, generator=g)[self.labels] + 0.3 * torch.randn(n, 1, 6, 6, generator=g)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        img = self.images[i]
        if os.environ.get("MENDED") == "1":
            img = img.clone()
        fade = 0.05 + 0.1 * torch.rand(())
        img.mul_(fade).add_(0.04 * torch.randn(img.shape))
        return img, self.labels[i]


loader = DataLoader(Marks(16 * 619), batch_size=16, shuffle=True)
net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 6))
opt, step = torch.optim.Adam(net.parameters(), lr=4e-3), 0
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step % 50 == 0 or 618 < step < 623:
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
