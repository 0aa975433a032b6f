"""The main job on a GPU: unmodified scripts keep their bits, the stop comes before the update, the replay is exact.

``python -m pytest -m gpu tests/gpu`` needs a CUDA device. The scripts also run on a CPU, and one test here does that.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import Ended, bare, call, finished, run_script, write_script

HERE = Path(__file__).parent
GPT, PICTURES, CAPTURED = HERE / "gpt.py", HERE / "pictures.py", HERE / "captured.py"
REPEATABLE = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}

LABEL_PAST_THE_CLASSES = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(20):
    inputs, labels = torch.randn(32, 8, device="cuda"), torch.randint(0, 10, (32,), device="cuda")
    if step == 12:
        labels[3] = 10
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def both(folder: Path, script: Path, *arguments: str, options: tuple[str, ...] = ()) -> tuple[str, Ended]:
    """What a script prints bare, and the same script watched."""
    alone = finished(bare(script, *arguments), folder=folder, environment=REPEATABLE)
    assert alone.returncode == 0, alone.stderr
    watched = run_script(folder, script, *options, arguments=arguments, environment=REPEATABLE)
    assert watched.status == 0, watched.err
    return alone.stdout, watched


@pytest.mark.parametrize("script", [GPT, PICTURES], ids=lambda path: path.stem)
def test_the_scripts_train_on_a_cpu_too(tmp_path: Path, script: Path) -> None:
    arguments = ("--steps", "4") if script == GPT else ("--epochs", "1", "--workers", "0")
    alone, watched = both(tmp_path, script, *arguments)
    assert watched.out == alone
    assert "digest" in alone


@pytest.mark.gpu
@pytest.mark.parametrize("level", ["light", "standard", "full"])
@pytest.mark.parametrize(
    "arguments",
    [
        (GPT,),
        (GPT, "--optimizer", "fused"),
        (GPT, "--optimizer", "capturable"),
        (GPT, "--precision", "bfloat16"),
        (GPT, "--precision", "float16"),
        (PICTURES,),
        (PICTURES, "--float16"),
        (CAPTURED,),
    ],
    ids=lambda found: "-".join(str(one).rpartition("/")[2].removesuffix(".py").lstrip("-") for one in found),
)
def test_a_watched_run_has_the_bits_of_a_bare_one(
    tmp_path: Path, level: str, arguments: tuple[Path | str, ...]
) -> None:
    script, *rest = arguments
    alone, watched = both(tmp_path, Path(script), *map(str, rest), options=("--level", level))
    assert watched.out == alone
    assert ("in a CUDA graph. Its replays run without Python" in watched.told) == (script == CAPTURED)


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_compiled_run_has_the_bits_of_a_bare_one_where_that_repeats_itself(tmp_path: Path, mode: str) -> None:
    script = GPT.read_text(encoding="utf-8").replace(
        "    torch.manual_seed(0)\n", "    torch.manual_seed(0)\n    torch.use_deterministic_algorithms(True)\n", 1
    )
    path = write_script(tmp_path, script)
    alone, watched = both(tmp_path, path, "--compile", mode)
    assert watched.out == alone


@pytest.mark.gpu
@pytest.mark.parametrize("more", [(), ("--precision", "bfloat16"), ("--optimizer", "fused")], ids=" ".join)
def test_a_stop_before_the_update_its_exact_replay_and_the_first_bad_operation(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    seen = run_script(
        tmp_path, GPT, "--policy", "stop", arguments=("--fault", "empty-row", *more), environment=REPEATABLE
    )
    assert seen.status == 70, seen.err
    assert "STOPPED before the update of step 41: the loss is NaN" in seen.told
    (incident,) = (tmp_path / "runs" / "run" / "incidents").iterdir()
    replayed = json.loads(call("replay", incident, "--json", folder=tmp_path, environment=REPEATABLE).stdout)
    assert (replayed["exact"], replayed["symptom"]) == (True, True), replayed
    located = json.loads(call("locate", incident, "--json", folder=tmp_path, environment=REPEATABLE).stdout)["located"]
    assert (located["operation"], located["inputs"][1]["device"], located["inputs"][1]["zeros"]) == (
        "aten.div.Tensor",
        "cuda:0",
        1,
    )


@pytest.mark.gpu
def test_a_compiled_run_replays_exactly_if_it_is_deterministic_and_else_says_why_not(tmp_path: Path) -> None:
    arguments = ("--fault", "empty-row", "--compile", "default")
    for options in ((), ("--deterministic",)):
        folder = tmp_path / ("plain" if not options else "deterministic")
        folder.mkdir()
        seen = run_script(folder, GPT, *options, arguments=arguments, environment=REPEATABLE)
        assert seen.status == 70, seen.err
        (incident,) = (folder / "runs" / "run" / "incidents").iterdir()
        found = json.loads(call("replay", incident, "--json", folder=folder, environment=REPEATABLE).stdout)
        assert not found["changed"]
        if options:
            assert found["exact"], found
        elif not found["exact"]:
            assert found["why"].startswith("kernels of torch.compile"), found


@pytest.mark.gpu
def test_a_label_past_the_classes_ends_the_script_as_it_would_alone(tmp_path: Path) -> None:
    seen = run_script(tmp_path, LABEL_PAST_THE_CLASSES)
    assert seen.status == 1
    assert "device-side assert triggered" in seen.own
    assert "(a GPU reports this late: CUDA_LAUNCH_BLOCKING=1 shows the line)" in seen.told
    assert not seen.warnings, seen.warnings
