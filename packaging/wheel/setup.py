# SPDX-License-Identifier: BSD-3-Clause
"""The wheel has programs of this platform, and serves any Python."""

import glob

import setuptools
from setuptools.command.bdist_wheel import bdist_wheel


class PlatformDistribution(setuptools.Distribution):
    def has_ext_modules(self):
        return True


class AnyPythonWheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


MAN_PAGES = [("share/man/" + section, glob.glob(f"man/{section}/*"))
             for section in ("man1", "man3")]

setuptools.setup(
    distclass=PlatformDistribution, cmdclass={"bdist_wheel": AnyPythonWheel},
    data_files=MAN_PAGES)
