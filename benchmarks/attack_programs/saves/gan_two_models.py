# EXPECT {"options": [], "last_good_step": [30, 60], "flagged_steps": [], "good_steps": [], "exit_status": 0}
"""Generator and discriminator in one file; one update of each per step; healthy."""

import torch
from torch import nn

torch.manual_seed(3)
torch.set_num_threads(1)
x = torch.randn(64, 8)
y = x @ torch.randn(8, 1) + 0.1 * torch.randn(64, 1)
generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
judge = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
one = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
other = torch.optim.Adam(judge.parameters(), lr=2e-4, betas=(0.5, 0.999))
bce = nn.functional.binary_cross_entropy_with_logits
real, false = torch.ones(64, 1), torch.zeros(64, 1)
for _step in range(30):
    fake = generator(torch.randn(64, 4))
    other.zero_grad()
    (bce(judge(x), real) + bce(judge(fake.detach()), false)).backward()
    other.step()
    one.zero_grad()
    loss = bce(judge(fake), real)
    loss.backward()
    one.step()
torch.save({"generator": generator.state_dict(), "judge": judge.state_dict()}, "gan.pt")
print(loss.item())
