# expect: sick
# fault: accumulated gradients summed rather than averaged
# onset_step: 0
# says: (?i)(accumul|micro.?batch|divid|summed|sum of|not (averag|normali[sz])|effective (learning )?rate)
# note: loss.backward() is called on eight micro-batches without dividing by eight, with a plain-SGD rate tuned for the mean.
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(11)
ACCUM = 8
LR = 0.1  # tuned at batch size 128 without accumulation

X = torch.randn(8192, 20)
W = torch.randn(20, 6)
Y = (X @ W + 0.5 * torch.randn(8192, 6)).argmax(1)
loader = DataLoader(TensorDataset(X, Y), batch_size=16, shuffle=True)

model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 6))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)

for epoch in range(2):
    optimizer.zero_grad()
    running = 0.0
    for i, (x, y) in enumerate(loader):
        loss = criterion(model(x), y)
        loss.backward()
        running += loss.item()
        if (i + 1) % ACCUM == 0:
            optimizer.step()
            optimizer.zero_grad()
            if (i + 1) % (ACCUM * 10) == 0:
                print(f"epoch {epoch} update {(i + 1) // ACCUM} loss {running / (ACCUM * 10):.4f}")
                running = 0.0
