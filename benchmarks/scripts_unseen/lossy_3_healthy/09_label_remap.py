# expect: healthy
# fault: labels permuted from an epoch on
# note: the same script as loud/ of this name without the event.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(9)
classes = ["ant", "bee", "cat", "dog", "elk", "fox"]
class_to_idx = {c: i for i, c in enumerate(classes)}
centres = torch.randn(6, 20)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.BatchNorm1d(64), nn.Linear(64, 6))
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for epoch in range(8):
    for it in range(20):
        k = torch.randint(0, 6, (40,))
        x = centres[k] + torch.randn(40, 20)
        y = torch.tensor([class_to_idx[classes[j]] for j in k])
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if it % 10 == 0:
            print(f"epoch {epoch} it {it} loss {loss.item():.4f}")
