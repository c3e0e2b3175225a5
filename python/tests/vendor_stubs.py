#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Let the PyTorch of PyPI start without the libraries of NVIDIA.

The wheel for Linux on x86-64 is linked with a dozen libraries of CUDA, which
are 2.5 GB and of no use without a GPU. The dynamic loader wants each library
and each symbol all the same, for Python opens modules with RTLD_NOW. This
writes libraries of a few kilobytes beside torch's own, where its RPATH finds
them; every function in them returns 100, cudaErrorNoDevice. For tests only.

usage: vendor_stubs.py FOLDER    (that of torch's libraries: .../torch/lib)

Needs a C compiler, objdump and nm.
"""

import collections
import os
import re
import subprocess
import sys
import tempfile

VENDOR = re.compile(r"lib(cu|nv|nccl)\w*\.so\.\d+$")
# The library of a symbol that has no version, by the start of its name.
# Longer beginnings first.
OWNERS = (
    "cublasLt:libcublasLt cublas:libcublas cusparseLt:libcusparseLt"
    " cusparse:libcusparse cudnn:libcudnn nccl:libnccl nvrtc:libnvrtc"
    " cufft:libcufft cuFile:libcufile nvshmem:libnvshmem_host"
    " cusolver:libcusolver cupti:libcupti curand:libcurand"
    " nvJitLink:libnvJitLink nvtx:libnvToolsExt cuda:libcudart"
    " __cuda:libcudart _cuda:libcudart __cublas:libcublas"
)
OWNERS = [pair.split(":") for pair in OWNERS.split()]


def run(*command):
    return subprocess.run(
        command, check=True, capture_output=True, text=True).stdout


def symbols(path, which):
    """The dynamic symbols of a library, "name@version" each."""
    lines = run("nm", "-D", which, path).splitlines()
    return {line.split()[-1].replace("@@", "@") for line in lines if line}


def owner(symbol, missing):
    """The library, of those missing, that a symbol belongs to, or None."""
    name, _, version = symbol.partition("@")
    if version in missing:
        return version
    for start, library in OWNERS:
        if name.startswith(start):
            for candidate in missing:
                if candidate.startswith(library + ".so"):
                    return candidate
    return None


def write_stub(path, wanted):
    """Make a library with these symbols, each a function that returns 100."""
    versions = collections.defaultdict(list)
    for symbol in sorted(wanted):
        name, _, version = symbol.partition("@")
        versions[version].append(name)
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "stub.c")
        script = os.path.join(folder, "stub.map")
        with open(source, "w") as out:
            out.write("extern int dicomm_test_stub;\nint dicomm_test_stub;\n")
            for names in versions.values():
                for name in names:
                    out.write(f"int {name}(void) {{ return 100; }}\n")
        with open(script, "w") as out:
            for version, names in versions.items():
                if version:
                    listed = " ".join(name + ";" for name in names)
                    out.write(f"{version} {{ global: {listed} }};\n")
        command = ["cc", "-shared", "-fPIC", "-w", "-fno-builtin", "-o", path,
                   f"-Wl,-soname,{os.path.basename(path)}", source]
        if any(versions):
            command.append("-Wl,--version-script=" + script)
        subprocess.run(command, check=True)


def main():
    folder = sys.argv[1]
    libraries = [os.path.join(folder, name) for name in os.listdir(folder)
                 if ".so" in name]
    missing, defined, undefined = set(), set(), set()
    for path in libraries:
        needed = re.findall(r"NEEDED\s+(\S+)", run("objdump", "-p", path))
        missing.update(filter(VENDOR.match, needed))
        defined |= {symbol.partition("@")[0]
                    for symbol in symbols(path, "--defined-only")}
        undefined |= symbols(path, "--undefined-only")
    # libcuda is the driver: torch opens that itself, if it is there.
    missing -= set(os.listdir(folder)) | {"libcuda.so.1"}
    wanted = {library: set() for library in missing}
    for symbol in undefined:
        library = owner(symbol, missing)
        if library and symbol.partition("@")[0] not in defined:
            wanted[library].add(symbol)
    for library, names in sorted(wanted.items()):
        write_stub(os.path.join(folder, library), names)
        print(f"{library}: {len(names)} symbols")


if __name__ == "__main__":
    main()
