/* SPDX-License-Identifier: BSD-3-Clause */
/* DICOMM_TOPO_FILE: the file, and the links that follow from it. */
#include <stdlib.h>

#include "src/base/links.h"
#include "src/topo/cluster.h"
#include "tests/fuzz/fuzz.h"

/* Larger clusters take long, and are no other code. */
#define RANKS_MOST 512

void fuzz_seeds(void)
{
	fuzz_seed_text("{\"nodes\": [{\"count\": 2, \"ranks\": 4}]}");
	fuzz_seed_text(
		"{\"nodes\": [{\"name\": \"a\", \"ranks\": 8, \"island\": 0, "
		"\"nic_gbit_s\": 100, \"latency_us\": 3}, {\"name\": \"b\", "
		"\"ranks\": 2, \"island\": 1, \"nic_gbit_s\": [10, 1]}], "
		"\"islands\": [{\"uplink_gbit_s\": 40}, {}]}");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct cluster *c = NULL;
	struct links *links = NULL;

	if (cluster_parse((const char *)data, len, "fuzz", &c) !=
	    DICOMM_SUCCESS)
		return 0;
	if (!cluster_hash(c))
		abort();
	if (c->total_ranks <= RANKS_MOST &&
	    cluster_plan(c, 0, &links) == DICOMM_SUCCESS)
		links_free(links);
	cluster_free(c);
	return 0;
}
