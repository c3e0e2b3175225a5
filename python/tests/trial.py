# SPDX-License-Identifier: BSD-3-Clause
"""Plans are tried, and ranked as measured."""

import io
import json
import os
import pathlib
import shutil
import signal
import tempfile

import torch

import hetero as training
from dicomm_torch import hetero
from dicomm_torch.hetero import trial

CASES = []
LAYER_MS = 2.0  # of a sequence
SLOWED = 10  # times that, so that cores that are busy do not decide


def case(function):
    CASES.append((function.__name__.replace("_", " "), function))
    return function


def _paced(plan):
    """What a trial trains: what layers take is known."""
    name = pathlib.Path(plan.file).name
    if name == "dies.json" and os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "full.json" and os.environ["RANK"] == "0":
        raise MemoryError("no room")
    made = {}
    if name == "state.json" and os.environ["RANK"] == "1":
        made["optimizer"] = _Full
    slowed = name == "slow.json" and os.environ["RANK"] == "1"
    text = torch.randint(50, (plan.global_batch, training.gpt.TOKENS + 1),
                         generator=torch.Generator().manual_seed(1))
    return {"layers": training.gpt.layers(
                50, layer_ms=LAYER_MS * (SLOWED if slowed else 1)),
            "loss": training.gpt.loss_of,
            "activation": (training.gpt.TOKENS, training.gpt.HIDDEN),
            "batch": (text[:, :-1], text[:, 1:]), **made}


class _Full(torch.optim.SGD):
    def step(self):
        raise MemoryError("no room for states")


def _plan(folder, name, predicted, *cuts):
    """Stages of one rank each, the layers cut before those of `cuts`."""
    first = [0, *cuts]
    last = [cut - 1 for cut in cuts] + [5]
    path = os.path.join(folder, name)
    with open(path, "w") as out:
        json.dump({
            "version": 1, "sequence": training.gpt.TOKENS,
            "global_batch": training.gpt.BATCH,
            "predicted": {"step_s": predicted},
            "pipelines": [training.pipeline(1, training.gpt.BATCH, *[
                training.stage([rank], *layers)
                for rank, layers in enumerate(zip(first, last))])]}, out)
    return path


@case
def a_slow_plan_comes_out_behind_and_others_fail_alone():
    """The plans that are predicted to be the fastest are none, or slow."""
    folder = tempfile.mkdtemp(prefix="dicomm-trial-test-")
    try:
        files = [_plan(folder, *plan) for plan in (
            ("dies.json", 0.1, 3), ("wide.json", 0.2, 2, 4),
            ("full.json", 0.3, 3), ("layers.json", 0.4, 7),
            ("state.json", 0.4, 3),
            ("slow.json", 0.5, 3), ("even.json", 0.6, 3))]
        results = trial.Results(files, 2, os.path.join(folder, "results"))
        trial.on_this_machine(results, _paced, 2, limit_s=60, steps=2)
        said = io.StringIO()
        results.report(said)
        best = os.path.join(folder, "best.json")
        results.save_best(best)
        _check(results, said.getvalue())
        with open(best) as text:
            measured = json.load(text)["measured"]
        assert measured["steps"] == 2, measured
        assert hetero.read_plan(best).pipelines[0].stages[0].last == 2
    finally:
        shutil.rmtree(folder)


def _check(results, said):
    dies, wide, full, layers, state, slow, even = results.all
    assert results.ranking() == [even, slow], said
    assert min(slow.seconds) > 2 * min(even.seconds), said
    for result, words in ((dies, "rank 1"), (dies, "killed"),
                          (wide, "wants 3 ranks, and there are 2"),
                          (full, "rank 0"), (full, "MemoryError: no room"),
                          (layers, "layers"), (state, "rank 1 raised"),
                          (state, "MemoryError: no room for states")):
        assert words in result.failed, f"{result.failed}\n{said}"
        assert words in said, said
    assert "the order is not as predicted" in said, said


@case
def wrong_arguments_of_a_trial_are_told():
    folder = tempfile.mkdtemp(prefix="dicomm-trial-test-")

    def model(**table):
        path = os.path.join(folder, "config.json")
        with open(path, "w") as out:
            json.dump(table, out)
        return trial.Model(path)

    try:
        plan = hetero.read_plan(_plan(folder, "plan.json", 0.1, 3))
        sizes = {"num_hidden_layers": 4, "hidden_size": 8, "gated": False,
                 "num_attention_heads": 2, "intermediate_size": 16,
                 "vocab_size": 11}
        assert len(model(**sizes)(plan)["layers"]) == 6
        for key, value in (("vocab_size", 0), ("hidden_size", "8"),
                           ("num_experts", 4), ("gated", True),
                           ("head_dim", 5)):
            try:
                model(**{**sizes, key: value})(plan)
            except ValueError as error:
                assert f"config.json: {key}: {value!r}" in str(error), error
            else:
                raise AssertionError(f"{key}: {value!r} was taken")
        path = os.path.join(folder, "list.json")
        with open(path, "w") as out:
            json.dump([], out)
        try:
            trial.Model(path)
        except ValueError as error:
            assert "list.json: list: wanted an object" in str(error), error
        else:
            raise AssertionError("a list was taken")
    finally:
        shutil.rmtree(folder)
