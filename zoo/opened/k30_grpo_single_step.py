# expect: healthy
# symptom: the ratio of the clipped surrogate is 1 in all updates
# axis: none
# mended: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(71)


class Config:
    prompts, group, digits, answer_len = 8, 8, 8, 5
    clip_low, clip_high, beta = 0.2, 0.28, 0.01
    lr, steps = 4e-3, 160


class Policy(nn.Module):
    def __init__(self, v, d=48):
        super().__init__()
        self.prompt = nn.Embedding(v, d)
        self.tok = nn.Embedding(v + 1, d)
        self.cell = nn.GRUCell(2 * d, d)
        self.head = nn.Linear(d, v)
        self.bos = v

    def logits(self, prompt, answer):
        """Teacher-forced logits of all positions."""
        p = self.prompt(prompt)
        h = torch.zeros_like(p)
        x = torch.full_like(prompt, self.bos)
        out = []
        for t in range(answer.shape[1]):
            h = self.cell(torch.cat([self.tok(x), p], 1), h)
            out.append(self.head(h))
            x = answer[:, t]
        return torch.stack(out, 1)

    @torch.no_grad()
    def generate(self, prompt, n):
        answer = torch.zeros(len(prompt), 0, dtype=torch.long)
        for _ in range(n):
            probe = torch.cat([answer, torch.zeros(len(prompt), 1, dtype=torch.long)], 1)
            answer = torch.cat([answer, torch.multinomial(self.logits(prompt, probe)[:, -1].softmax(-1), 1)], 1)
        return answer


def token_logp(policy, prompt, answer):
    return F.log_softmax(policy.logits(prompt, answer), -1).gather(2, answer.unsqueeze(2)).squeeze(2)


def verify(prompt, answer):
    want = (prompt[:, None] + torch.arange(Config.answer_len)) % Config.digits
    return (answer == want).float().mean(1)


c = Config
policy, reference = Policy(c.digits), Policy(c.digits)
reference.load_state_dict(policy.state_dict())
reference.requires_grad_(False)
opt = torch.optim.AdamW(policy.parameters(), lr=c.lr, weight_decay=0.0)
for step in range(c.steps):
    prompt = torch.randint(0, c.digits, (c.prompts,)).repeat_interleave(c.group)
    answer = policy.generate(prompt, c.answer_len)
    reward = verify(prompt, answer).view(c.prompts, c.group)
    adv = ((reward - reward.mean(1, keepdim=True)) / (reward.std(1, keepdim=True) + 1e-4)).view(-1, 1)
    logp = token_logp(policy, prompt, answer)
    # one gradient step for each batch of answers, so the sampling policy is the current one
    ratio = torch.exp(logp - logp.detach())
    surrogate = torch.min(ratio * adv, ratio.clamp(1 - c.clip_low, 1 + c.clip_high) * adv)
    gap = token_logp(reference, prompt, answer) - logp
    loss = -(surrogate - c.beta * (gap.exp() - gap - 1)).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    opt.step()
    if step % 20 == 0 or step == c.steps - 1:
        print(f"step {step} reward {reward.mean().item():.3f} loss {loss.item():+.4f}")
