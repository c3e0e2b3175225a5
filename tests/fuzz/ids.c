/* SPDX-License-Identifier: BSD-3-Clause */
/* Unique ids, host:port (DICOMM_COMM_ID), host lists of Slurm. */
#include <stdlib.h>
#include <string.h>

#include "src/boot/control/id.h"
#include "src/boot/store/slurm.h"
#include "tests/fuzz/fuzz.h"

void fuzz_seeds(void)
{
	static const uint8_t key[AUTH_KEY] = "secret";
	dicomm_unique_id_t id;

	if (id_format("[fe80::1%eth0]:5000", key, &id) != DICOMM_SUCCESS)
		abort();
	fuzz_seed(&id, sizeof(id));
	fuzz_seed_text("10.0.0.1:5000");
	fuzz_seed_text("localhost:65535");
	fuzz_seed_text("node[07-12,20],login");
}

/* What was read can be written, and reads the same. */
static void read_id(const dicomm_unique_id_t *id)
{
	char address[SOCK_NAME], again[SOCK_NAME];
	uint8_t key[AUTH_KEY], key_again[AUTH_KEY];
	dicomm_unique_id_t copy;
	const char *why = NULL;

	if (!id_read(id, address, key, &why)) {
		if (!why)
			abort();
		return;
	}
	if (id_format(address, key, &copy) != DICOMM_SUCCESS ||
	    !id_read(&copy, again, key_again, &why) || strcmp(address, again) ||
	    memcmp(key, key_again, sizeof(key)))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	dicomm_unique_id_t *id = calloc(1, sizeof(*id));
	char *text = fuzz_text(data, len), *host = malloc(64);

	if (!id || !host)
		abort();
	memcpy(id, data, len < sizeof(*id) ? len : sizeof(*id));
	read_id(id);
	(void)sock_is_host_port(text);
	(void)sock_check(text);
	if (slurm_first_host(text, host, 64) && !memchr(host, '\0', 64))
		abort();
	free(host);
	free(text);
	free(id);
	return 0;
}
