# expect: sick
# fault: ReLU units killed by a large negative bias
# onset_step: 20
# says: (?i)(loss|gradient|dead|relu|zero|bias|progress|spike|diverg|activation|flat)
# note: a "sparsity" hack lowers all hidden biases by 3 at step 20, where 0.03 was meant; all units of both layers are off, gradients are zero and the loss goes back to the prior.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(13)
net = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 4))
W = torch.randn(10, 4)
opt = torch.optim.Adam(net.parameters(), lr=4e-3)


@torch.no_grad()
def sparsify(model, amount):
    for m in model:
        if isinstance(m, nn.Linear) and m.out_features == 48:
            m.bias.sub_(amount)


for step in range(160):
    if step == 20:
        sparsify(net, 3.0)
    x = torch.randn(64, 10)
    y = (x @ W).argmax(1)
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
