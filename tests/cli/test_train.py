"""`course train`: its JSON, its files, Ctrl-C, torchrun, and a sentence for each wrong input."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from course_lib.checkpoint import load_checkpoint
from course_lib.cli import main

SMALL = ("--digits", "1", "--batch-size", "12", "--steps", "4")
KEYS = {
    "task", "ranks", "steps", "parameters", "exact_match", "heldout_problems", "validation_loss",
    "time_s", "tokens_per_s", "parameters_sha256",
}  # fmt: skip


@pytest.fixture
def course(monkeypatch, tmp_path, capsys):
    """Run `course …` in this process, in an empty folder; return (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["course", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        return code, *capsys.readouterr()

    return run


def files_in(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("ranks", [1, 2])
def test_json_and_files_of_an_addition(course, tmp_path, ranks):
    code, out, err = course("train", *SMALL, "--ranks", ranks, "--out", "run", "--json")
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert out.count("\n") == 1
    assert result.keys() >= KEYS
    assert (result["task"], result["ranks"], result["steps"]) == ("addition", ranks, 4)
    assert 0 <= result["exact_match"] <= 1
    assert result["validation_loss"] is None
    assert result["parameters"] > 100_000
    assert len(result["parameters_sha256"]) == 64
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"checkpoint.pt", "metrics.jsonl", "loss_curve.png"}
    picture = (tmp_path / "run" / "loss_curve.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 5_000


def test_json_of_a_text_and_its_continuation(course, tmp_path):
    (tmp_path / "t.txt").write_text("to be or not to be, that is the question. " * 40, "utf-8")
    small = ("--text", "t.txt", "--steps", "3", "--context", "8", "--width", "16", "--heads", "2")
    code, out, _ = course("train", *small, "--json")
    result = json.loads(out)
    assert (code, result["task"], result["exact_match"]) == (0, "text", None)
    assert result["validation_loss"] > 0
    code, out, _ = course("train", *small)
    assert code == 0
    assert "validation loss" in out
    assert set(out.split("\n\n")[1]) <= set("to be or not to be, that is the question. \n")
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"text-001", "text-002"}


def test_words_for_a_person(course):
    code, out, err = course("train", *SMALL, "--stop-after", "2", "--out", "run")
    assert (code, err) == (0, "")
    assert "parameters, 1 rank on cpu" in out
    assert "step 2 of 4" in out
    assert out.count("wrong, it is") + out.count("  right") == 5
    assert "course train --resume --out run" in out
    code, out, _ = course("train", "--resume", "--out", "run")
    assert code == 0
    assert "step 4 of 4" in out


def test_equal_runs_have_equal_bits_and_other_seeds_other_bits(course):
    found = [
        json.loads(course("train", *SMALL, "--seed", seed, "--json")[1])["parameters_sha256"]
        for seed in (5, 5, 6)
    ]
    assert found[0] == found[1] != found[2]


def _make_bad_inputs(folder: Path) -> None:
    (folder / "short.txt").write_text("too short", "utf-8")
    (folder / "latin.txt").write_bytes("é".encode("latin-1") * 2000)
    (folder / "good.txt").write_text("abcdefghij" * 100, "utf-8")
    (folder / "file").write_text("not a folder", "utf-8")
    (folder / "foreign").mkdir()
    (folder / "foreign" / "checkpoint.pt").write_bytes(b"PK\x03\x04 not a checkpoint")


BAD = [
    (("--task", "chess"), "'chess'", "addition, text"),
    (("--task", "text"), "--text", "file"),
    (("--text", "missing.txt"), "missing.txt", "no file"),
    (("--text", "short.txt"), "9 characters", "at least"),
    (("--text", "latin.txt"), "byte 0 is 0xe9", "UTF-8"),
    (("--text", "foreign"), "foreign", "give"),
    (("--task", "addition", "--text", "good.txt"), "good.txt", "--task text"),
    (("--text", "good.txt", "--digits", "3"), "--digits 3", "--task addition"),
    (("--digits", "0"), "digits is 0", "from 1 to 6"),
    (("--digits", "7"), "digits is 7", "from 1 to 6"),
    (("--ranks", "0"), "ranks is 0", "from 1 to 64"),
    (("--ranks", "-1"), "ranks is -1", "from 1 to 64"),
    (("--ranks", "65"), "ranks is 65", "from 1 to 64"),
    (("--ranks", "3"), "256", "255 or 258"),
    (("--steps", "0"), "steps is 0", "at least 1"),
    (("--batch-size", "0"), "batch_size is 0", "at least 1"),
    (("--seed", "-1"), "seed is -1", "at least 0"),
    (("--dtype", "int8"), "'int8'", "float32, float64"),
    (("--device", "tpu"), "'tpu'", "cpu"),
    (("--device", "cuda:99"), "cuda:99", "cpu"),
    (("--kernels", "fast"), "'fast'", "readable, fused"),
    (("--heads", "5"), "heads is 5", "1, 2, 4"),
    (("--dropout", "1.5"), "dropout is 1.5", "from 0"),
    (("--stop-after", "0"), "stop-after is 0", "at least 1"),
    (("--out", "file"), "file", "folder"),
    (("--out", "file/below"), "file/below", "folder"),
    (("--resume",), "--resume", "--out DIR"),
    (("--resume", "--out", "nowhere"), "nowhere", "a run that was saved"),
    (("--resume", "--out", "foreign"), "foreign/checkpoint.pt", "not a whole checkpoint"),
    (("--out", "foreign"), "foreign", "already holds a run"),
]


@pytest.mark.parametrize(("arguments", "value", "mend"), BAD, ids=[" ".join(b[0]) for b in BAD])
def test_a_wrong_input_is_one_sentence_and_leaves_no_trace(
    course, tmp_path, arguments, value, mend
):
    _make_bad_inputs(tmp_path)
    before = files_in(tmp_path)
    code, out, err = course("train", *arguments, "--json")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.endswith(".\n")
    assert value in err
    assert mend in err
    assert "Traceback" not in err
    assert files_in(tmp_path) == before


def test_a_run_is_not_overwritten_and_other_settings_are_not_that_run(course, tmp_path):
    course("train", *SMALL, "--stop-after", "2", "--out", "run", "--json")
    before = files_in(tmp_path)
    code, _, err = course("train", *SMALL, "--out", "run")
    assert code == 2
    assert "already holds a run" in err
    code, _, err = course("train", "--resume", "--out", "run", "--digits", "2")
    assert code == 2
    assert "has digits 1, and 2 was given" in err
    path = tmp_path / "run" / "checkpoint.pt"
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    code, _, err = course("train", "--resume", "--out", "run")
    assert code == 2
    assert "cut short" in err
    path.write_bytes(whole)
    assert files_in(tmp_path) == before


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(course, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o555)
    code, _, err = course("train", *SMALL, "--out", "locked/run")
    assert code == 2
    assert "permission denied" in err


def _environment() -> dict[str, str]:
    return os.environ | {"OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize("ranks", ["1", "2"])
def test_ctrl_c_leaves_a_checkpoint_and_no_process(tmp_path, ranks):
    arguments = [*SMALL[:4], "--steps", "100000", "--ranks", ranks, "--out", str(tmp_path / "run")]
    process = subprocess.Popen(
        [sys.executable, "-c", "from course_lib.cli import main; main()", "train", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(),
        start_new_session=True,
    )
    try:
        log = tmp_path / "run" / "metrics.jsonl"
        _wait_until(lambda: log.is_file() and '"step": 3,' in log.read_text("utf-8"))
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to everyone
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, err) == (130, "")
    step = load_checkpoint(tmp_path / "run" / "checkpoint.pt").step
    assert f"step {step} of 100,000".replace("000000", "000,000") in out.replace(
        f"{step:,}", str(step)
    )
    _wait_until(lambda: not _group_lives(process.pid))


def _wait_until(done, limit_s: float = 60.0) -> None:
    end_s = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < end_s, "it did not come"
        time.sleep(0.05)


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_same_run_under_torchrun(course, tmp_path):
    """Equal to `course train --ranks 2` to the bit, and resumed by it."""
    _, out, _ = course("train", *SMALL, "--ranks", "2", "--json")
    expected = json.loads(out)["parameters_sha256"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    torchrun += ["--master-addr", "127.0.0.1", "--master-port", "0", "--rdzv-backend", "c10d"]
    torchrun += ["--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]
    command = [*torchrun, "-m", "course_lib.train", *SMALL, "--out", str(tmp_path / "t"), "--json"]
    done = subprocess.run(
        [*command, "--stop-after", "2"], capture_output=True, text=True, env=_environment()
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ranks"] == 2
    _, out, _ = course("train", "--resume", "--out", "t", "--json")
    assert json.loads(out)["parameters_sha256"] == expected


def test_torchrun_says_what_is_wrong(tmp_path):
    command = [sys.executable, "-m", "course_lib.train", "--digits", "9"]
    done = subprocess.run(command, capture_output=True, text=True, env=_environment(), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "digits is 9" in done.stderr
    assert not list(tmp_path.iterdir())
