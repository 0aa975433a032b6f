# expect: sick
# symptom: the frozen feature extractor gives other features after the fine-tuning, and the old task that shares it falls from 99 to about 70 percent
# axis: model
# cause: the backbone has requires_grad False but its batch norms run in training mode, so their running statistics move to the new data
# says: batch.?norm|running (mean|var|stat)|\bBN\b|norm(alization)? (layers?|statistics)
# onset_step: 200
# fix: keep the frozen backbone in eval mode after each model.train()
# mended: backbone.eval() after model.train()
import os
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(15)
MENDED = os.environ.get("MENDED") == "1"


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 12, 3, 2, 1),
            nn.BatchNorm2d(12),
            nn.ReLU(),
            nn.Conv2d(12, 24, 3, 2, 1),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.Flatten(),
        )

    def forward(self, x):
        return self.net(x)


class Classifier(nn.Module):
    def __init__(self, backbone, n):
        super().__init__()
        self.backbone, self.head = backbone, nn.Linear(24 * 16, n)

    def forward(self, x):
        return self.head(self.backbone(x))


def scans(n, protos, gain, offset):
    y = torch.randint(0, len(protos), (n,))
    return gain * (0.35 * protos[y] + 0.9 * torch.randn(n, 1, 16, 16)) + offset, y


@torch.no_grad()
def acc(model, x, y):
    model.eval()
    return (model(x).argmax(1) == y).float().mean().item()


def fit(model, x, y, epochs, lr, tag):
    opt = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=lr)
    for epoch in range(epochs):
        model.train()
        if MENDED and tag == "hand":
            model.backbone.eval()
        for idx in torch.randperm(len(x)).split(32):
            loss = F.cross_entropy(model(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"{tag} epoch {epoch} loss {loss.item():.4f}")


chest_p, hand_p = torch.randn(8, 1, 16, 16), torch.randn(4, 1, 16, 16)
chest, chest_test = scans(1600, chest_p, 1.0, 0.0), scans(300, chest_p, 1.0, 0.0)
hand, hand_test = scans(960, hand_p, 3.0, 4.0), scans(300, hand_p, 3.0, 4.0)

backbone = Backbone()
chest_model = Classifier(backbone, 8)
fit(chest_model, *chest, epochs=4, lr=1e-3, tag="chest")
print(f"chest test {acc(chest_model, *chest_test):.3f}")

for p in backbone.parameters():
    p.requires_grad = False
hand_model = Classifier(backbone, 4)
fit(hand_model, *hand, epochs=4, lr=2e-3, tag="hand")
print(
    f"hand test {acc(hand_model, *hand_test):.3f}; chest test with the shared frozen backbone {acc(chest_model, *chest_test):.3f}"
)
