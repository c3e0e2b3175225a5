/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the fuzz targets share. A target defines fuzz_seeds() and
 * LLVMFuzzerTestOneInput(), and reads what comes from outside with the
 * library's own code; the sanitizers judge.
 */
#ifndef DICOMM_TESTS_FUZZ_FUZZ_H
#define DICOMM_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Give good inputs to begin with, by fuzz_seed(). */
void fuzz_seeds(void);
/* Written to the folder FUZZ_SEEDS, where the fuzzer finds it. */
void fuzz_seed(const void *data, size_t len);
void fuzz_seed_text(const char *text);
/* A copy that ends in NUL, with nothing behind; free it. */
char *fuzz_text(const uint8_t *data, size_t len);

#endif
