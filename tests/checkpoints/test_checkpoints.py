"""Checkpoints of loops of one's own and of torch.distributed.checkpoint against the run that saved them."""

from __future__ import annotations

import io
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from safetensors.torch import load_file, save_file  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed import checkpoint as distributed  # noqa: E402
from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING, Metadata  # noqa: E402
from torch.distributed.checkpoint.state_dict import get_state_dict  # noqa: E402

import steadytrain  # noqa: E402
from scripts import call, run_script  # noqa: E402
from steadytrain.checkpoints import read_checkpoint  # noqa: E402
from steadytrain.checkpoints.distributed import _KnownClasses  # noqa: E402
from steadytrain.cli.main import commands  # noqa: E402
from steadytrain.core.errors import UsageError  # noqa: E402
from steadytrain.storage.tape_files import find_snapshots  # noqa: E402
from watching import stopping  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # torch warns of its own distributed checkpoints

EVERY = 3


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six steps that saved after three and after six, in several formats."""
    folder = tmp_path_factory.mktemp("saved")
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8, bias=False), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, EVERY)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    # Cards are rationed by time; these two saves lie closer together than any of a training that is worth saving.
    patch = pytest.MonkeyPatch()
    patch.setattr("steadytrain.capture.snapshots.loaded_states.CARD_SHARE_MAX", 1e9)
    with steadytrain.watch(network, optimizer, runs_dir=folder, name="run"):
        for step in range(1, 2 * EVERY + 1):
            optimizer.zero_grad()
            scaler.scale(network(torch.randn(16, 8)).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            if step % EVERY == 0:
                content = {
                    "model": network.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scheduler": schedule.state_dict(),
                    "scaler": scaler.state_dict(),
                    "rng": {"torch": torch.get_rng_state()},
                    "step": step,
                }
                torch.save(content, folder / f"step-{step}.pt")
        weights, state = get_state_dict(network, optimizer)
        nested = {**content, "model": weights}
        nested["optim"] = state
        del nested["optimizer"]
        distributed.save(nested, checkpoint_id=folder / "distributed")
        save_file(network.state_dict(), folder / "model.safetensors")
        torch.save(network.state_dict(), folder / "bare.pt")
    patch.undo()
    return folder


def audited(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any]]:
    """Status and document of ``steadytrain audit``."""
    status = commands.main(["audit", str(path), *options, "--json"], prog_name="steadytrain", standalone_mode=False)
    return status, json.loads(capsys.readouterr().out)


def differences(document: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(entry["kind"], entry["part"], entry["name"]) for entry in document["differences"]]


@pytest.mark.parametrize("name", ["step-3.pt", "step-6.pt", "distributed", "model.safetensors", "bare.pt"])
def test_what_was_saved_is_what_the_run_had(home: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, document = audited(home / name, capsys, "--run", str(home / "run"))
    assert (status, differences(document)) == (0, [])
    weights = document["parts"][0]
    assert weights == {"part": "weights", "held": 10, "expected": 10, "agree": 10}
    if name.startswith("step") or name == "distributed":
        parts = {part["part"]: (part["held"], part["agree"]) for part in document["parts"]}
        assert parts["moments"] == (14, 14)
        assert parts["counters"] == (7, 7)
        assert parts["scheduler"][1] > 3
        assert parts["scaler"][1] > 2


def swap_moments(content: dict[str, Any]) -> None:
    state = content["optimizer"]["state"]
    state[0]["exp_avg"], state[4]["exp_avg"] = state[4]["exp_avg"], state[0]["exp_avg"]


def cast_weights(content: dict[str, Any]) -> None:
    content["model"]["0.weight"] = content["model"]["0.weight"].bfloat16()


def round_weights(content: dict[str, Any]) -> None:
    content["model"]["0.weight"] = content["model"]["0.weight"].bfloat16().float()


def stale_counters(content: dict[str, Any]) -> None:
    for state in content["optimizer"]["state"].values():
        state["step"] = state["step"] - EVERY


FAULTS: dict[str, tuple[Callable[[dict[str, Any]], Any], set[tuple[str, str, str]]]] = {
    "optimizer state missing": (
        lambda content: content.pop("optimizer"),
        {("missing", part, part) for part in ("moments", "counters", "settings")},
    ),
    "state emptied": (
        lambda content: content["optimizer"]["state"].clear(),
        {("missing", "moments", "moments"), ("missing", "counters", "counters")},
    ),
    "moments swapped": (
        swap_moments,
        {("swapped", "moments", "0.weight/exp_avg"), ("swapped", "moments", "2.weight/exp_avg")},
    ),
    "betas changed": (
        lambda content: content["optimizer"]["param_groups"][0].update(betas=(0.9, 0.95)),
        {("changed", "settings", "betas")},
    ),
    "epsilon changed": (
        lambda content: content["optimizer"]["param_groups"][0].update(eps=1e-6),
        {("changed", "settings", "eps")},
    ),
    "stale counter": (
        lambda content: content["optimizer"]["state"][4].update(step=torch.tensor(1.0)),
        {("stale", "counters", "2.weight")},
    ),
    "bfloat16 weights": (cast_weights, {("cast", "weights", "0.weight")}),
    "weights through bfloat16": (round_weights, {("cast", "weights", "0.weight")}),
    "weight missing": (lambda content: content["model"].pop("3.weight"), {("missing", "weights", "3.weight")}),
    "weight reshaped": (
        lambda content: content["model"].update({"0.weight": content["model"]["0.weight"].reshape(4, 16)}),
        {("reshaped", "weights", "0.weight")},
    ),
    "scaler missing": (lambda content: content.pop("scaler"), {("missing", "scaler", "scaler")}),
    "scale changed": (lambda content: content["scaler"].update(scale=1.0), {("changed", "scaler", "scale")}),
    "scheduler missing": (lambda content: content.pop("scheduler"), {("missing", "scheduler", "scheduler")}),
    "other random state": (
        lambda content: content.update(rng={"torch": torch.Generator().manual_seed(8).get_state()}),
        {("changed", "random", "torch")},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named(home: Path, tmp_path: Path, fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    spoil, expected = FAULTS[fault]
    content = torch.load(home / "step-6.pt", weights_only=True)
    spoil(content)
    torch.save(content, tmp_path / "spoiled.pt")
    status, document = audited(tmp_path / "spoiled.pt", capsys, "--run", str(home / "run"))
    assert (status, set(differences(document))) == (1, expected)
    if fault != "scaler missing":  # by themselves two checkpoints say the same
        status, document = audited(tmp_path / "spoiled.pt", capsys, "--against", str(home / "step-6.pt"))
        assert status == 1
        assert {entry[1:] for entry in expected} <= {entry[1:] for entry in differences(document)}


def test_all_counters_stale(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = torch.load(home / "step-6.pt", weights_only=True)
    stale_counters(content)
    torch.save(content, tmp_path / "spoiled.pt")
    _, document = audited(tmp_path / "spoiled.pt", capsys, "--run", str(home / "run"))
    assert len([entry for entry in differences(document) if entry[:2] == ("stale", "counters")]) == 7
    status, document = audited(tmp_path / "spoiled.pt", capsys)  # seen without the run as well
    assert (status, differences(document)) == (1, [("inconsistent", "counters", "all")])


def test_the_scheduler_of_an_epoch_before(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = torch.load(home / "step-6.pt", weights_only=True)
    content["scheduler"] = torch.load(home / "step-3.pt", weights_only=True)["scheduler"]
    torch.save(content, tmp_path / "spoiled.pt")
    _, document = audited(tmp_path / "spoiled.pt", capsys, "--run", str(home / "run"))
    assert ("stale", "scheduler", "last_epoch") in differences(document)
    assert {part for _, part, _ in differences(document)} == {"scheduler"}
    _, document = audited(tmp_path / "spoiled.pt", capsys)
    assert [entry[:2] for entry in differences(document)] == [("inconsistent", "scheduler")]


def test_weights_of_an_earlier_step(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = torch.load(home / "step-6.pt", weights_only=True)
    content["model"] = torch.load(home / "step-3.pt", weights_only=True)["model"]
    torch.save(content, tmp_path / "spoiled.pt")
    _, document = audited(tmp_path / "spoiled.pt", capsys, "--run", str(home / "run"))
    assert {entry[:2] for entry in differences(document)} == {("stale", "weights")}
    assert any("as it was at step 3" in entry["message"] for entry in document["differences"])


def test_two_checkpoints_of_one_run(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, document = audited(home / "step-6.pt", capsys, "--against", str(home / "step-3.pt"))
    assert (status, differences(document)) == (0, [])
    assert any("steps differ" in note for note in document["notes"])


def test_a_run_that_saved_nothing_is_asked_for_its_norms(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(home / "run", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "saved")
    status, document = audited(home / "step-6.pt", capsys, "--run", str(tmp_path / "run"))
    assert (status, differences(document)) == (0, [])
    assert any("kept no fingerprint" in note for note in document["notes"])
    content = torch.load(home / "step-6.pt", weights_only=True)
    content["optimizer"]["param_groups"][0].update(betas=(0.9, 0.95))
    torch.save(content, tmp_path / "spoiled.pt")
    _, document = audited(tmp_path / "spoiled.pt", capsys, "--run", str(tmp_path / "run"))
    assert differences(document) == [("changed", "settings", "betas")]


def test_the_state_of_an_incident_is_a_reference_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    with stopping(network, optimizer, tmp_path):
        for step in range(1, 5):
            if step == 4:
                content = {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "step": 3}
                torch.save(content, tmp_path / "good.pt")
            optimizer.zero_grad()
            loss = network(torch.randn(8, 4)).square().mean()
            (loss * float("nan") if step == 4 else loss).backward()
            optimizer.step()
    shutil.rmtree(tmp_path / "run" / "saved")
    (bundle,) = (tmp_path / "run" / "incidents").iterdir()
    options = (("--run", str(tmp_path / "run")), ("--against", str(bundle)))
    for option in options:
        status, document = audited(tmp_path / "good.pt", capsys, *option)
        assert (status, differences(document)) == (0, []), document["differences"]
        assert [part["agree"] for part in document["parts"][:3]] == [4, 8, 4]
    content["optimizer"]["state"][0]["exp_avg"] = content["optimizer"]["state"][0]["exp_avg"] + 1e-6
    torch.save(content, tmp_path / "bad.pt")
    for option in options:
        _, document = audited(tmp_path / "bad.pt", capsys, *option)
        assert differences(document) == [("changed", "moments", "0.weight/exp_avg")]


def test_a_snapshot_and_the_tape_are_a_reference_for_the_place_in_the_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(24, 4))
    network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    with steadytrain.watch(network, optimizer, runs_dir=tmp_path, name="run", keep_rewind=True):
        for (inputs,) in torch.utils.data.DataLoader(data, batch_size=4):
            optimizer.zero_grad()
            network(inputs).square().mean().backward()
            optimizer.step()
    first = next(shot for shot in find_snapshots(tmp_path / "run") if shot.step == 1)
    held = load_file(first.tensors)
    document = json.loads(first.document.read_text(encoding="utf-8"))
    weights = {name.removeprefix("model/"): held[name] for name in document["digests"] if name.startswith("model/")}
    content = {"model": weights, "step": 1, "dataloader": {"_num_yielded": 1, "total_batches": 1}}
    torch.save(content, tmp_path / "c.pt")
    shutil.rmtree(tmp_path / "run" / "saved", ignore_errors=True)
    _, document = audited(tmp_path / "c.pt", capsys, "--run", str(tmp_path / "run"))
    assert [one for one in differences(document) if one[1] in ("weights", "position")] == []
    assert any("had taken 1 batches" in note for note in document["notes"])
    assert document["parts"][0]["agree"] == 4
    content["dataloader"] = {"_num_yielded": 5, "total_batches": 2}
    content["model"] = {**weights, "0.bias": weights["0.bias"] + 1e-6}
    torch.save(content, tmp_path / "c.pt")
    _, document = audited(tmp_path / "c.pt", capsys, "--run", str(tmp_path / "run"))
    found = [one for one in differences(document) if one[1] in ("weights", "position")]
    assert found == [
        ("changed", "weights", "0.bias"),
        ("stale", "position", "dataloader._num_yielded"),
        ("stale", "position", "dataloader.total_batches"),
    ]


def test_of_several_optimizers_the_one_that_the_run_knows_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network, other = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)), nn.Linear(2, 2)
    optimizer, another = (torch.optim.AdamW(one.parameters()) for one in (network, other))
    with steadytrain.watch(network, optimizer, runs_dir=tmp_path, name="run"):
        for _ in range(2):
            network(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
        content = {"state_dict": network.state_dict(), "a": another.state_dict(), "b": optimizer.state_dict()}
        torch.save(content, tmp_path / "c.pt")
    status, document = audited(tmp_path / "c.pt", capsys, "--run", str(tmp_path / "run"))
    assert (status, differences(document)) == (0, [])
    assert any("'a' is a further optimizer" in note for note in document["notes"])


RESUME = """
import sys, torch
from torch import nn
torch.manual_seed(0)
network = nn.Linear(4, 1)
optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
if "--resume" in sys.argv:
    content = torch.load("c.pt")
    network.load_state_dict(content["model"])
    optimizer.load_state_dict({**content["optimizer"], "state": {}})  # the fault
