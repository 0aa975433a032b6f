"""What training runs are full of and is no secret passes the redaction unchanged: a tool that hides it is of no use."""

from __future__ import annotations

from typing import Any

import pytest

from steadytrain.storage.redaction import redact_arguments, redact_text, redact_tree

NAMES = """
lm_head.weight transformer.h.11.attn.c_attn.weight model.embed_tokens.weight token_embedding.weight key_proj.bias
encoder.layers.0.self_attn.k_proj.weight password_field.weight module.query_key_value.weight tokenizer pin_memory
token_ids max_tokens pad_token_id eos_token num_key_value_heads past_key_values secret_layer.weight api_key_encoder.bias
passthrough.conv1.weight attention.key.weight bypass_scale compass_head.weight sigmoid salt_and_pepper.weight
classifier.1.weight_v model.layers.31.mlp.gate_proj.lora_A.default.weight optimizer0.exp_avg_sq.17 blocks.11.norm2.bias
step000012.0 vision_model.encoder.layers.23.layer_norm1.weight token_type_embeddings.weight class_token cls_token
mask_token key_padding_mask private_head.weight
"""
TEXTS = """
loss 2.302585092994046
loss=0.693147180559945 grad_norm=1.2345678901234567e-05 lr=3e-4
the gradient of 2 of 148 tensors is not finite at step 412
commit 3b5d5c3712955042212316173ccf37be800f4a2c
git 1dfb1f35, dirty
sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
index 0c1f2ab..9f86d08 100644
/home/user/project/train.py:88
/home/user/.cache/huggingface/hub/models--Qwen--Qwen2.5-0.5B/snapshots/060db6499f32faf8b98477b0a26969ef7d8b9987
/data/tokens/train_000123.bin
s3://my-bucket/runs/2026-11-23/checkpoint-12000/model-00001-of-00004.safetensors
steadytrain-runs/train-20261123-183512/incidents/step-000412
steadytrain show /tmp/run/incidents/step-000005
File "/usr/lib/python3.11/site-packages/torch/nn/modules/linear.py", line 125, in forward
python train.py --lr 3e-4 --max_tokens 512 --seed 1234567890 --tokenizer gpt2 --pin-memory
torchrun --nproc_per_node 8 train.py --batch-size 32 --key-frames 4
torch 2.13.0+cpu, python 3.11.7, CPU (x86_64)
torch.optim.adamw.AdamW
transformers.models.llama.modeling_llama.LlamaForCausalLM
Wav2Vec2ForSequenceClassification
EfficientNet_B7_Weights.IMAGENET1K_V1
Linear(in_features=4096, out_features=11008, bias=False)
(key): Linear(in_features=768, out_features=768, bias=True)
(token_embedding): Embedding(50257, 768)
key = self.key(x)
key, query, value = self.qkv(x).chunk(3, dim=-1)
keys = sorted(state_dict.keys())
tokens = tokenizer(text, return_tensors="pt")
token = next(tokens)
token = AddedToken(
for one in discussions(repo_id=model_id, token=token):
Passing `token=True` is required when you want to use a private model.
added_tokens_map[str_token] = added_tokens_decoder[index]
for key, value in batch.items():
loss = torch.nn.functional.cross_entropy(logits.view(-1, vocab), targets.view(-1))
loader = DataLoader(dataset, batch_size=32, pin_memory=True)
assert loss.item() < 1e9
score = torch.log(probability)
x = x / x.norm(dim=-1, keepdim=True).clamp(min=1e-12)
optimizer.param_groups[0]["lr"] = 3e-4
if "key_padding_mask" in kwargs:
KeyError: 'pixel_values'
RuntimeError: shape '[16, 128]' is invalid for input of size 1024
CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB
ValueError: expected 768 features, got 512
aten._scaled_dot_product_flash_attention_for_cpu.default
aten.native_layer_norm_backward.default
triton_poi_fused__to_copy_add_mul_native_layer_norm_0
NVIDIA H100 80GB HBM3
cuda:0
Linux-6.1.0-18-amd64-x86_64-with-glibc2.36
2026-11-23T18:35:12.123456+00:00
run copper-lynx, step 412, stream main
GPU-5b2a1c3d-4e5f-6789-abcd-ef0123456789
The key idea is that each token attends to all previous tokens.
Please enter your password to continue.
a secret ingredient of the recipe
forward pass 12, backward pass 12
pass: 14, fail: 0
token	0.693147
train.py:88:12: E501 Line too long
master.example.org:29500
"<|endoftext|>"
eos_token = "</s>", pad_token = "<pad>"
{"bos_token": "<s>", "unk_token": "<unk>", "sep_token": "[SEP]"}
https://huggingface.co/meta-llama/Llama-3.1-8B/resolve/main/config.json
https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_full_backward_hook
git@github.com:someone/project.git
step  loss  gradient_norm  learning_rate
nonfinite-gradient, then nonfinite-loss
16777216 parameters in 148 tensors, 0x7f3a2c001000
OMP_NUM_THREADS=2 CUDA_VISIBLE_DEVICES=0,1,2,3 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
fp16 overflow: 65504 is the largest number; loss scale 65536 -> 32768
"""
TREE: dict[str, Any] = {
    "learning_rate": 3e-4,
    "max_tokens": 512,
    "pad_token_id": 50256,
    "tokenizer": "meta-llama/Llama-3.1-8B",
    "num_key_value_heads": 8,
    "token_ids": [101, 2023, 102],
    "sort_key": "length",
    "key": "input_ids",
    "keys": ["input_ids", "labels"],
    "pin_memory": True,
    "seed": 1234567890,
    "passes": 3,
    "git": {"commit": "3b5d5c3712955042212316173ccf37be800f4a2c", "dirty": False},
    "sources": {"/home/user/train.py": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"},
    "model.config": {"hidden_size": 768, "attn_implementation": "sdpa", "eos_token_id": [128001, 128009]},
    "digests": {"model/lm_head.weight": "9f86d081884c7d65"},
    "origin": "22c95feca46d79d5e3b2566039b450bbdc043d995e4ab36b82a18f6199d7a440",
}

HEALTHY = [*NAMES.split(), *(line for line in TEXTS.splitlines() if line)]


def test_there_are_enough_of_them() -> None:
    assert len(set(HEALTHY)) >= 80


@pytest.mark.parametrize("text", HEALTHY)
def test_a_healthy_string_passes_unchanged(text: str) -> None:
    assert redact_text(text) == text
    assert redact_tree({text: 1.5, "name": text, "row": [text]}) == {text: 1.5, "name": text, "row": [text]}


@pytest.mark.parametrize("name", NAMES.split())
def test_a_number_under_the_name_of_a_parameter_passes_unchanged(name: str) -> None:
    for text in (
        f"{name}: 0.3125",
        f"{name}=1.5e-05",
        f"'{name}': 12345",
        f"({name}): Linear(3, 4)",
        f"{name}.grad = 2",
    ):
        assert redact_text(text) == text
    assert redact_tree({name: 3.25, f"{name}.count": 12345}) == {name: 3.25, f"{name}.count": 12345}


def test_all_of_them_together_pass_unchanged() -> None:
    text = "\n".join(HEALTHY)
    assert redact_text(text) == text


def test_a_healthy_configuration_passes_unchanged() -> None:
    assert redact_tree(TREE) == TREE
    arguments = ["train.py", "--tokenizer", "gpt2", "--max_tokens", "512", "--key-frames=4", "--out", "runs/a1-b2"]
    assert redact_arguments(arguments) == arguments
