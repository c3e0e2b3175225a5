#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# All places state the same version.
exec bash "${srcdir:-.}/scripts/release" --check
