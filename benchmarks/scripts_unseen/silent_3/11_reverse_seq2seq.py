# expect: sick
# fault: encoder detached from the loss
# onset_step: 0
# says: (?i)(detach|no gradient|without (a )?gradient|gradients? .{0,30}(none|missing|never)|never (mov|train|updat|receiv)|not (train|receiv|reach)|encoder|disconnected|cut)
# note: the state handed to the decoder is detached (a line copied from a truncated-BPTT language model), so that the encoder never trains.
import torch
from torch import nn

torch.set_num_threads(1)
VOCAB, LEN, BOS = 12, 5, 0


class Seq2Seq(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.src_emb = nn.Embedding(VOCAB, 16)
        self.tgt_emb = nn.Embedding(VOCAB, 16)
        self.encoder = nn.LSTM(16, d, batch_first=True)
        self.decoder = nn.LSTM(16, d, batch_first=True)
        self.proj = nn.Linear(d, VOCAB)

    def forward(self, src, tgt_in):
        _, state = self.encoder(self.src_emb(src))
        state = tuple(s.detach() for s in state)
        out, _ = self.decoder(self.tgt_emb(tgt_in), state)
        return self.proj(out)


def pairs(n):
    src = torch.randint(1, VOCAB, (n, LEN))
    tgt = src.flip(1)
    tgt_in = torch.cat([torch.full((n, 1), BOS), tgt[:, :-1]], 1)
    return src, tgt_in, tgt


if __name__ == "__main__":
    torch.manual_seed(33)
    model = Seq2Seq()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(260):
        src, tgt_in, tgt = pairs(64)
        logits = model(src, tgt_in)
        loss = nn.functional.cross_entropy(logits.transpose(1, 2), tgt)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 25 == 0:
            print("step %d loss %.4f" % (step, loss.item()))
    print("final loss", loss.item())
