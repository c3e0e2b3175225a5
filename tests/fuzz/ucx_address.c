/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses of ranks over UCX, with the right proof or without, as the first
 * byte says. */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "transports/ucx/address.h"

static struct tp_device device = {
	.base = {.ops = &ucx_ops, .config = {.rank = 0, .ranks = 4}},
	.worker_address_len = 40};

void fuzz_seeds(void)
{
	struct tp_blob blob;
	uint8_t bytes[1 + sizeof(blob.data)] = {1};

	ucx_address_make(&device, &blob);
	memcpy(bytes + 1, blob.data, blob.len);
	fuzz_seed(bytes, blob.len + 1);
}

/* As the sender does: of all bytes, with 0 in the place of the proof. */
static void prove(struct tp_blob *blob)
{
	uint8_t *proof = blob->data + offsetof(struct ucx_address, base.proof);

	if (blob->len < offsetof(struct ucx_address, worker))
		return;
	memset(proof, 0, sizeof(((struct ucx_address *)0)->base.proof));
	crypto_generichash(proof, sizeof(((struct ucx_address *)0)->base.proof),
			   blob->data, blob->len, device.base.config.key,
			   sizeof(device.base.config.key));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static struct tp_blob blob;
	struct ucx_address a;
	char why[256] = "";

	if (!len || len - 1 > sizeof(blob.data))
		return 0;
	memset(&blob, 0, sizeof(blob));
	blob.len = (uint32_t)len - 1;
	memcpy(blob.data, data + 1, len - 1);
	if (data[0] & 1)
		prove(&blob);
	if (ucx_address_parse(&device, &blob, &a, why, sizeof(why)) &&
	    (!memchr(a.interface, '\0', sizeof(a.interface)) ||
	     a.worker_len > sizeof(a.worker)))
		abort();
	if (!memchr(why, '\0', sizeof(why)))
		abort();
	return 0;
}
