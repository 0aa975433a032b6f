"""A line of digits is read with CTC; at step 80 two labels are longer than their line has frames.

Modelled on icefall#135 and pytorch#14401 (an infinite CTC loss; "keep the inputs and show them"): cause
infeasible-target. Mended: such rows are left out.
"""

import sys

import torch
import torch.nn.functional as F
from parts.digits import digits
from torch import nn

FIXED = "--fixed" in sys.argv
ROWS, FRAMES, LONGEST = 8, 8, 4
torch.manual_seed(0)
torch.set_num_threads(1)

(images, labels), _ = digits()
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 11))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

for step in range(1, 151):
    rows = torch.randint(len(images), (ROWS, LONGEST))
    frames = images[rows].repeat_interleave(FRAMES // LONGEST, 1)
    lengths = torch.full((ROWS,), FRAMES)
    if step == 80:
        lengths[[2, 5]] = 3
    log_probabilities = model(frames).log_softmax(-1).transpose(0, 1)
    targets, target_lengths = labels[rows] + 1, torch.full((ROWS,), LONGEST)
    if FIXED:
        kept = lengths >= 2 * LONGEST - 1
        log_probabilities, targets = log_probabilities[:, kept], targets[kept]
        lengths, target_lengths = lengths[kept], target_lengths[kept]
    loss = F.ctc_loss(log_probabilities, targets, lengths, target_lengths)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
