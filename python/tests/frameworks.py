#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The programs of docs/frameworks.md, run as they stand there:

    frameworks.py [--site FOLDER] [FRAMEWORK...]

Each runs over dicomm, and once more with that name replaced by gloo: both must
end with status 0 and print the same line "loss ...". The frameworks come from
PyPI, in the versions that the page names, into FOLDER (a folder beside that of
sys.prefix), once. Status 77 where they cannot be had. It needs dicomm_torch,
and libdicomm, as the other tests here do.
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..",
                    "docs", "frameworks.md")
SECONDS = 300
# What a framework consists of that would bring PyTorch again.
PACKAGES = {"Accelerate": "accelerate", "Transformers": "transformers",
            "Lightning": "lightning", "Ignite": "pytorch-ignite",
            "DeepSpeed": "deepspeed", "Ray Train": "ray"}
WITH_TORCH = ["pytorch-lightning", "torchmetrics"]
OTHERS = ["click", "cloudpickle", "einops", "filelock", "fsspec[http]", "hjson",
          "huggingface_hub", "jsonschema", "lightning-utilities", "msgpack",
          "ninja", "packaging", "pandas", "protobuf", "psutil", "py-cpuinfo",
          "pyarrow", "pydantic", "pyyaml", "regex", "requests", "safetensors",
          "tensorboardX", "tokenizers", "tqdm"]
LAUNCHED = ("Lightning", "Ray Train")  # start their own processes
# PyTorch linked with CUDA asks the driver that is not there, and Transformers
# asks PyTorch in each forward pass. Both backends would die of it.
WITHOUT_DRIVER = "import torch\n" \
    "torch.cuda.is_current_stream_capturing = lambda: False\n"


def read_page():
    """The versions, and the programs, by framework."""
    with open(PAGE, encoding="utf-8") as page:
        text = page.read()
    versions = dict(re.findall(r"^\| ([A-Z][\w ]*?) \|.*\| ([\d.]+) \|$", text,
                               re.MULTILINE))
    programs = dict(re.findall(r"^## ([^\n]+)\n.*?```python\n(.*?)```", text,
                               re.MULTILINE | re.DOTALL))
    if not set(versions) == set(programs) == set(PACKAGES):
        sys.exit(f"{PAGE}: versions of {sorted(versions)}, programs of "
                 f"{sorted(programs)}, packages of {sorted(PACKAGES)}")
    return versions, programs


def default_site(versions):
    """Beside that of sys.prefix; another one for other versions."""
    key = hashlib.sha256(repr((versions, WITH_TORCH, OTHERS)).encode())
    return os.path.join(os.path.dirname(sys.prefix),
                        "frameworks-" + key.hexdigest()[:12])


def installed():
    """Whether a folder has them, and which one it is."""
    site = default_site(read_page()[0])
    return os.path.exists(os.path.join(site, "ready")), site


def install(site, versions):
    wanted = [f"{PACKAGES[name]}=={versions[name]}" for name in versions]
    for more in (["--no-deps", *wanted, *WITH_TORCH], OTHERS):
        done = subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", "--retries", "1",
             "--disable-pip-version-check", "--upgrade", "--target", site,
             *more], capture_output=True, text=True, check=False)
        if done.returncode:
            print("the frameworks cannot be had:", done.stderr.strip()[-300:])
            sys.exit(77)
    with open(os.path.join(site, "ready"), "w", encoding="utf-8"):
        pass


def run(name, program, backend, site):
    """What the program printed of its loss, and all that it printed."""
    env = dict(os.environ, RAY_USAGE_STATS_ENABLED="0", OMP_NUM_THREADS="1")
    env["PYTHONPATH"] = os.pathsep.join(
        [path for path in [env.get("PYTHONPATH")] if path] + [site])
    env["PATH"] = os.pathsep.join(
        [os.path.join(site, "bin"), os.path.dirname(sys.executable),
         env["PATH"]])
    start = [sys.executable]
    if name not in LAUNCHED:
        start += ["-m", "torch.distributed.run", "--standalone",
                  "--nproc-per-node", "2"]
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "train.py"), "w",
                  encoding="utf-8") as file:
            file.write(WITHOUT_DRIVER +
                       program.replace('"dicomm"', f'"{backend}"'))
        try:
            done = subprocess.run(
                [*start, "train.py"], cwd=folder, env=env, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return None, f"has not ended after {SECONDS} s"
    found = re.search(rf"loss (\d+\.\d+) {backend}\b", done.stdout)
    if done.returncode or not found:
        return None, f"status {done.returncode}\n{done.stdout}"
    return found[1], done.stdout


def main():
    versions, programs = read_page()
    parser = argparse.ArgumentParser()
    parser.add_argument("--site", default=default_site(versions))
    parser.add_argument("frameworks", nargs="*", default=list(programs),
                        metavar="FRAMEWORK", help=", ".join(programs))
    options = parser.parse_args()
    unknown = set(options.frameworks) - set(programs)
    if unknown:
        parser.error(f"{sorted(unknown)}: the page has {sorted(programs)}")
    if not os.path.exists(os.path.join(options.site, "ready")):
        install(options.site, versions)

    bad = 0
    for name in options.frameworks:
        ours, text = run(name, programs[name], "dicomm", options.site)
        if ours:
            theirs, text = run(name, programs[name], "gloo", options.site)
        if ours and ours == theirs:
            print(f"ok {name} {versions[name]}: loss {ours}", flush=True)
            continue
        bad += 1
        print(f"not ok {name} {versions[name]}: loss {ours}; gloo: {text}",
              flush=True)
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
