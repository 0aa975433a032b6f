# expect: healthy
# symptom: resembles the fault that inputs are mirrored at random though the label depends on the side, and the label stays
# axis: none
# mended: none
import torch
import torch.nn as nn
import torch.nn.functional as F

# Rear-view crops of vehicles; which indicator is blinking?
LAMPS = {"none": 0, "left": 1, "right": 2}


class LampCrops(torch.utils.data.Dataset):
    def __init__(self, count, training, generator):
        self.training = training
        self.y = torch.randint(0, 3, (count,), generator=generator)
        self.x = 0.3 * torch.randn(count, 1, 16, 24, generator=generator)
        row = torch.randint(3, 11, (count,), generator=generator)
        for i in range(count):
            r = int(row[i])
            if self.y[i] == LAMPS["left"]:
                self.x[i, 0, r : r + 3, 2:5] += 1.5
            elif self.y[i] == LAMPS["right"]:
                self.x[i, 0, r : r + 3, 19:22] += 1.5
            self.x[i, 0, r : r + 2, 8:16] += 0.7  # number plate

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        img = self.x[i]
        if self.training:
            if torch.rand(1).item() < 0.5:
                img = img.flip(-2)
            img = img + 0.05 * torch.randn_like(img)
        return img, self.y[i]


class LampNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.fc = nn.Linear(16 * 4 * 6, len(LAMPS))

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc(x.flatten(1))


def main():
    torch.manual_seed(12)
    g = torch.Generator().manual_seed(12)
    train = LampCrops(800, True, g)
    test = LampCrops(200, False, g)
    loader = torch.utils.data.DataLoader(train, batch_size=50, shuffle=True)
    model = LampNet()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(3):
        model.train()
        for img, y in loader:
            loss = F.cross_entropy(model(img), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        model.eval()
        with torch.no_grad():
            acc = (model(test.x).argmax(1) == test.y).float().mean().item()
        print(f"epoch {epoch} | loss {loss.item():.3f} | acc {acc:.3f}")


if __name__ == "__main__":
    main()
