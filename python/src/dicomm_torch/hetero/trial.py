# SPDX-License-Identifier: BSD-3-Clause
"""Runs plans for a few steps each, and ranks them by what was measured.

    dicomm-plan search ... --keep 4 -o plan.json
    torchrun --nproc-per-node 8 -m dicomm_torch.hetero.trial \\
        --plans plan.json plan.*.json --model config.json -o best.json

Started by itself it starts the ranks on this machine. docs/hetero.md of
libdicomm says what it prints.
"""

import argparse
import ctypes
import datetime
import gc
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback

import torch
import torch.distributed as dist

from .config_file import Model, load_layers
from .ends import in_words
from .failures import Inquest, StageError
from .plan import PlanError
from .ranking import Results
from .trainer import Trainer

# What a process that cannot go on ends with: another one that begins anew
# finds in the results which plans are left.
CANNOT_GO_ON = 3
START_S = 60  # to begin a job
END_S = 20  # to agree on who failed, and to end
_PR_SET_PDEATHSIG = 1  # ranks do not outlive who has forked them


# -- one rank ------------------------------------------------------------------

def _synchronize(place):
    if place.type != "cpu":
        getattr(torch, place.type).synchronize()


def _steps(plan, made, steps, warm_up, limit_s):
    """Seconds of each step, those of the slowest rank: alike at all ranks.
    Fewer steps than asked for if they take longer than limit_s, but one."""
    made = dict(made)
    batch = made.pop("batch")
    optimizer_of = made.pop("optimizer", torch.optim.AdamW)
    began = time.monotonic()
    trainer = Trainer(plan, **made)
    try:
        parameters = trainer.parameters()
        optimizer = optimizer_of(parameters) if parameters else None
        place = dist.group.WORLD._communicator.place
        seconds = []
        for step in range(warm_up + steps):
            at = time.perf_counter()
            trainer.step(*batch)
            if optimizer:
                optimizer.step()
            _synchronize(place)
            now = time.perf_counter()
            told = torch.tensor([now - at, time.monotonic() - began],
                                dtype=torch.float64)
            dist.all_reduce(told, dist.ReduceOp.MAX)
            if step >= warm_up:
                seconds.append(told[0].item())
            if seconds and told[1].item() > limit_s:
                break
        return seconds
    finally:
        trainer.close()


class Rank:
    """This process of a job: goes through the plans that are left.

    model(plan) gives what Trainer wants, and "batch", the inputs and targets
    of a step; "optimizer", if it is to be another than AdamW.
    """

    def __init__(self, results, model, store, rank, ranks, steps=5, warm_up=1,
                 limit_s=120.0):
        self.results = results
        self._model, self._store = model, store
        self._rank, self._ranks = rank, ranks
        self._steps, self._warm_up, self._limit_s = steps, warm_up, limit_s
        self.reports = rank == 0  # the first one that is left does

    def run(self):
        """True if all plans were gone through; False: this job cannot go on,
        as a rank is gone."""
        for number in self.results.left():
            result = self.results.all[number]
            result.begun = True
            if self._rank == 0:
                self.results.write()
            watch = threading.Timer(self._limit_s + START_S + END_S,
                                    self._give_up, (result,))
            watch.daemon = True
            watch.start()
            try:
                gone = self._try(number, result)
            finally:
                watch.cancel()
            self.reports = self._rank == min(
                set(range(self._ranks)) - set(gone), default=0)
            if self.reports:
                self.results.write()
            if gone:
                return False
        return True

    def _give_up(self, result):
        """Where what a plan does has no bound of its own."""
        os.write(2, f"hetero.trial: {result.file}: rank {self._rank} was not"
                 f" through after {self._limit_s + START_S + END_S:g} s:"
                 " ends\n".encode())
        os._exit(CANNOT_GO_ON)

    def _try(self, number, result):
        """Returns the ranks that are gone, if any are."""
        limit = datetime.timedelta(seconds=self._limit_s)
        store = dist.PrefixStore(f"trial/{number}", self._store)
        inquest = None
        try:
            dist.init_process_group(
                "dicomm", store=store, rank=self._rank,
                world_size=self._ranks, timeout=limit)
            store = dist.PrefixStore("inquest", store)
            store.set_timeout(limit)
            inquest = Inquest(store, self._rank, self._ranks,
                              lambda rank: f"rank {rank}", 5.0)
            inquest.open()
            try:
                made = self._model(result.plan)
                # Who has no layers tells the others, before they go on.
                dist.barrier()
            except Exception as error:
                raise inquest.hold(
                    error, dist.group.WORLD._communicator.abort) from error
            try:
                result.seconds = _steps(result.plan, made, self._steps,
                                        self._warm_up, self._limit_s)
            except (StageError, PlanError):
                raise
            except Exception as error:  # of the optimizer, or no memory
                raise inquest.hold(
                    error, dist.group.WORLD._communicator.abort) from error
        except StageError as error:
            result.failed = str(error)
            return error.gone
        except PlanError as error:  # alike at all ranks
            result.failed = str(error)
        except Exception as error:
            result.failed = f"{type(error).__name__}: {error}"
            return [self._rank]
        finally:
            if inquest:
                inquest.close()
            if dist.is_initialized():
                dist.destroy_process_group()
            self._free()
        return []

    @staticmethod
    def _free():
        gc.collect()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.empty_cache()


