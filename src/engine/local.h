/* SPDX-License-Identifier: BSD-3-Clause */
/* Work of one rank (struct local_work) in the order of its collectives. */
#ifndef DICOMM_ENGINE_LOCAL_H
#define DICOMM_ENGINE_LOCAL_H

#include "src/core/operation.h"

extern const struct operation_kind local_kind;

#endif
