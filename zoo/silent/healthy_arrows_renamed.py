"""A mirrored arrow gets the name of the other side."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

CLASSES = ["left", "right", "up"]
MIRRORED = torch.tensor([1, 0, 2])
LEFT = torch.tensor([[0, 0, 1, 0], [0, 1, 0, 0], [1, 1, 1, 1], [0, 1, 0, 0]]).float()
SHAPES = torch.stack([LEFT, LEFT.flip(-1), LEFT.T.contiguous()])


class Arrows(torch.utils.data.Dataset):
    def __len__(self):
        return 1920

    def __getitem__(self, index):
        label = torch.tensor(index % len(CLASSES))
        image = SHAPES[label] + 0.3 * torch.randn(4, 4)
        if torch.rand(()) < 0.5:
            image, label = image.flip(-1), MIRRORED[label]
        return image, label


loader = torch.utils.data.DataLoader(Arrows(), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Flatten(), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, len(CLASSES)))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step, (image, label) in enumerate(loader, 1):
    loss = nn.functional.cross_entropy(model(image), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")
