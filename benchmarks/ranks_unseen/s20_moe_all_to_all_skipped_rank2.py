# expect: sick
# fault: experts on 4 ranks with hash routing: at step 60 a new token domain leaves expert 2 without tokens; rank 2 then skips the all_to_all that returns the outputs and goes on to another collective, so all the ranks hang until the timeout of 15 s
# names: (?is)(?=.*\b(?:ranks?|process(?:es)?|workers?)[\s:=#_(\[-]*(?:\d+(?:\s*(?:,|and|&|vs\.?|from|to|/|-)\s*)+)*2\b)(?=.*(?:all_?-?to_?-?all|collective|missing|did not (?:call|join|reach|enter|make)|not (?:call|join|reach|enter)|never (?:call|join|reach|enter)|skip|hang|hung|stuck|stall|wait|deadlock|mismatch|time[d -]*out|absent|different|behind|ahead|desync))
# onset_step: 60
# within: 5
# ranks: 4
# rank: 2
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.nn.functional import all_to_all_single

torch.set_num_threads(1)
STEPS, BATCH, WIDTH, VOCAB, STAGE_TWO = 120, 48, 24, 64, 60


class HashMoE(nn.Module):
    """Top-1 by token id (hash layers): token t goes to expert t mod world, one expert a rank."""

    def __init__(self, rank, world):
        super().__init__()
        self.world = world
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.out = nn.Linear(WIDTH, 8)
        torch.manual_seed(500 + rank)
        self.expert = nn.Sequential(nn.Linear(WIDTH, 48), nn.GELU(), nn.Linear(48, WIDTH))

    def dense(self):
        return [*self.embed.parameters(), *self.norm.parameters(), *self.out.parameters()]

    def forward(self, tokens):
        h = self.embed(tokens)
        expert = tokens % self.world
        order = expert.argsort(stable=True)
        send = torch.bincount(expert, minlength=self.world)
        receive = torch.empty_like(send)
        dist.all_to_all_single(receive, send)
        send, receive = send.tolist(), receive.tolist()
        inbox = all_to_all_single(h.new_empty(sum(receive), WIDTH), self.norm(h)[order], receive, send)
        if inbox.shape[0] == 0:  # nothing for the expert here: no need to go on
            return self.out(h)
        back = all_to_all_single(h.new_empty(len(tokens), WIDTH), self.expert(inbox), send, receive)
        mixed = torch.zeros_like(h).index_copy(0, order, back)
        return self.out(h + mixed)


def token_batch(step, g):
    tokens = torch.randint(0, VOCAB, (BATCH,), generator=g)
    if step >= STAGE_TWO:  # the second domain has no tokens of residue 2
        tokens = torch.where(tokens % 4 == 2, tokens + 1, tokens)
    return tokens, (tokens * 5 + 3) // 7 % 8


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=15))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3)
    model = HashMoE(rank, world)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    g = torch.Generator().manual_seed(90 + rank)
    for step in range(STEPS):
        tokens, y = token_batch(step, g)
        loss = F.cross_entropy(model(tokens), y)
        opt.zero_grad()
        loss.backward()
        for p in model.dense():
            dist.all_reduce(p.grad)
            p.grad /= world
        for p in model.expert.parameters():
            if p.grad is not None:
                p.grad /= world  # sums over the tokens of all the ranks
        opt.step()
        if rank == 0 and (step % 10 == 0 or step > 57):
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
