"""Words to be written backwards, padded to one length; the padding counts in the loss, and most of it is padding.

Modelled on trl#1230 and unsloth#2648 (padding or its twin, the end, in the labels): cause padding-in-loss. Mended:
the label of padding is ignored.
"""

import sys

import torch
import torch.nn.functional as F
from parts.translation import PAD, Translator, words

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)

model = Translator()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for step in range(1, 201):
    source, given, wanted = words(32, longest=5)
    logits = model(source, given)
    loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=PAD if FIXED else -100)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
