# expect: sick
# symptom: nothing explodes; gradients look healthy, but the distillation loss does not fall at all and the student's accuracy stays at chance
# axis: optimizer
# cause: the optimizer was made before the student was replaced by a deep copy, so it holds the parameters of the discarded one
# says: (?i)parameters-not-in-optimizer|frozen-parameters|(not|never|missing|absent|left out|other|old|discarded|wrong).{0,50}(optimi[sz]er|param.?group)|optimi[sz]er.{0,60}(miss|not|lack|without|omit|never|other|old|discarded|wrong|copy)|(not|never) (updated|moved|stepped|trained)|do not move
# onset_step: 1
# fix: make the optimizer after the copy
# mended: makes the optimizer after the copy
import copy
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(217)
FIX = os.environ.get("MENDED") == "1"
gen = torch.Generator().manual_seed(18)
teacher = nn.Sequential(nn.Linear(16, 128), nn.Tanh(), nn.Linear(128, 10))
with torch.no_grad():
    teacher[0].weight.mul_(2)
    teacher[2].weight.mul_(12)
teacher.requires_grad_(False)

template = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 10))
opt = torch.optim.AdamW(template.parameters(), lr=3e-3)
student = copy.deepcopy(template)
if FIX:
    opt = torch.optim.AdamW(student.parameters(), lr=3e-3)

vx = torch.randn(1024, 16, generator=gen)
for step in range(1, 301):
    x = torch.randn(64, 16, generator=gen)
    with torch.no_grad():
        soft = (teacher(x) / 2).softmax(-1)
    loss = 4 * F.kl_div((student(x) / 2).log_softmax(-1), soft, reduction="batchmean")
    opt.zero_grad()
    student.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        with torch.no_grad():
            agree = (student(vx).argmax(-1) == teacher(vx).argmax(-1)).float().mean()
        print(f"step {step} loss {loss.item():.4f} agreement {agree.item():.3f}")
