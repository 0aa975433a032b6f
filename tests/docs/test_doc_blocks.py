"""Every code block of README and docs parses, names what exists, and is either executed or says why it is not.

The blocks are executed by ``test_doc_blocks_run.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from doc_blocks import PICTURES, ROOT, Block, blocks, pages
from doc_checks import command_fault, fault, inline_commands, shell_faults
from doc_running import first_missing


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_each_block_is_sound_and_is_run_or_says_why_not(page: Path) -> None:
    in_stage = False
    faults = []
    for block in blocks(page):
        in_stage = in_stage or "in" in block.directives
        found = fault(block)
        if not found and block.runs and not in_stage and block.language in ("console", "bash", "python"):
            found = "it is neither run (`in: STAGE`) nor marked (`not run: REASON`)"
        if found:
            faults.append(f"{block.place}: {found}")
    assert faults == []


def test_commands_in_the_prose_exist_with_their_options() -> None:
    faults = [
        f"{page.relative_to(ROOT)}: {found}"
        for page in pages()
        for command in inline_commands(page)
        for found in shell_faults(command.replace("[", "").replace("]", ""))
    ]
    assert faults == []


def block_of(text: str, tmp_path: Path) -> Block:
    (tmp_path / "page.md").write_text(text, encoding="utf-8")
    (block,) = blocks(tmp_path / "page.md")
    return block


def test_a_block_is_read_with_its_directives(tmp_path: Path) -> None:
    text = "<!-- in: zoo a.py; status: 70 -->\n```console\n$ steadytrain run \\\n  a.py\nSTOPPED\n$ echo\n```\n"
    block = block_of(text, tmp_path)
    assert block.directives == {"in": "zoo a.py", "status": "70"}
    assert [command.text for command in block.commands()] == ["steadytrain run \\\n  a.py", "echo"]
    assert [command.output for command in block.commands()] == ["STOPPED", ""]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("```\nsteadytrain show\n```\n", "language"),
        ("```console\nsteadytrain show\n```\n", "begins with"),
        ("```console\n$ steadytrain shwo\n```\n", "shwo"),
        ("```console\n$ steadytrain show --jsno\n```\n", "--jsno"),
        ("```console\n$ make dmeo\n```\n", "dmeo"),
        ("```console\n$ pip install 'steadytrain[reprot]'\n```\n", "reprot"),
        ("```console\n$ python benchmarks/none.py\n```\n", "none.py"),
        ("```bash\nsrun torchrun -m steadytrain run --polcy skip train.py\n```\n", "--polcy"),
        ("```python\nfor\n```\n", "line 1"),
        ("```text\nloss\n```\n", "not run"),
        ("```toml\na = 1\n```\n", "as: KIND"),
        ("<!-- as: gate-policy -->\n```toml\nversion = 1\n[los]\n```\n", "los"),
        ("<!-- as: guard-policy -->\n```toml\npolicy = 'sturdy'\n```\n", "sturdy"),
        ("<!-- as: steps -->\n```yaml\n- run: steadytrain gaet a\n```\n", "gaet"),
        ("<!-- in: nowhere -->\n```console\n$ true\n```\n", "nowhere"),
    ],
)
def test_what_is_wrong_with_a_block_is_found(text: str, wrong: str, tmp_path: Path) -> None:
    assert wrong in fault(block_of(text, tmp_path))


@pytest.mark.parametrize("text", ["<!-- note run: x; in: y -->", "<!-- not run -->", "<!-- in: empty; stat: 1 -->"])
def test_a_directive_that_is_misspelt_is_no_reason(text: str, tmp_path: Path) -> None:
    page = f"{text}\n```console\n$ true\n```\n"
    if text.startswith("<!-- note"):
        assert block_of(page, tmp_path).directives == {}
    else:
        with pytest.raises(ValueError, match="is none of"):
            block_of(page, tmp_path)


def test_commands_and_their_options() -> None:
    assert command_fault(["steadytrain", "run", "--policy", "skip", "train.py", "--their-own", "3"]) == ""
    assert command_fault(["steadytrain", "bundle", "inspect", "PATH"]) == ""
    assert "--polcy" in command_fault(["steadytrain", "run", "--polcy", "skip", "train.py"])
    assert PICTURES == ("mermaid",)


def test_outputs_are_compared_but_for_numbers_and_what_is_left_out() -> None:
    actual = "run-20261125-101010\n  loss 3.25   at step 7\n  layer  blocks.0.mlp\nnext  steadytrain show\n"
    assert first_missing("run-20260101-000000\n loss 1e-3 at step 12\n...\nnext steadytrain show", actual) == ""
    assert ">>>HERE<<<" in first_missing("loss 1e-3 in step 12", actual)
    assert first_missing("next steadytrain show\n...\nlayer", actual) != ""
