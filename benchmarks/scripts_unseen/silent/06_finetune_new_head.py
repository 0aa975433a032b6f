# EXPECT: sick
# FAULT: head replaced after the optimizer was made
# ONSET: 1
# SAYS: not in any optimizer|no optimizer|optimizer|head
import torch
import torch.nn as nn

torch.set_num_threads(1)


class Backbone(nn.Module):
    def __init__(self, n_classes=1000):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.head = nn.Linear(32, n_classes)

    def forward(self, x):
        return self.head(self.features(x))


class FineTuner:
    def __init__(self, lr, num_labels):
        self.model = Backbone()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=0.9, nesterov=True)
        self.loss_fn = nn.CrossEntropyLoss()
        self.set_num_labels(num_labels)

    def set_num_labels(self, k):
        self.model.head = nn.Linear(self.model.head.in_features, k)

    def train_step(self, x, y):
        self.model.train()
        self.optimizer.zero_grad()
        loss = self.loss_fn(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def stream(steps, bs, k, gen):
    protos = torch.randn(k, 3, 1, 1, generator=gen)
    for _ in range(steps):
        y = torch.randint(0, k, (bs,), generator=gen)
        x = protos[y] + 1.0 * torch.randn(bs, 3, 16, 16, generator=gen)
        yield x, y


torch.manual_seed(23)
g = torch.Generator().manual_seed(99)
tuner = FineTuner(lr=0.01, num_labels=10)
for i, (x, y) in enumerate(stream(100, 32, 10, g)):
    l = tuner.train_step(x, y)
    if i % 10 == 9:
        print(f"{i + 1:03d}  ce {l:.4f}")
