# expect: sick
# cause: The classifier layer is replaced after the optimizer was made, so the optimizer holds the old layer and the new one (the only trainable part) is never updated.
import torch
import torch.nn as nn

torch.manual_seed(5)


class CallNet(nn.Module):
    """small convolutional encoder on mel patches, with a classifier on top"""

    def __init__(self, n_classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 24, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(24, 48, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(48, 64, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )
        self.fc = nn.Linear(256, n_classes)

    def forward(self, x):
        return self.fc(self.features(x))


def mel(species, n_species, noise=0.4):
    n = len(species)
    t = torch.linspace(0, 1, 24)
    f = torch.linspace(0, 1, 24)
    base = 0.15 + 0.7 * species.float() / n_species
    sweep = 0.4 * torch.sin(species.float() * 1.7)
    track = base[:, None] + sweep[:, None] * (t - 0.5) + 0.03 * torch.randn(n, 1)
    img = torch.exp(-((f[None, :, None] - track[:, None, :]) ** 2) / 0.004)
    return (img + noise * torch.randn_like(img)).unsqueeze(1)


def run_epochs(model, optimizer, n_species, epochs, tag, batches=25):
    loss_fn = nn.CrossEntropyLoss()
    for ep in range(epochs):
        total = right = 0
        for _ in range(batches):
            y = torch.randint(0, n_species, (40,))
            logits = model(mel(y, n_species))
            loss = loss_fn(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            right += (logits.argmax(1) == y).sum().item()
        print(f"[{tag}] epoch {ep} loss {total / batches:.4f} acc {right / batches / 40:.3f}")


model = CallNet(n_classes=8)
run_epochs(model, torch.optim.Adam(model.parameters(), lr=1e-3), 8, 4, "pretrain")
state = model.state_dict()

# transfer to the new reserve with 14 species
model = CallNet(n_classes=8)
model.load_state_dict(state)
for p in model.features.parameters():
    p.requires_grad = False
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-4)
model.fc = nn.Linear(model.fc.in_features, 14)
run_epochs(model, optimizer, 14, 10, "transfer")
