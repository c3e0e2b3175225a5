/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DICOMM_TESTS_MOCK_PEEK_H
#define DICOMM_TESTS_MOCK_PEEK_H

enum peek_kind { PEEK_CUDA, PEEK_HIP };

/* Host memory through which what is at an address of a mock device of this
 * process can be seen, and whose that is, unless `kind` is NULL. NULL: it is
 * none of a device. */
void *peek_device(const void *at, enum peek_kind *kind);

#endif
