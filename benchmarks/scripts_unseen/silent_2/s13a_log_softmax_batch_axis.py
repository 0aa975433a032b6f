# expect: sick
# fault: log_softmax over the batch axis
# onset_step: 0
# says: (?i)(softmax|axis|\bdim\b|batch (axis|dim)|normali[sz]|sum to (one|1)|across (the )?(samples|examples|batch|rows)|wrong dim)
# note: nn.LogSoftmax(dim=0) normalises over the samples of the batch rather than over classes before NLLLoss.
import torch
import torch.nn as nn
import torch.optim as optim

torch.manual_seed(6)
model = nn.Sequential(
    nn.Linear(28, 128),
    nn.ReLU(),
    nn.Linear(128, 64),
    nn.ReLU(),
    nn.Linear(64, 10),
    nn.LogSoftmax(dim=0),
)
criterion = nn.NLLLoss()
optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
centers = torch.randn(10, 28)
for e in range(5):
    running_loss = 0
    for _ in range(40):
        labels = torch.randint(0, 10, (64,))
        images = centers[labels] + 0.8 * torch.randn(64, 28)
        optimizer.zero_grad()
        output = model(images)
        loss = criterion(output, labels)
        loss.backward()
        optimizer.step()
        running_loss += loss.item()
    print(f"Training loss: {running_loss / 40:.4f}")
