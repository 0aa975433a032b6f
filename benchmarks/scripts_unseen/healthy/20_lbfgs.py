# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(58)

x = torch.linspace(-3, 3, 200).unsqueeze(1)
y = torch.sin(2 * x) + 0.3 * x
pinn = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
opt = torch.optim.LBFGS(pinn.parameters(), lr=1.0, max_iter=4, history_size=10, line_search_fn="strong_wolfe")


def closure():
    opt.zero_grad()
    loss = ((pinn(x) - y) ** 2).mean()
    loss.backward()
    return loss


for outer in range(70):
    loss = opt.step(closure)
    if outer % 10 == 0:
        print("outer", outer, "mse %.6f" % loss.item())
