# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(204)

model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
mu = torch.randn(5, 20)
for step in range(140):
    y = torch.randint(0, 5, (40,))
    loss = nn.functional.cross_entropy(model(mu[y] + 1.6 * torch.randn(40, 20)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print("step %d: %.4f" % (step, loss.item()))
