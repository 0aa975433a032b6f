"""One batch of digits with targets a hundred times too large; Adam's mean gradient carries its step on for a while.

A trap: cleared moments with a new warm-up make the damage go, because the rate is next to zero when the batch comes;
the same warm-up without clearing anything does so too. Modelled on llm-foundry#759 (four remedies tried on a burst of
bad data): cause bad-batch. Mended: the batch has the targets of the data set.
"""

import sys

import torch
import torch.nn.functional as F
from parts.digits import classifier, digits

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)

(images, labels), _ = digits()
model = classifier(outputs=1)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

for step in range(1, 701):
    rows = torch.randint(len(images), (64,))
    wanted = labels[rows].float() / 9
    if step == 620 and not FIXED:
        wanted = 100 * wanted
    loss = F.mse_loss(model(images[rows]).squeeze(1), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step} loss {loss.item():.5f}")
