# expect: sick
# fault: epoch scheduler stepped at every batch
# onset_step: 2
# says: (?i)(schedul|(learning )?rate .{0,60}(decay|fell|fall|drop|vanish|tiny|too (fast|soon|early)|near(ly)? 0|shr[iau]nk)|lr .{0,40}(decay|drop|fell))
# note: StepLR(step_size=2, gamma=0.5) is meant to halve every 2 epochs, but its step sits inside the batch loop, so the rate is gone after some 30 batches.
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(11)

EPOCHS = 8
centers = torch.randn(10, 3, 8, 8)
labels = torch.randint(0, 10, (640,))
images = centers[labels] + 1.6 * torch.randn(640, 3, 8, 8)
train = DataLoader(TensorDataset(images[:512], labels[:512]), batch_size=32, shuffle=True)
val = DataLoader(TensorDataset(images[512:], labels[512:]), batch_size=128)

model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.Conv2d(16, 24, 3, stride=2, padding=1),
    nn.BatchNorm2d(24),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(2),
    nn.Flatten(),
    nn.Linear(96, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
criterion = nn.CrossEntropyLoss()

for epoch in range(EPOCHS):
    model.train()
    total = 0.0
    for xb, yb in train:
        optimizer.zero_grad()
        loss = criterion(model(xb), yb)
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.item()
    model.eval()
    with torch.no_grad():
        xb, yb = next(iter(val))
        acc = (model(xb).argmax(1) == yb).float().mean().item()
    print(f"epoch {epoch} train loss {total / len(train):.4f} final acc {acc:.3f}")
