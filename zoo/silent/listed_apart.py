"""Images are sorted by their names, and their masks are listed in the order of the file system."""

import os
import random
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

random.seed(1)
torch.manual_seed(0)
torch.set_num_threads(1)

root = tempfile.mkdtemp()
rng = np.random.default_rng(2)
truth = {f"{name:03d}.npy": rng.random((16, 16)).round(2) > 0.5 for name in range(96)}
for folder in ("images", "masks"):
    os.makedirs(os.path.join(root, folder))
    for name in random.sample(list(truth), len(truth)):  # as several writers leave them
        image = truth[name] + 0.2 * rng.normal(size=(16, 16))
        np.save(os.path.join(root, folder, name), image if folder == "images" else truth[name])


class Scans(torch.utils.data.Dataset):
    def __init__(self, root):
        self.root = root
        self.images = sorted(os.listdir(os.path.join(root, "images")))
        self.masks = os.listdir(os.path.join(root, "masks"))  # <- bites

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = np.load(os.path.join(self.root, "images", self.images[index]))
        mask = np.load(os.path.join(self.root, "masks", self.masks[index]))
        return torch.tensor(image[None]).float(), torch.tensor(mask[None]).float()


loader = torch.utils.data.DataLoader(Scans(root), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(1, 21):
    for image, mask in loader:
        loss = F.binary_cross_entropy_with_logits(model(image), mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 5 == 0:
        print(f"epoch {epoch}  loss {loss.item():.3f}")
