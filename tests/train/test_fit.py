"""Whole runs: they learn, stop, go on bit for bit, and leave what they should."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest
import torch

from course_lib.checkpoint import load_checkpoint, parameters_sha256
from course_lib.config import TrainConfig, preset
from course_lib.data.addition import Addition
from course_lib.data.text import TextData
from course_lib.errors import UserError
from course_lib.forward.model import Transformer
from course_lib.sync.data_parallel import NoSync
from course_lib.train import CheckpointSaved, Evaluated, RunEnded, RunStarted, StepDone, fit
from course_lib.train.evaluate import evaluate, samples
from course_lib.train.folder import read_metrics
from course_lib.train.parallel import fit_on_ranks
from course_lib.train.stop import StopSignal

ADDITION = preset("addition", digits=1, batch_size=12, steps=6, eval_every=0, kernels="fused")
STEPS_IN_AN_EPOCH = 7


@pytest.fixture
def text_config(tmp_path: Path) -> TrainConfig:
    """A text of 7 batches an epoch, and dropout, so that order and random numbers both count."""
    path = tmp_path / "text.txt"
    path.write_text("".join(chr(97 + (i * i + i // 7) % 26) for i in range(1020)), "utf-8")
    config = preset(
        "text", text=str(path), context=16, batch_size=8, steps=16, eval_every=0, layers=1,
        width=16, heads=2, dropout=0.2, warmup_steps=2, kernels="fused",
    )  # fmt: skip
    windows = TextData.from_file(path, 16).windows
    assert windows // 8 == STEPS_IN_AN_EPOCH
    return config


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("stop_at", [3, STEPS_IN_AN_EPOCH])
def test_a_run_that_is_resumed_is_the_run_that_never_stopped(tmp_path, text_config, ranks, stop_at):
    whole = fit_on_ranks(text_config, ranks, out=tmp_path / "whole")
    first = fit_on_ranks(text_config, ranks, out=tmp_path / "parts", stop_after=stop_at)
    assert (first.step, first.ended_by) == (stop_at, "stop_after")
    assert first.parameters_sha256 != whole.parameters_sha256
    second = fit_on_ranks(text_config, ranks, out=tmp_path / "parts", resume=True)
    assert second.parameters_sha256 == whole.parameters_sha256
    assert second.validation_loss == whole.validation_loss
    logs = [read_metrics(tmp_path / name / "metrics.jsonl") for name in ("whole", "parts")]
    losses = [[(m["step"], m["loss"]) for m in log if m["event"] == "step"] for log in logs]
    assert losses[0] == losses[1]
    assert [step for step, _ in losses[0]] == list(range(1, 17))


def test_what_was_logged_after_the_last_checkpoint_is_dropped(tmp_path):
    config = ADDITION
    whole = fit(config, out=tmp_path / "whole").result
    fit(config, out=tmp_path / "killed", stop_after=3)
    log = tmp_path / "killed" / "metrics.jsonl"
    with log.open("a", encoding="utf-8") as file:
        file.write('{"event": "step", "step": 4, "loss": 99.0}\n{"event": "st')  # killed here
    ended = fit(config, out=tmp_path / "killed", resume=True).result
    steps = [line for line in read_metrics(log) if line["event"] == "step"]
    assert [line["step"] for line in steps] == [1, 2, 3, 4, 5, 6]
    assert all(line["loss"] < 10 for line in steps)
    assert ended.parameters_sha256 == whole.parameters_sha256


def test_events_tell_the_run_in_order(tmp_path):
    events = []
    config = ADDITION.with_changes(eval_every=4)
    run = fit(config, out=tmp_path / "run", on_event=events.append)
    assert run.history == events
    kinds = [type(event) for event in events]
    assert kinds == [
        RunStarted, *[StepDone] * 4, Evaluated, CheckpointSaved, *[StepDone] * 2,
        CheckpointSaved, Evaluated, RunEnded,
    ]  # fmt: skip
    lines = (tmp_path / "run" / "metrics.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["event"] for line in lines] == [event.kind for event in events]
    ended = run.result
    assert ended.parameters == sum(param.numel() for param in run.model.parameters())
    assert ended.parameters_sha256 == parameters_sha256(run.model)
    assert len(ended.samples) == 5
    saved = load_checkpoint(tmp_path / "run" / "checkpoint.pt")
    assert (saved.step, saved.ranks, saved.threads_per_rank) == (6, 1, torch.get_num_threads())
    for name, value in run.model.state_dict().items():
        assert torch.equal(saved.model[name], value)


def test_nothing_is_written_without_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fit(ADDITION)
    assert not list(tmp_path.iterdir())


def test_the_loss_falls():
    run = fit(ADDITION.with_changes(steps=60, batch_size=64, warmup_steps=5))
    losses = [event.loss for event in run.history if isinstance(event, StepDone)]
    assert losses[0] == pytest.approx(torch.tensor(13.0).log().item(), abs=0.2)
    assert sum(losses[-5:]) / 5 < 0.7 * losses[0]


def _count(ranks: int, config: TrainConfig) -> RunEnded:
    return fit_on_ranks(config, ranks)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_three_ranks_are_one(dtype):
    config = ADDITION.with_changes(dtype=dtype, digits=2, batch_size=15, eval_every=2)
    one, three = (_count(ranks, config) for ranks in (1, 3))
    assert three.ranks == 3
    assert three.exact_match == one.exact_match
    assert three.heldout_problems == one.heldout_problems
    assert three.samples == one.samples


def test_bfloat16_runs_and_learns():
    config = ADDITION.with_changes(dtype="bfloat16", steps=20, batch_size=64, warmup_steps=2)
    run = fit(config)
    assert all(param.dtype == torch.float32 for param in run.model.parameters())
    losses = [event.loss for event in run.history if isinstance(event, StepDone)]
    assert losses[-1] < losses[0]


def test_divergence_is_told_and_the_checkpoint_stays(tmp_path):
    config = ADDITION.with_changes(
        peak_lr=1e30, clip_norm=0.0, warmup_steps=0, schedule="constant", optimizer="sgd"
    )
    with pytest.raises(FloatingPointError, match="diverged"):
        fit(config.with_changes(eval_every=1), out=tmp_path)
    assert load_checkpoint(tmp_path / "checkpoint.pt").step >= 1


def test_evaluation_is_the_same_without_dropout_and_leaves_the_mode():
    config = preset("addition", digits=1, dropout=0.5)
    data = Addition(1)
    model = Transformer(config.model(data.vocab_size, data.context))
    model.train()
    scores = [evaluate(model, data, NoSync()) for _ in range(2)]
    texts = [samples(model, data) for _ in range(2)]
    assert scores[0] == scores[1]
    assert texts[0] == texts[1]
    assert model.training


def test_validation_loss_is_the_mean_over_every_character(text_config):
    run = fit(text_config.with_changes(steps=1, dropout=0.0))
    tokens = run.data.validation
    total, counted = 0.0, 0
    for first in range(0, len(tokens) - 1, 16):
        window = tokens[first : first + 17]
        logits = run.model(window[None, :-1])[0].detach()
        total += torch.nn.functional.cross_entropy(logits, window[1:], reduction="sum").item()
        counted += len(window) - 1
    assert counted == len(tokens) - 1
    assert run.result.validation_loss == pytest.approx(total / counted, abs=1e-5)


class TestStopping:
    """A stop that was asked for, by a signal or a file, ends all ranks after the same step."""

    LONG = ADDITION.with_changes(steps=100_000, batch_size=4)

    def test_an_interrupt_leaves_a_checkpoint_to_go_on_from(self, tmp_path):
        def interrupt(event):
            if isinstance(event, StepDone) and event.step == 5:
                os.kill(os.getpid(), signal.SIGINT)

        before = signal.getsignal(signal.SIGINT)
        ended = fit(self.LONG, out=tmp_path, on_event=interrupt).result
        assert signal.getsignal(signal.SIGINT) is before
        assert (ended.step, ended.ended_by) == (5, "interrupt")
        assert load_checkpoint(tmp_path / "checkpoint.pt").step == 5

    @pytest.mark.parametrize("ranks", [1, 2])
    def test_a_signal_to_the_parent_stops_all_ranks(self, tmp_path, ranks):
        def interrupt_soon(event):
            if isinstance(event, StepDone) and event.step == 5:
                os.kill(os.getpid(), signal.SIGINT)

        ended = fit_on_ranks(self.LONG, ranks, out=tmp_path, on_event=interrupt_soon)
        assert ended.ended_by == "interrupt"
        assert load_checkpoint(tmp_path / "checkpoint.pt").step == ended.step < 5_000

    def test_one_ranks_flag_stops_all(self, tmp_path):
        """Only rank 1 hears of it: rank 0 must stop after the same step, not wait for ever."""
        from course_lib.ranks import launch

        results = launch(_stop_on_rank_1, self.LONG, str(tmp_path), world_size=2)
        assert results[0] == results[1] == ("interrupt", results[0][1])

    def test_in_a_thread_the_file_alone_counts(self, tmp_path):
        found = []

        def run():
            with StopSignal(tmp_path / "stop") as stop:
                found.append(stop.requested())
                (tmp_path / "stop").touch()
                found.append(stop.requested())

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        assert found == [False, True]

    def test_a_second_interrupt_ends_at_once_and_a_copy_of_the_first_does_not(self, monkeypatch):
        stop = StopSignal()
        stop.note()
        stop.note()  # torchrun passes on what the terminal has sent already
        now_s = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now_s + 5)
        with pytest.raises(KeyboardInterrupt):
            stop.note()


def _stop_on_rank_1(config: TrainConfig, folder: str) -> tuple[str, int]:
    import torch.distributed as dist

    file = Path(folder) / f"stop-{dist.get_rank()}"
    if dist.get_rank() == 1:
        threading.Timer(0.5, file.touch).start()
    ended = fit(config, stop_file=file).result
    return ended.ended_by, ended.step


class TestFolders:
    """Nothing is overwritten, and what can't go on says why."""

    def test_a_folder_that_holds_a_run_is_left_alone(self, tmp_path):
        fit(ADDITION, out=tmp_path)
        before = {path: path.read_bytes() for path in tmp_path.iterdir()}
        with pytest.raises(UserError, match=r"already holds a run .* --resume"):
            fit(ADDITION, out=tmp_path)
        assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}

    def test_other_settings_are_not_the_same_run(self, tmp_path):
        fit(ADDITION, out=tmp_path, stop_after=2)
        before = {path: path.read_bytes() for path in tmp_path.iterdir()}
        with pytest.raises(UserError, match="has layers 2, and 3 was given"):
            fit(ADDITION.with_changes(layers=3), out=tmp_path, resume=True)
        assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}

    def test_a_text_that_has_changed_is_told(self, tmp_path, text_config):
        fit(text_config, out=tmp_path / "run", stop_after=2)
        path = Path(text_config.text)
        text = path.read_text("utf-8")
        path.write_text(text[:200] + "aaaaaaaaaa" + text[210:], "utf-8")
        with pytest.raises(UserError, match="has changed since"):
            fit(text_config, out=tmp_path / "run", resume=True)

    def test_a_text_may_move(self, tmp_path, text_config):
        whole = fit(text_config, out=tmp_path / "whole").result
        fit(text_config, out=tmp_path / "run", stop_after=5)
        moved = Path(text_config.text).rename(tmp_path / "moved.txt")
        config = text_config.with_changes(text=str(moved))
        ended = fit(config, out=tmp_path / "run", resume=True).result
        assert ended.parameters_sha256 == whole.parameters_sha256

    def test_other_ranks_go_on_with_a_word(self, tmp_path):
        fit(ADDITION, out=tmp_path, stop_after=3)
        events = []
        fit_on_ranks(ADDITION, 2, out=tmp_path, resume=True, on_event=events.append)
        assert "saved on 1 ranks" in events[0].notes[0]
        assert events[-1].step == 6

    def test_wrong_arguments(self, tmp_path):
        with pytest.raises(UserError, match="stop-after is 0"):
            fit(ADDITION, stop_after=0)
        with pytest.raises(UserError, match="resumed from its folder"):
            fit(ADDITION, resume=True)
        with pytest.raises(UserError, match=r"no checkpoint\.pt in"):
            fit(ADDITION, out=tmp_path / "none", resume=True)
        assert not list(tmp_path.iterdir())
