# expect: sick
# fault: resume without optimizer state
# onset_step: 80
# says: (?i)(optimi[sz]er.{0,40}(state|moment|fresh|empty|\bnew\b|reset|lost)|\bmoments?\b|state.{0,40}(lost|fresh|reset|missing|empty)|\bresum|\brestor|checkpoint|\bload(ed|ing|s)?\b|from_pretrained)
# note: save_pretrained keeps only the model; after the restart AdamW begins anew at full rate with beta2=0.999 and no moments, though the schedule goes on where it was.
import tempfile
import torch
from transformers import BertConfig, BertForSequenceClassification

torch.set_num_threads(1)
torch.manual_seed(5)
cfg = BertConfig(
    vocab_size=90,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=32,
    num_labels=3,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def batch(n=24):
    y = torch.randint(0, 3, (n,))
    ids = torch.randint(3, 90, (n, 14))
    ids[:, 3:7] = torch.randint(0, 20, (n, 4)) * 3 + y[:, None] + 3
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": y}


def lr_at(step):
    return 8e-4 if step < 120 else 3e-4


def train(model, opt, start, stop):
    model.train()
    for step in range(start, stop):
        opt.param_groups[0]["lr"] = lr_at(step)
        out = model(**batch())
        opt.zero_grad()
        out.loss.backward()
        opt.step()
        if step % 10 == 0:
            print("step", step, "loss", round(out.loss.item(), 4))


with tempfile.TemporaryDirectory() as tmp:
    model = BertForSequenceClassification(cfg)
    opt = torch.optim.AdamW(model.parameters(), lr=8e-4)
    train(model, opt, 0, 80)
    model.save_pretrained(tmp)
    torch.save(opt.state_dict(), tmp + "/optimizer.pt")
    model = BertForSequenceClassification.from_pretrained(tmp)
    opt = torch.optim.AdamW(model.parameters(), lr=8e-4)
    train(model, opt, 80, 160)
print("final loss", model(**batch(200)).loss.item())
