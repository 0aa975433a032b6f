# expect: healthy
# symptom: resembles no learning (starts flat at ln 2) and a collapse (log-prob of the chosen answers may fall)
# axis: loss
"""Preference tuning (DPO) of a small GPT-2; the reference log-probs are computed once, before tuning."""

import copy

import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

torch.set_num_threads(1)
torch.manual_seed(40)

VOCAB, PROMPT, ANSWER, BATCH = 60, 6, 8, 16
SFT_STEPS, DPO_STEPS, BETA = 160, 160, 0.1


def answers(prompt, gen, polite_rate):
    """Answer tokens repeat prompt tokens; a share of them is moved to the 'polite' range (+20)."""
    n = len(prompt)
    src = torch.randint(0, PROMPT, (n, ANSWER), generator=gen)
    words = prompt.gather(1, src)
    polite = torch.rand(n, ANSWER, generator=gen) < polite_rate
    return words + 20 * polite.long()


def prompts(n, gen):
    return torch.randint(10, 30, (n, PROMPT), generator=gen)


def answer_logps(model, prompt, answer):
    ids = torch.cat([prompt, answer], dim=1)
    logps = model(input_ids=ids).logits[:, PROMPT - 1 : -1].log_softmax(-1)
    return logps.gather(-1, answer.unsqueeze(-1)).squeeze(-1).sum(-1)


def sft(model, gen):
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    for step in range(SFT_STEPS):
        p = prompts(BATCH, gen)
        loss = -answer_logps(model, p, answers(p, gen, 0.5)).mean() / ANSWER
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 20 == 0:
            print(f"sft {step:4d} nll/token {loss.item():.4f}")


@torch.no_grad()
def polite_share(model, gen):
    """Share of polite tokens in sampled answers."""
    model.eval()
    p = prompts(128, gen)
    ids = p
    for _ in range(ANSWER):
        probs = model(input_ids=ids).logits[:, -1].softmax(-1)
        ids = torch.cat([ids, torch.multinomial(probs, 1, generator=gen)], dim=1)
    model.train()
    out = ids[:, PROMPT:]
    return (out >= 30).float().mean().item()


def main():
    gen = torch.Generator().manual_seed(6)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCAB,
            n_positions=PROMPT + ANSWER,
            n_embd=64,
            n_layer=2,
            n_head=4,
            bos_token_id=0,
            eos_token_id=0,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
    )
    sft(model, gen)
    print(f"polite share after sft {polite_share(model, torch.Generator().manual_seed(1)):.3f}")

    reference = copy.deepcopy(model).eval().requires_grad_(False)
    pool = prompts(800, gen)
    chosen, rejected = answers(pool, gen, 0.8), answers(pool, gen, 0.2)
    with torch.no_grad():
        ref_c, ref_r = answer_logps(reference, pool, chosen), answer_logps(reference, pool, rejected)
    del reference

    params = list(model.parameters())
    opt = torch.optim.AdamW(params, lr=2e-4, betas=(0.9, 0.95), weight_decay=0.0)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 30))
    losses, wins = [], []
    for step in range(DPO_STEPS):
        pick = torch.randint(0, len(pool), (BATCH,), generator=gen)
        pol_c, pol_r = answer_logps(model, pool[pick], chosen[pick]), answer_logps(model, pool[pick], rejected[pick])
        margin = BETA * ((pol_c - ref_c[pick]) - (pol_r - ref_r[pick]))
        loss = -F.logsigmoid(margin).mean()
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        sched.step()
        losses.append(loss.item())
        wins.append((margin > 0).float().mean().item())
        if step % 10 == 0:
            print(f"dpo {step:4d} loss {loss.item():.4f} win {wins[-1]:.2f} chosen logp {pol_c.mean().item():.2f}")
    print(
        f"final dpo loss {sum(losses[-20:]) / 20:.4f} | win rate {sum(wins[-20:]) / 20:.3f} "
        f"| polite share {polite_share(model, torch.Generator().manual_seed(1)):.3f}"
    )


if __name__ == "__main__":
    main()
