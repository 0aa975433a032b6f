# expect: sick
# fault: zero_grad missing
# onset_step: 1
# says: (?i)(zero_grad|gradients? .{0,40}(accumulat|never (cleared|zeroed|reset)|add(ed)? up|kept|carried|sum))
# note: the line optimizer.zero_grad() was lost when the loop was rewritten, so every step applies the sum of all gradients so far.
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(21)

n = 1200
area = torch.rand(n, 1) * 2 - 1
rooms = torch.randint(1, 6, (n, 1)).float() / 3 - 1
age = torch.rand(n, 1) * 2 - 1
X = torch.cat([area, rooms, age, area * rooms], 1)
y = 1.5 * area + 0.5 * rooms - 0.7 * age**2 + 0.8 * area * rooms + 0.05 * torch.randn(n, 1)

model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
loss_fn = nn.MSELoss()

step = 0
for epoch in range(8):
    order = torch.randperm(n)
    for i in range(0, n, 48):
        idx = order[i : i + 48]
        pred = model(X[idx])
        loss = loss_fn(pred, y[idx])
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"[{epoch}/{step}] {loss.item():.4f}")
        step += 1
print("final mse", loss_fn(model(X), y).item())
