# expect: sick
# symptom: trains without any error, but the loss hangs at a high value (about 2.45) however long it runs and the accuracy is well below what such a net reaches
# axis: loss
# cause: the model's forward already ends in a softmax and nn.CrossEntropyLoss applies log-softmax again (softmax twice), which bounds the loss from below and makes the gradients tiny
# says: softmax|(double|twice|already).{0,80}(normali[sz]|probabilit)|cross.?entropy.{0,80}(logit|probabilit)|probabilit.{0,80}(instead of|not|rather than|where).{0,80}logit
# onset_step: 0
# fix: return raw logits from forward (softmax only for inference)
# mended: forward returns the logits
"""Small CNN for 20 classes of textured pictures."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(4)

CLASSES, SIZE = 20, 12
N_TRAIN, N_TEST, BATCH, EPOCHS = 2000, 500, 40, 10


class Textures:
    """Each class has a 4x4 tile; a picture is the tile repeated with a random shift, contrast and noise."""

    def __init__(self):
        self.tiles = torch.randn(CLASSES, 3, 4, 4)

    def sample(self, n):
        y = torch.randint(0, CLASSES, (n,))
        out = []
        for label in y.tolist():
            im = self.tiles[label].repeat(1, SIZE // 4, SIZE // 4)
            dy, dx = torch.randint(0, 4, (2,)).tolist()
            im = torch.roll(im, (dy, dx), dims=(1, 2))
            out.append(im * (0.5 + torch.rand(1)) + 1.0 * torch.randn_like(im))
        return torch.stack(out), y


class ConvNet(nn.Module):
    def __init__(self, ch=20):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, ch, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(ch, ch, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(ch, 2 * ch, 3, padding=1),
            nn.ReLU(),
        )
        self.drop = nn.Dropout(0.1)
        self.fc1 = nn.Linear(2 * ch, 64)
        self.fc2 = nn.Linear(64, CLASSES)

    def forward(self, x):
        h = self.features(x).mean(dim=(2, 3))
        h = self.drop(F.relu(self.fc1(h)))
        out = self.fc2(h)
        if not MENDED:
            out = F.softmax(out, dim=1)
        return out


def train_epoch(model, loader, optimizer, criterion, state):
    model.train()
    total = 0.0
    for images, labels in loader:
        optimizer.zero_grad()
        outputs = model(images)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
        if state["step"] % 50 == 0:
            print(f"step {state['step']} loss {loss.item():.4f}")
        state["step"] += 1
    return total / len(loader)


@torch.no_grad()
def test(model, loader):
    model.eval()
    correct = count = 0
    for images, labels in loader:
        correct += (model(images).argmax(dim=1) == labels).sum().item()
        count += labels.numel()
    return correct / count


def main():
    textures = Textures()
    train_loader = DataLoader(TensorDataset(*textures.sample(N_TRAIN)), batch_size=BATCH, shuffle=True)
    test_loader = DataLoader(TensorDataset(*textures.sample(N_TEST)), batch_size=100)
    model = ConvNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.CrossEntropyLoss()
    state = {"step": 0}
    for epoch in range(EPOCHS):
        loss = train_epoch(model, train_loader, optimizer, criterion, state)
        print(f"epoch {epoch} train loss {loss:.4f} test accuracy {test(model, test_loader):.3f}")


if __name__ == "__main__":
    main()
