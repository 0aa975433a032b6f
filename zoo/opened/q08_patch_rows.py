# expect: healthy
# symptom: none (target is vertical centre, width and height, which a left-right flip rightly leaves)
# axis: none
# mended: none
"""Finds a bright patch on a dark cluttered background with a small conv net."""

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(4)
rng = np.random.default_rng(4)
SIZE = 32


def scene():
    img = 0.15 * rng.standard_normal((SIZE, SIZE)).astype(np.float32)
    h = rng.integers(6, 13)
    w = rng.integers(6, 13)
    top = rng.integers(0, SIZE - h)
    left = rng.integers(0, SIZE - w)
    bump = 0.4 + 0.6 * np.sin(np.linspace(0, np.pi, w, dtype=np.float32))
    img[top : top + h, left : left + w] += bump
    box = np.array([top + h / 2, w, h], dtype=np.float32) / SIZE  # row centre, width, height
    return img, box


class PatchSet(torch.utils.data.Dataset):
    def __init__(self, n, augment):
        pairs = [scene() for _ in range(n)]
        self.images = np.stack([p[0] for p in pairs])
        self.boxes = np.stack([p[1] for p in pairs])
        self.augment = augment

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        img, box = self.images[i], self.boxes[i]
        if self.augment and rng.random() < 0.5:
            img = img[:, ::-1].copy()
        return torch.from_numpy(img)[None], torch.from_numpy(box)


class Locator(nn.Module):
    def __init__(self):
        super().__init__()
        layers, c = [], 1
        for n in (16, 32, 48):
            layers += [nn.Conv2d(c, n, 3, stride=2, padding=1), nn.GroupNorm(4, n), nn.ReLU()]
            c = n
        self.body = nn.Sequential(*layers)
        self.fc = nn.Sequential(nn.Flatten(), nn.Linear(48 * 16, 96), nn.ReLU(), nn.Linear(96, 3))

    def forward(self, x):
        return self.fc(self.body(x)).sigmoid()


train_set, val_set = PatchSet(2880, True), PatchSet(400, False)
loader = torch.utils.data.DataLoader(train_set, batch_size=32, shuffle=True)
model = Locator()
opt = torch.optim.Adam(model.parameters(), lr=1.5e-3)
step = 0
for epoch in range(5):
    model.train()
    for img, box in loader:
        loss = nn.functional.smooth_l1_loss(model(img), box, beta=0.05)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step:3d} loss {loss.item():.5f}")
        step += 1
    model.eval()
    with torch.no_grad():
        err = (model(torch.from_numpy(val_set.images)[:, None]) - torch.from_numpy(val_set.boxes)).abs().mean(0)
    print("epoch", epoch, "val abs error per coordinate", [round(e, 3) for e in err.tolist()])
