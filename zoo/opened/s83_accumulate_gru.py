# expect: sick
# symptom: from step 200, when micro-batches come in, the loss climbs and stays well above the level of the first phase (or explodes)
# axis: harness
# cause: the gradients of the eight micro-batches are summed without dividing the loss by their number, so the update is eight times larger than in the first phase
# says: accumul|micro.?batch|divid|(gradient|update|loss).{0,50}(8|eight|times|summed|not (averaged|scaled|divided|normali[sz]ed))|averag
# onset_step: 200
# fix: divide the loss by the number of micro-batches
# mended: (loss / accumulate).backward()
import os

import torch
from torch import nn

torch.manual_seed(82)
SYMBOLS, HID = 16, 64


class Seq2Seq(nn.Module):
    """Reads a word and writes it backwards."""

    def __init__(self):
        super().__init__()
        self.src, self.tgt = nn.Embedding(SYMBOLS, HID), nn.Embedding(SYMBOLS + 1, HID)
        self.encoder = nn.GRU(HID, HID, batch_first=True)
        self.decoder = nn.GRU(HID, HID, batch_first=True)
        self.out = nn.Linear(HID, SYMBOLS)

    def forward(self, s, t):
        start = torch.full((len(t), 1), SYMBOLS)
        _, h = self.encoder(self.src(s))
        d, _ = self.decoder(self.tgt(torch.cat([start, t[:, :-1]], 1)), h)
        return self.out(d)


def words(n, length=4):
    s = torch.randint(SYMBOLS, (n, length))
    return s, s.flip(1)


net = Seq2Seq()
optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
criterion = nn.CrossEntropyLoss()
phases = [dict(steps=200, batch=64, accumulate=1), dict(steps=200, batch=32, accumulate=8)]
update = 0
for phase in phases:
    for _ in range(phase["steps"]):
        optimizer.zero_grad()
        shown = 0.0
        for _ in range(phase["accumulate"]):
            s, t = words(phase["batch"])
            loss = criterion(net(s, t).transpose(1, 2), t)
            if os.environ.get("MENDED") == "1":
                (loss / phase["accumulate"]).backward()
            else:
                loss.backward()
            shown += loss.item() / phase["accumulate"]
        optimizer.step()
        if update % 25 == 0 or update in (202, 205, 399):
            print(f"update {update} loss {shown:.4f} (micro-batches {phase['accumulate']})", flush=True)
        update += 1