for _ in range(3):
    optimizer.zero_grad()
    network(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
torch.save({"model": network.state_dict(), "optimizer": optimizer.state_dict()}, "c.pt")
"""


def test_a_script_that_resumes_without_its_moments_is_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_script(tmp_path, RESUME, runs_dir=tmp_path / "first").status == 0
    status, document = audited(tmp_path / "c.pt", capsys, "--run", str(tmp_path / "first" / "run"))
    assert (status, differences(document)) == (0, [])
    resumed = run_script(tmp_path, RESUME, arguments=("--resume",), runs_dir=tmp_path / "second")
    assert resumed.status == 0
    assert "loading the state of AdamW lost something: no moments at all" in resumed.err
    status, document = audited(tmp_path / "c.pt", capsys, "--run", str(resumed.run_dir))
    assert [load["what"] for load in document["loads"]] == ["model", "optimizer"]
    assert (status, document["step"]) == (0, 3)


class Got:
    """Pickled as Python before 3.11.4 does a member of an enumeration."""

    def __init__(self, owner: Any, name: str) -> None:
        self.of = owner, name

    def __reduce__(self) -> Any:
        return getattr, self.of


def test_a_member_of_an_enumeration_is_got_from_its_class_and_nothing_else_is() -> None:
    def loaded(one: Got) -> Any:
        return _KnownClasses(io.BytesIO(pickle.dumps(one))).load()

    assert loaded(Got(_MEM_FORMAT_ENCODING, "TORCH_PRESERVE_FORMAT")) is _MEM_FORMAT_ENCODING.TORCH_PRESERVE_FORMAT
    for other in (Got(_MEM_FORMAT_ENCODING, "__init__"), Got(Metadata, "__reduce__"), Got("text", "join")):
        with pytest.raises(UsageError, match="refused"):
            loaded(other)


class Evil:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('code of a checkpoint was run')",)


def metadata_with_code(folder: Path, home: Path) -> Path:
    shutil.copytree(home / "distributed", folder / "c")
    (folder / "c" / ".metadata").write_bytes(pickle.dumps(Evil()))
    return folder / "c"


def without_a_piece(folder: Path, home: Path) -> Path:
    shutil.copytree(home / "distributed", folder / "c")
    (folder / "c" / "__0_0.distcp").unlink()
    return folder / "c"


def written(content: Any) -> Callable[[Path, Path], Path]:
    def write(folder: Path, home: Path) -> Path:
        if isinstance(content, bytes):
            (folder / "c.pt").write_bytes(content)
        else:
            torch.save(content, folder / "c.pt")
        return folder / "c.pt"

    return write


def cut(folder: Path, home: Path) -> Path:
    (folder / "c.pt").write_bytes((home / "step-6.pt").read_bytes()[:3000])
    return folder / "c.pt"


def damaged_safetensors(folder: Path, home: Path) -> Path:
    (folder / "model.safetensors").write_bytes((home / "model.safetensors").read_bytes()[:50])
    return folder / "model.safetensors"


def shards(*names: str) -> Callable[[Path, Path], Path]:
    """A folder with these files."""

    def write(folder: Path, home: Path) -> Path:
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(b"{}")
        return folder

    return write


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (written(b""), "an empty file"),
        (written(b"not a checkpoint at all"), "refused|not a checkpoint"),
        (written({"model": Evil()}), "refused"),
        (written(pickle.dumps(Evil())), "refused"),
        (written([1, 2]), "holds a list"),
        (written({"model": {"w": torch.ones(1)}, "o": {"state": {0: 1}, "param_groups": [{"params": 5}]}}), "form"),
        (written({"a": 1}), "neither a model nor an optimizer"),
        (cut, "not a checkpoint"),
        (metadata_with_code, "refused.*exec"),
        (without_a_piece, "__0_0.distcp.*missing"),
        (damaged_safetensors, "not a safetensors file"),
        (lambda folder, home: folder / "nothing.pt", "no such checkpoint"),
        (shards("global_step8/mp_rank_00_model_states.pt"), "a DeepSpeed checkpoint.*zero_to_fp32"),
        (shards("bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"), "a DeepSpeed checkpoint"),
        (shards("trainer_state.json", "pytorch_model_fsdp_rank0.bin"), "a piece for each rank.*FULL_STATE_DICT"),
        (shards("trainer_state.json", "pytorch_model_fsdp_0/.metadata"), "audit pytorch_model_fsdp_0 in it"),
        (
            lambda folder, home: shards("mp_rank_00_model_states.pt")(folder, home) / "mp_rank_00_model_states.pt",
            "one rank's piece of a DeepSpeed",
        ),
        (lambda folder, home: folder, "no checkpoint here"),
    ],
)
def test_bad_input_is_one_line(home: Path, tmp_path: Path, make: Callable[[Path, Path], Path], what: str) -> None:
    with pytest.raises(UsageError, match=what) as caught:
        read_checkpoint(make(tmp_path, home))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--run", "nothing"), "no such run"),
        (("--run", "x", "--against", "y"), "give only one of them"),
        (("--against", "nothing.pt"), "no such checkpoint"),
    ],
)
def test_bad_use_is_one_line(
    home: Path, options: tuple[str, ...], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=what):
        audited(home / "step-6.pt", capsys, *options)


def test_a_damaged_card(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(home / "run", tmp_path / "run")
    (card, *_) = (tmp_path / "run" / "saved").iterdir()
    card.write_text('{"format": "steadytrain.card", "version": 99}')
    with pytest.raises(UsageError, match="not a readable fingerprint"):
        audited(home / "step-6.pt", capsys, "--run", str(tmp_path / "run"))


def test_the_text_and_the_status_of_the_command(home: Path) -> None:
    done = call("audit", home / "step-6.pt", "--run", home / "run")
    assert (done.returncode, done.stderr) == (0, "")
    assert "10 of 10 as expected" in done.stdout
    done = call("audit", home / "step-6.pt", "--run", "nothing")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
