# expect: sick
# fault: inputs all zero through an integer division
# onset_step: 0
# says: (?i)(input.{0,60}(zero|constant|0\b|identical|same)|all.?zero|constant input|zeros?\b.{0,30}input)
# note: `images // 255` on uint8 gives 0 nearly everywhere (one meant / 255.0), so the net sees black images and learns only the class frequencies.
import torch
from torch import nn

torch.set_num_threads(1)


class DigitsLike:
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        shapes = torch.rand(5, 1, 14, 14, generator=torch.Generator().manual_seed(0))
        self.labels = torch.multinomial(torch.tensor([0.35, 0.25, 0.2, 0.1, 0.1]), n, True, generator=g)
        img = shapes[self.labels] * 180 + torch.rand(n, 1, 14, 14, generator=g) * 70
        self.images = img.to(torch.uint8)

    def batches(self, size):
        for i in range(0, len(self.labels), size):
            yield self.images[i : i + size], self.labels[i : i + size]


def preprocess(images):
    return (images // 255).float()


torch.manual_seed(0)
ds = DigitsLike(960, 1)
cnn = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5))
opt = torch.optim.Adam(cnn.parameters(), lr=3e-3)
for epoch in range(5):
    for k, (img, lab) in enumerate(ds.batches(32)):
        loss = nn.functional.cross_entropy(cnn(preprocess(img)), lab)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if k % 10 == 0:
            print(f"epoch {epoch} batch {k} loss {loss.item():.4f}")
val = DigitsLike(400, 2)
print("final acc", (cnn(preprocess(val.images)).argmax(1) == val.labels).float().mean().item())
