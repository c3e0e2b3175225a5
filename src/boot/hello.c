/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rank says of itself, and whether two of them can work together. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dicomm.h"
#include "src/base/config.h"
#include "src/boot/hello.h"

/* Of the public interface, as in the version script. */
#define ABI 1
/* Counted up whenever ranks of this build could not understand those of the
 * last: frames of the control plane, plans, layout of shared memory. */
#define FEATURES "control 1 plan 1 shm 2"

void (*hello_test_hook)(struct hello *h);

void hello_self(struct hello *h, int rank, int ranks)
{
	const uint32_t order = 0x01020304;
	struct wire_in native = {(const uint8_t *)&order, sizeof(order), 0, 0};

	*h = (struct hello){
		.rank = (uint32_t)rank,
		.ranks = (uint32_t)ranks,
		.abi = ABI,
		.version = DICOMM_VERSION,
		.byte_order = wire_u32(&native),
		.pointer_bytes = sizeof(void *),
		.features = FEATURES,
		.config_hash = config_shared_hash(),
		.pid = (uint32_t)getpid(),
	};
	config_shared_text(h->config, sizeof(h->config));
	if (gethostname(h->host, sizeof(h->host)) < 0)
		snprintf(h->host, sizeof(h->host), "?");
	h->host[sizeof(h->host) - 1] = '\0';
	if (hello_test_hook)
		hello_test_hook(h);
}

void hello_put(struct wire_out *out, const struct hello *h)
{
	wire_put_u32(out, h->rank);
	wire_put_u32(out, h->ranks);
	wire_put_u32(out, h->abi);
	wire_put_u32(out, h->version);
	wire_put_u32(out, h->byte_order);
	wire_put_u32(out, h->pointer_bytes);
	wire_put_text(out, h->features);
	wire_put_u64(out, h->config_hash);
	wire_put_text(out, h->config);
	wire_put_u32(out, h->pid);
	wire_put_text(out, h->host);
}

void hello_get(struct wire_in *in, struct hello *h)
{
	h->rank = wire_u32(in);
	h->ranks = wire_u32(in);
	h->abi = wire_u32(in);
	h->version = wire_u32(in);
	h->byte_order = wire_u32(in);
	h->pointer_bytes = wire_u32(in);
	wire_text(in, h->features, sizeof(h->features));
	h->config_hash = wire_u64(in);
	wire_text(in, h->config, sizeof(h->config));
	h->pid = wire_u32(in);
	wire_text(in, h->host, sizeof(h->host));
}

void hello_where(const struct hello *h, char text[HELLO_WHERE])
{
	snprintf(text, HELLO_WHERE, "%s pid %" PRIu32, h->host, h->pid);
}

/* Is this word of a text, up to a space, also a word of that one? */
static bool has_word(const char *text, const char *word, size_t len)
{
	for (; *text; text += strcspn(text, " "), text += strspn(text, " "))
		if (strcspn(text, " ") == len && !memcmp(text, word, len))
			return true;
	return false;
}

/* The settings of a that b has otherwise. */
static void only_in(const char *a, const char *b, char *text, size_t len)
{
	size_t n = 0, word;

	snprintf(text, len, "defaults");
	for (; *a; a += word, a += strspn(a, " ")) {
		word = strcspn(a, " ");
		if (!has_word(b, a, word) && n < len)
			n += (size_t)snprintf(text + n, len - n, "%s%.*s",
					      n ? " " : "", (int)word, a);
	}
}

static bool differ(const struct hello *a, const struct hello *b,
		   const char *what, const char *va, const char *vb, char *why,
		   size_t len)
{
	char wa[HELLO_WHERE], wb[HELLO_WHERE];

	hello_where(a, wa);
	hello_where(b, wb);
	snprintf(why, len,
		 "%s differs: rank %" PRIu32 " (%s) has %s, rank %" PRIu32
		 " (%s) has %s",
		 what, a->rank, wa, va, b->rank, wb, vb);
	return false;
}

static bool differ_number(const struct hello *a, const struct hello *b,
			  const char *what, uint32_t na, uint32_t nb, char *why,
			  size_t len)
{
	char va[16], vb[16];

	snprintf(va, sizeof(va), "%" PRIu32, na);
	snprintf(vb, sizeof(vb), "%" PRIu32, nb);
	return differ(a, b, what, va, vb, why, len);
}

static bool differ_version(const struct hello *a, const struct hello *b,
			   char *why, size_t len)
{
	const uint32_t n[2] = {a->version, b->version};
	char v[2][40];

	for (int i = 0; i < 2; i++)
		snprintf(v[i], sizeof(v[i]), "%" PRIu32 ".%" PRIu32 ".%" PRIu32,
			 n[i] / 10000, n[i] / 100 % 100, n[i] % 100);
	return differ(a, b, "library version", v[0], v[1], why, len);
}

static bool differ_config(const struct hello *a, const struct hello *b,
			  char *why, size_t len)
{
	char va[256], vb[256];

	only_in(a->config, b->config, va, sizeof(va));
	only_in(b->config, a->config, vb, sizeof(vb));
	return differ(a, b, "setting", va, vb, why, len);
}

static const char *order_name(uint32_t order)
{
	return order == 0x01020304 ? "little" : "big";
}

bool hello_agrees(const struct hello *a, const struct hello *b, char *why,
		  size_t len)
{
	if (a->abi != b->abi)
		return differ_number(a, b, "ABI version", a->abi, b->abi, why,
				     len);
	if (a->version != b->version)
		return differ_version(a, b, why, len);
	if (strcmp(a->features, b->features))
		return differ(a, b, "build", a->features, b->features, why,
			      len);
	if (a->byte_order != b->byte_order)
		return differ(a, b, "byte order", order_name(a->byte_order),
			      order_name(b->byte_order), why, len);
	if (a->pointer_bytes != b->pointer_bytes)
		return differ_number(a, b, "pointer size", a->pointer_bytes,
				     b->pointer_bytes, why, len);
	if (a->ranks != b->ranks)
		return differ_number(a, b, "number of ranks", a->ranks,
				     b->ranks, why, len);
	if (a->config_hash != b->config_hash)
		return differ_config(a, b, why, len);
	return true;
}
