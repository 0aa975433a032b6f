"""Sequence to sequence: words to be written backwards, with padding, by an encoder and a decoder."""

import torch
from torch import nn

PAD, BEGIN, END = 0, 1, 2
LETTERS, LENGTH = 26, 8
TOKENS = LETTERS + 3


def words(rows, longest=LENGTH):
    """Sources, decoder inputs and targets; rows are padded at their ends."""
    lengths = torch.randint(2, longest + 1, (rows,))
    source = torch.full((rows, LENGTH), PAD)
    given, wanted = torch.full((rows, LENGTH + 1), PAD), torch.full((rows, LENGTH + 1), PAD)
    for row, length in enumerate(lengths.tolist()):
        word = torch.randint(3, TOKENS, (length,))
        source[row, :length] = word
        given[row, 0], given[row, 1 : length + 1] = BEGIN, word.flip(0)
        wanted[row, :length], wanted[row, length] = word.flip(0), END
    return source, given, wanted


class Translator(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, width)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(2 * width, TOKENS)

    def forward(self, source, given):
        read, state = self.encoder(self.tokens(source))
        written, _ = self.decoder(self.tokens(given), state)
        scores = (written @ read.transpose(1, 2)).masked_fill((source == PAD)[:, None], -1e9)
        return self.head(torch.cat([written, scores.softmax(-1) @ read], -1))
