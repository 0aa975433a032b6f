"""Damaged and hostile checkpoints, wrong use, and the text of the command."""

from __future__ import annotations

import io
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from checkpoint_runs import audited  # noqa: E402
from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING, Metadata  # noqa: E402

from scripts import call  # noqa: E402
from steadytrain.checkpoints import read_checkpoint  # noqa: E402
from steadytrain.checkpoints.distributed import _KnownClasses  # noqa: E402
from steadytrain.core.errors import UsageError  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # torch warns of its own distributed checkpoints


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


def test_a_page_of_two_checkpoints_names_no_command_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.pt", "b.pt"):
        torch.save(torch.nn.Linear(2, 1).state_dict(), tmp_path / name)
    page = tmp_path / "page.html"
    status, _ = audited(tmp_path / "a.pt", capsys, "--against", str(tmp_path / "b.pt"), "-o", str(page))
    assert status == 1
    assert 'class="command"' not in page.read_text(encoding="utf-8")
