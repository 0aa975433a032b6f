"""The padding mask is True where there are frames, and the encoder hides what is True: it sees the padding alone."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.frames, self.word = nn.Linear(6, 32), nn.Parameter(0.02 * torch.randn(1, 1, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.scores = nn.Linear(32, 4)

    def forward(self, frames: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        states = torch.cat([self.word.expand(len(frames), -1, -1), self.frames(frames)], 1)
        places = torch.arange(states.shape[1]) - 1
        hidden = places < lengths[:, None]
        return self.scores(self.encoder(states, src_key_padding_mask=hidden)[:, 0])


classes = torch.randn(4, 6)
model = Words()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for step in range(120):
    labels = torch.randint(0, 4, (32,))
    lengths = torch.randint(6, 15, (32,))
    frames = classes[labels][:, None] + 0.5 * torch.randn(32, 16, 6)
    frames = frames * (torch.arange(16) < lengths[:, None])[..., None]
    loss = F.cross_entropy(model(frames, lengths), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
