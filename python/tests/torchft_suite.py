#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""torchft's own tests of a process group, which its wheel brings along, by
hand, over dicomm in the place of gloo:

    pip install --target FOLDER --no-deps torchft-nightly
    pip install --target FOLDER parameterized expecttest pytest \\
        opentelemetry-sdk opentelemetry-exporter-otlp-proto-http
    PYTHONPATH=FOLDER:$PYTHONPATH torchft_suite.py [BACKEND [NAMES...]]

BACKEND is dicomm or gloo. Its ranks are threads of one process. Prints a line
for each test, and counts.
"""

import sys
import time
import types
import unittest

import torch  # noqa: F401
import torchft.process_group as process_group
import torchft.process_group_test as suite

backend = sys.argv[1] if len(sys.argv) > 1 else "dicomm"
names = sys.argv[2:]

if backend == "dicomm":
    from dicomm_torch._group import create

    class OverDicomm(process_group.ProcessGroupGloo):
        def _create_pg(self, store, rank, world_size):
            return create(types.SimpleNamespace(
                store=store, group_rank=rank, group_size=world_size,
                timeout=self._timeout, group_id="torchft"))

        # Which gloo lacks, and its class refuses.
        reduce_scatter = process_group.ProcessGroupWrapper.reduce_scatter
        reduce_scatter_tensor_coalesced = (
            process_group.ProcessGroupWrapper.reduce_scatter_tensor_coalesced)

    process_group.ProcessGroupGloo = suite.ProcessGroupGloo = OverDicomm

counts = {}
loader = unittest.TestLoader()
for kind in suite.ProcessGroupTest, suite.NormalGlooMultiPgTest:
    chosen = [name for name in loader.getTestCaseNames(kind)
              if (not names or any(part in name for part in names))
              and "nccl" not in name and "baby" not in name]
    every = unittest.TestSuite(kind(name) for name in chosen)

    class Result(unittest.TestResult):
        def startTest(self, test):
            super().startTest(test)
            self.began = time.monotonic()
            self.what = "passed", ""

        def addSkip(self, test, why):
            self.what = "skipped", why

        def addError(self, test, error):
            text = "".join(self._exc_info_to_string(error, test))
            self.what = "failed", text.strip().splitlines()[-1]
            if not hasattr(test, "_testMethodName"):  # setUpClass
                print("failed", test, text)

        addFailure = addError

        def stopTest(self, test):
            super().stopTest(test)
            what, why = self.what
            counts[what] = counts.get(what, 0) + 1
            print(what, test._testMethodName,
                  f"({time.monotonic() - self.began:.1f} s)", why[:300],
                  flush=True)

    every.run(Result())
print(backend, counts)
