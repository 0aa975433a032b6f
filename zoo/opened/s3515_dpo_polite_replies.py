# expect: sick
# symptom: DPO loss stays exactly at 0.693 with zero reward margin while replies and older knowledge decay
# axis: model
# cause: reference model and policy are the same object, so the reference moves along with the trained policy
# says: (ref\w*|policy).{0,120}(same|shar|copy|copied|copies|alias|identical|itself|moves|not frozen|own)|deepcopy
# onset_step: 160
# fix: make the reference a frozen deep copy of the policy before the preference stage
# mended: the script applies that change if the environment has MENDED=1
import os, copy, random
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(17)
rnd = random.Random(17)
TOPICS = {
    "hours": "we open at nine",
    "price": "it costs ten crowns",
    "parcel": "it ships on monday",
    "refund": "money returns in a week",
    "address": "find us on main street",
    "size": "choose the medium one",
}
POLITE, RUDE = (
    ["thank you for asking ,", "of course ,", "happy to help ,"],
    ["obviously ,", "read the page ,", "again ,"],
)
ASK = ["question about", "help with", "info on"]
vocab = ["<pad>", "<bos>", "<eos>", "customer:", "shop:", "note", ":"]
for phrase in [*TOPICS, *TOPICS.values(), *POLITE, *RUDE, *ASK]:
    vocab += [w for w in phrase.split() if w not in vocab]
stoi = {w: i for i, w in enumerate(vocab)}


def draw(n, seed=None, flip=0.0):
    r = random.Random(seed) if seed is not None else rnd
    rows = []
    for _ in range(n):
        t = r.choice(list(TOPICS))
        prompt = f"<bos> customer: {r.choice(ASK)} {t} shop:"
        good, bad = f"{r.choice(POLITE)} {TOPICS[t]} <eos>", f"{r.choice(RUDE)} {TOPICS[t]} <eos>"
        rows.append((prompt, bad, good) if r.random() < flip else (prompt, good, bad))
    return rows


def notes(r, n):
    """Plain company notes: the model must keep knowing them."""
    topics = [r.choice(list(TOPICS)) for _ in range(n)]
    return [f"<bos> note {t} :" for t in topics], [f"{TOPICS[t]} <eos>" for t in topics]


def encode(prompts, replies):
    seqs = [[stoi[w] for w in (p + " " + a).split()] for p, a in zip(prompts, replies)]
    n = max(map(len, seqs))
    ids = torch.zeros(len(seqs), n, dtype=torch.long)
    resp = torch.zeros(len(seqs), n)
    for i, (s, p) in enumerate(zip(seqs, prompts)):
        ids[i, : len(s)] = torch.tensor(s)
        resp[i, len(p.split()) : len(s)] = 1
    return ids, resp


def reply_logps(model, ids, resp):
    logp = model(input_ids=ids).logits[:, :-1].log_softmax(-1)
    tok = logp.gather(-1, ids[:, 1:, None]).squeeze(-1)
    return (tok * resp[:, 1:]).sum(-1)


class DPOTrainer:
    def __init__(self, model, ref_model=None, beta=0.5, lr=5e-5):
        self.model, self.beta = model, beta
        self.ref_model = ref_model or (copy.deepcopy(model) if MENDED else model)
        self.opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)

    def step(self, rows):
        prompts, good, bad = zip(*rows)
        ids, resp = encode(prompts + prompts, good + bad)
        with torch.no_grad():
            ref_good, ref_bad = reply_logps(self.ref_model, ids, resp).chunk(2)
        pol_good, pol_bad = reply_logps(self.model, ids, resp).chunk(2)
        margin = self.beta * ((pol_good - ref_good) - (pol_bad - ref_bad))
        loss = -F.logsigmoid(margin).mean()
        self.opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.opt.step()
        return loss.item(), margin.mean().item()


@torch.no_grad()
def report(model, rows):
    prompts, good, bad = zip(*rows)
    g = reply_logps(model, *encode(prompts, good)).mean().item()
    b = reply_logps(model, *encode(prompts, bad)).mean().item()
    n_ids, n_resp = encode(*notes(random.Random(5), 60))
    note = -(reply_logps(model, n_ids, n_resp).sum() / n_resp.sum()).item()
    right = 0
    for p, a, _ in rows[:60]:
        ids = torch.tensor([[stoi[w] for w in p.split()]])
        for _ in range(12):
            ids = torch.cat([ids, model(input_ids=ids).logits[:, -1].argmax(-1, keepdim=True)], 1)
            if ids[0, -1] == stoi["<eos>"]:
                break
        text = " ".join(vocab[i] for i in ids[0, len(p.split()) :].tolist())
        fact = a.split(" , ")[1]
        right += any(text == f"{q} {fact}" for q in POLITE)
    print(
        f"   logp good {g:.2f} logp bad {b:.2f} notes nll {note:.3f} polite and correct {right / 60:.3f} e.g. '{text}'",
        flush=True,
    )


cfg = GPT2Config(
    vocab_size=len(vocab),
    n_positions=32,
    n_embd=48,
    n_layer=2,
    n_head=4,
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
    bos_token_id=1,
    eos_token_id=2,
)
policy = GPT2LMHeadModel(cfg)
held = draw(120, seed=99)

print("supervised stage")
opt = torch.optim.AdamW(policy.parameters(), lr=2e-3)
for it in range(160):
    rows = draw(24)
    ids, resp = encode([r[0] for r in rows], [rnd.choice(r[1:]) for r in rows])
    n_ids, n_resp = encode(*notes(rnd, 12))
    loss = -reply_logps(policy, ids, resp).sum() / resp.sum()
    loss = loss - reply_logps(policy, n_ids, n_resp).sum() / n_resp.sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 40 == 0:
        print(f"sft {it} loss {loss.item():.4f}", flush=True)
report(policy, held)

print("preference stage")
trainer = DPOTrainer(policy)
for it in range(200):
    loss, margin = trainer.step(draw(16, flip=0.1))  # annotators disagree now and then
    if it % 20 == 0:
        print(f"dpo {it} loss {loss:.4f} margin {margin:.4f}", flush=True)
report(policy, held)
