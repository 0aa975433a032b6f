# expect: sick
# fault: images divided by 255 twice
# onset_step: 0
# says: (?i)(255|input.*(scale|range|small|tiny|std|normali|magnitude)|normali[sz]|scal(e|ing)|tiny input|chance|flat|not (learn|improv)|stuck|stall|plateau|constant)
# note: the dataset already gives floats in [0, 1] and the training loop divides by 255 again, so all the inputs are below 0.004.
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Shapes(Dataset):
    def __init__(self, n, seed=0):
        r = np.random.RandomState(seed)
        self.y = r.randint(0, 6, n)
        self.x = r.randint(0, 90, (n, 16, 16)).astype(np.uint8)
        for i, c in enumerate(self.y):
            a, b = divmod(c, 3)
            self.x[i, a * 8 : a * 8 + 7, b * 5 : b * 5 + 5] += 120

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return torch.from_numpy(self.x[i]).float().div(255).unsqueeze(0), int(self.y[i])


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 3)
        self.f1, self.f2 = nn.Linear(64, 48), nn.Linear(48, 6)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.c1(x)), 2)
        x = F.max_pool2d(F.relu(self.c2(x)), 2)
        return self.f2(F.relu(self.f1(x.flatten(1))))


torch.manual_seed(0)
net = LeNet()
opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
step = 0
for epoch in range(4):
    for img, lab in DataLoader(Shapes(1280), batch_size=32, shuffle=True):
        img = img / 255.0
        loss = F.cross_entropy(net(img), lab)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"ep {epoch} step {step} loss {loss.item():.4f}")
        step += 1
