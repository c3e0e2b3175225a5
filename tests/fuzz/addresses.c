/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Addresses of ranks, which the others of a communicator send: shm, tcp, ucx.
 * The first byte says of which, and whether their proofs, which the fuzzer
 * cannot make, are to be right.
 */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "transports/shm/address.h"
#include "transports/tcp/tcp.h"

#define PROVEN 0x80
enum { SHM, TCP, KINDS };

static struct shm_host host;
static struct tp_device device = {
	.base = {.ops = &tcp_ops, .config = {.rank = 0, .ranks = 4}}};

void fuzz_seeds(void)
{
	struct shm_address shm = {.rank = 1, .ranks = 4, .pid = 1, .fd = 3};
	struct tp_device tcp = device;
	struct tp_blob blob;
	uint8_t bytes[1 + sizeof(blob.data)];

	shm_host_find(&host);
	shm_address_pack(&shm, &host, &blob);
	bytes[0] = SHM;
	memcpy(bytes + 1, blob.data, blob.len);
	fuzz_seed(bytes, blob.len + 1);
	strcpy(tcp.listen, "127.0.0.1:5000");
	tcp_address_make(&tcp, &blob);
	bytes[0] = TCP | PROVEN;
	memcpy(bytes + 1, blob.data, blob.len);
	fuzz_seed(bytes, blob.len + 1);
}

static void prove_tcp(struct tp_blob *blob)
{
	struct tcp_address a;

	if (blob->len != sizeof(a))
		return;
	memcpy(&a, blob->data, sizeof(a));
	memset(a.base.proof, 0, sizeof(a.base.proof));
	crypto_generichash(a.base.proof, sizeof(a.base.proof),
			   (const uint8_t *)&a, sizeof(a),
			   device.base.config.key, TCP_KEY);
	memcpy(blob->data, &a, sizeof(a));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static struct tp_blob blob;
	struct shm_address shm;
	struct tcp_address tcp;
	char why[256] = "";

	if (!len || len - 1 > sizeof(blob.data))
		return 0;
	memset(&blob, 0, sizeof(blob));
	blob.len = (uint32_t)len - 1;
	memcpy(blob.data, data + 1, len - 1);
	switch ((data[0] & ~PROVEN) % KINDS) {
	case SHM:
		if (shm_address_parse(&blob, &shm, why, sizeof(why)))
			(void)shm_address_is_local(&shm, &host, why,
						   sizeof(why));
		break;
	case TCP:
		if (data[0] & PROVEN)
			prove_tcp(&blob);
		if (tcp_address_parse(&device, &blob, &tcp, why, sizeof(why)) &&
		    !memchr(tcp.listen, '\0', sizeof(tcp.listen)))
			abort();
		break;
	}
	if (!memchr(why, '\0', sizeof(why)))
		abort();
	return 0;
}
