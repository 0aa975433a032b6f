"""Trains a tiny GPT-2 from a configuration by the Hugging Face Trainer with accumulation. Bare: a digest, status 0."""

import hashlib
import os
import shutil
import warnings

import torch

torch.set_num_threads(1)


def digest(*things):
    """Print one hash of every weight, state and loss, bit for bit."""
    sha = hashlib.sha256()

    def eat(thing):
        if isinstance(thing, torch.Tensor):
            thing = thing.detach().cpu()
            thing = thing.to_dense() if thing.is_sparse else thing
            sha.update(f"{thing.dtype}{tuple(thing.shape)}".encode())
            thing = torch.view_as_real(thing) if thing.is_complex() else thing
            sha.update(bytes(thing.contiguous().reshape(-1).view(torch.uint8).tolist()))
        elif isinstance(thing, (torch.nn.Module, torch.optim.Optimizer)):
            eat(thing.state_dict())
        elif isinstance(thing, dict):
            for key, value in thing.items():
                sha.update(repr(key).encode() if isinstance(key, (str, int, float)) else b"key")
                eat(value)
        elif isinstance(thing, (list, tuple)):
            for item in thing:
                eat(item)
        else:
            sha.update((thing.hex() if isinstance(thing, float) else repr(thing)).encode())

    for thing in things:
        eat(thing)
    print("digest", sha.hexdigest())


os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
warnings.simplefilter("ignore")
import transformers  # noqa: E402

transformers.set_seed(0)
sizes = {"vocab_size": 20, "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 2}
config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
model = transformers.GPT2LMHeadModel(config)
gen = torch.Generator().manual_seed(1)
rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 20, (32, 8), generator=gen)]
settings = transformers.TrainingArguments(
    "trained",
    max_steps=10,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    logging_steps=1,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
    lr_scheduler_type="cosine",
)
trainer = transformers.Trainer(model, settings, train_dataset=rows, eval_dataset=rows[:8])
trainer.log = lambda logs, *rest: trainer.state.log_history.append(dict(logs))
trainer.train()
losses = [(entry["loss"], entry["grad_norm"]) for entry in trainer.state.log_history if "grad_norm" in entry]
shutil.rmtree("trained", ignore_errors=True)
digest(model, trainer.optimizer, losses, trainer.evaluate()["eval_loss"])
