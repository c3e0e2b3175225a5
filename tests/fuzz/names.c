/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * DICOMM_ALGO, DICOMM_SOCKET_IFNAME, DICOMM_IB_HCA; of the last two, behind the
 * first line, names that they let through or not.
 */
#include <stdlib.h>
#include <string.h>

#include "collectives/select/select.h"
#include "src/boot/net/interface.h"
#include "tests/fuzz/fuzz.h"
#ifdef HAVE_VERBS
#include "transports/verbs/nic/choose.h"
#endif

void fuzz_seeds(void)
{
	fuzz_seed_text("allreduce:ring,tree;alltoall:^direct");
	fuzz_seed_text("^=docker0,virbr\nvirbr0");
	fuzz_seed_text("=mlx5_0:1,mlx5_1\nmlx5_0");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	char *spec = fuzz_text(data, len), *name = strchr(spec, '\n');
	struct select_table table = {0};

	(void)select_override(&table, spec);
	if (name) {
		*name++ = '\0';
		(void)interface_matches(spec, name);
#ifdef HAVE_VERBS
		(void)verbs_choose_matches(spec, name, data[0] & 3);
#endif
	}
	free(spec);
	return 0;
}