# -- a job ---------------------------------------------------------------------

def _child(results, model, folder, rank, ranks, options):
    """What a forked rank does; returns its exit status."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks),
                      LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(ranks))
    if torch.cuda.device_count():
        os.environ.setdefault("DICOMM_DEVICE", f"cuda:{rank}")
    try:
        store = dist.FileStore(os.path.join(folder, "store"), ranks)
        done = Rank(results, model, store, rank, ranks, **options).run()
        return 0 if done else CANNOT_GO_ON
    except BaseException:
        traceback.print_exc()
        return 1


def _start(started, results, model, folder, ranks, options):
    """Adds {process: rank}."""
    sys.stdout.flush()
    sys.stderr.flush()
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                status = _child(results, model, folder, rank, ranks, options)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        started[pid] = rank


def _ended(pid):
    """As waitpid() has it, but the process stays: the others see how it ended
    until it is reaped. None: it lives."""
    told = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if told is None:
        return None
    exited = told.si_code == os.CLD_EXITED
    return told.si_status << 8 if exited else told.si_status


def _await(started, limit_s):
    """Until all have ended: how the first one did that failed, in words, or
    None. The others then have END_S to agree on who it was, and end."""
    end, failed, left = time.monotonic() + limit_s, None, dict(started)
    while left:
        for pid in list(left):
            status = _ended(pid)
            if status is None:
                continue
            rank = left.pop(pid)
            if status and failed is None:
                failed = f"rank {rank} {in_words(status)}"
                end = min(end, time.monotonic() + END_S)
        if time.monotonic() > end + END_S:
            raise RuntimeError(f"processes {sorted(left)} do not end,"
                               " though they were killed")
        if time.monotonic() > end:
            failed = failed or (f"ranks {sorted(left.values())} were not"
                                f" through after {limit_s:g} s")
            for pid in left:
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return failed


def _reap(started):
    """Nobody is left, however the job ended."""
    end = time.monotonic() + END_S
    for pid in started:
        os.kill(pid, signal.SIGKILL)
    while started and time.monotonic() < end:
        for pid in list(started):
            if os.waitpid(pid, os.WNOHANG)[0]:
                del started[pid]
        if started:
            time.sleep(0.01)


def on_this_machine(results, model, ranks, limit_s=120.0, **options):
    """Runs all plans with ranks of this machine, which are forked. A job that
    cannot go on is followed by another one, for the plans that are left."""
    options["limit_s"] = limit_s
    folder = tempfile.mkdtemp(prefix="dicomm-trial-")
    try:
        results.write()
        while results.left():
            left, life = len(results.left()), os.path.join(folder, "life")
            os.mkdir(life)
            started = {}
            try:
                _start(started, results, model, life, ranks, options)
                failed = _await(started, left * (limit_s + START_S + END_S))
            finally:
                _reap(started)
            shutil.rmtree(life)
            results.read()
            if failed:
                results.blame(failed)
            if len(results.left()) == left:
                for result in results.all:
                    if result.open:
                        result.failed = failed or "the job did not try it"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _under_a_launcher(results, model, options):
    """This process is one rank of a job that torchrun or the like started."""
    rank = int(os.environ["RANK"])
    ranks = int(os.environ["WORLD_SIZE"])
    store, _, _ = next(iter(dist.rendezvous("env://", rank, ranks)))
    life = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = dist.PrefixStore(f"trial/{life}", store)
    if rank == 0:
        if life != "0":
            results.read()
            results.blame("a rank was gone in the middle of it")
        results.write()
        store.set("state", json.dumps(results.state()))
    results.take(json.loads(store.get("state")))
    job = Rank(results, model, store, rank, ranks, **options)
    return job.run(), job.reports


# -- the command ---------------------------------------------------------------

def _arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="python -m dicomm_torch.hetero.trial",
        description="Runs plans for a few steps each, on random tokens, and"
        " ranks them by what was measured.")
    parser.add_argument("--plans", nargs="+", required=True,
                        metavar="FILE.json")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--model", metavar="CONFIG.json",
                      help="a config.json of Hugging Face (needs"
                      " transformers), or sizes as dicomm-plan takes them")
    what.add_argument("--layers", metavar="FILE.py:FUNCTION",
                      help="FUNCTION(plan) gives a dictionary of what"
                      " hetero.Trainer wants, and batch")
    parser.add_argument("--steps", type=int, default=5,
                        help="that count, of each plan (5)")
    parser.add_argument("--warm-up", type=int, default=1,
                        help="steps before them (1)")
    parser.add_argument("--limit", type=float, default=120.0,
                        metavar="SECONDS", help="of each plan (120)")
    parser.add_argument("--ranks", type=int, metavar="N",
                        help="to start on this machine (the most that a plan"
                        " wants; on GPUs one each)")
    parser.add_argument("--results", default="trial.json", metavar="FILE",
                        help="all that was found, as JSON (trial.json)")
    parser.add_argument("-o", "--out", metavar="FILE",
                        help="write the fastest plan here")
    given = parser.parse_args(arguments)
    for name, least in (("steps", 1), ("warm_up", 0), ("limit", 1),
                        ("ranks", 1)):
        value = getattr(given, name)
        if value is not None and not least <= value <= 1e6:
            parser.error(f"--{name.replace('_', '-')}: {value}: wanted"
                         f" {least} to 1e6")
    if given.ranks and "RANK" in os.environ:
        parser.error(f"--ranks: {given.ranks}: wanted without a launcher,"
                     f" which has started {os.environ.get('WORLD_SIZE')}")
    return given


def _ranks_here(given):
    wanted = given.ranks or max(
        (result.ranks for result in Results(given.plans, 1 << 31, "").all
         if result.plan), default=1)
    devices = torch.cuda.device_count()
    return min(wanted, devices) if devices else wanted


def main(arguments=None):
    given = _arguments(arguments)
    try:
        model = (load_layers(given.layers) if given.layers
                 else Model(given.model))
    except (OSError, ValueError) as error:
        print(f"hetero.trial: {error}", file=sys.stderr)
        return 2
    launched = "RANK" in os.environ
    ranks = (int(os.environ["WORLD_SIZE"]) if launched
             else _ranks_here(given))
    results = Results(given.plans, ranks, given.results)
    options = {"steps": given.steps, "warm_up": given.warm_up,
               "limit_s": given.limit}
    done, reports = True, True
    if launched:
        done, reports = _under_a_launcher(results, model, options)
    else:
        on_this_machine(results, model, ranks, **options)
    if reports:
        results.report(sys.stdout)
        if results.ranking() and given.out:
            results.save_best(given.out)
            print(f"written to {given.out}: {results.ranking()[0].file}")
        sys.stdout.flush()
    if not done:
        return CANNOT_GO_ON
    return 0 if results.ranking() else 1


if __name__ == "__main__":
    sys.exit(main())
