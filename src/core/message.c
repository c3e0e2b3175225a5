/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/core/message.h"

#include "src/base/log.h"

dicomm_result_t message_malformed(int rank, const struct tp_line *line)
{
	return FAIL(DICOMM_ERR_INTERNAL,
		    "rank %d sent a malformed message: kind %u, signature %#x, "
		    "%llu bytes",
		    rank, line->kind, line->signature,
		    (unsigned long long)line->len);
}
