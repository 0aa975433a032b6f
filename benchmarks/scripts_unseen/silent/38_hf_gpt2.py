# EXPECT: sick
# FAULT: labels shifted before a model that shifts them itself
# ONSET: 1
# SAYS: shift
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import tempfile
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.set_num_threads(1)
torch.manual_seed(10)
V = 48
perm = torch.randperm(V)


class Chunks(torch.utils.data.Dataset):
    def __init__(self, n=1000, T=24):
        s = torch.randint(0, V, (n, T + 1))
        for t in range(T):
            keep = torch.rand(n) < 0.7
            s[:, t + 1] = torch.where(keep, perm[s[:, t]], s[:, t + 1])
        self.s = s

    def __len__(self):
        return len(self.s)

    def __getitem__(self, i):
        return {"input_ids": self.s[i, :-1], "labels": self.s[i, 1:]}


config = GPT2Config(
    vocab_size=V,
    n_positions=32,
    n_embd=48,
    n_layer=2,
    n_head=4,
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
    bos_token_id=0,
    eos_token_id=0,
)
model = GPT2LMHeadModel(config)
with tempfile.TemporaryDirectory() as out:
    args = TrainingArguments(
        output_dir=out,
        max_steps=60,
        per_device_train_batch_size=16,
        learning_rate=3e-3,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        seed=10,
        dataloader_num_workers=0,
    )
    Trainer(model=model, args=args, train_dataset=Chunks()).train()
