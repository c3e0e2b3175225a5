/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rank says about itself, and whether two ranks can work together. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dicomm.h"
#include "src/base/config.h"
#include "src/boot/control/rank_info.h"

/* The version of the public interface, as in the version script. */
#define ABI 1
/* Increment a number when a change makes this build incompatible with the last
 * one: in the frames of the control plane, in plans, in the layout of shared
 * memory, or in messages to windows. */
#define FEATURES "control 8 plan 1 shm 3 window 2"

void (*rank_info_test_hook)(struct rank_info *info);

void rank_info_self(struct rank_info *info, int rank, int ranks)
{
	const uint32_t order = 0x01020304;
	struct frame_reader native = {(const uint8_t *)&order, sizeof(order), 0,
				      0};

	*info = (struct rank_info){
		.rank = (uint32_t)rank,
		.ranks = (uint32_t)ranks,
		.abi = ABI,
		.version = DICOMM_VERSION,
		.byte_order = frame_get_u32(&native),
		.pointer_bytes = sizeof(void *),
		.features = FEATURES,
		.config_hash = config_shared_hash(),
		.pid = (uint32_t)getpid(),
	};
	config_shared_text(info->config, sizeof(info->config));
	if (gethostname(info->host, sizeof(info->host)) < 0)
		snprintf(info->host, sizeof(info->host), "?");
	info->host[sizeof(info->host) - 1] = '\0';
	if (rank_info_test_hook)
		rank_info_test_hook(info);
}

void rank_info_put(struct frame_writer *out, const struct rank_info *info)
{
	frame_put_u32(out, info->rank);
	frame_put_u32(out, info->ranks);
	frame_put_u64(out, info->node);
	frame_put_u32(out, info->abi);
	frame_put_u32(out, info->version);
	frame_put_u32(out, info->byte_order);
	frame_put_u32(out, info->pointer_bytes);
	frame_put_text(out, info->features);
	frame_put_u64(out, info->config_hash);
	frame_put_text(out, info->config);
	frame_put_u32(out, info->pid);
	frame_put_text(out, info->host);
}

void rank_info_get(struct frame_reader *in, struct rank_info *info)
{
	info->rank = frame_get_u32(in);
	info->ranks = frame_get_u32(in);
	info->node = frame_get_u64(in);
	info->abi = frame_get_u32(in);
	info->version = frame_get_u32(in);
	info->byte_order = frame_get_u32(in);
	info->pointer_bytes = frame_get_u32(in);
	frame_get_text(in, info->features, sizeof(info->features));
	info->config_hash = frame_get_u64(in);
	frame_get_text(in, info->config, sizeof(info->config));
	info->pid = frame_get_u32(in);
	frame_get_text(in, info->host, sizeof(info->host));
}

void rank_info_where(const struct rank_info *info, char text[RANK_INFO_WHERE])
{
	snprintf(text, RANK_INFO_WHERE, "%s pid %" PRIu32, info->host,
		 info->pid);
}

void rank_info_make_printable(char text[RANK_INFO_WHERE])
{
	text[RANK_INFO_WHERE - 1] = '\0';
	for (; *text; text++)
		if (*text < ' ' || *text > '~')
			*text = '?';
}

/* Returns true if the text contains this word of len characters, delimited by
 * spaces. */
static bool has_word(const char *text, const char *word, size_t len)
{
	for (; *text; text += strcspn(text, " "), text += strspn(text, " "))
		if (strcspn(text, " ") == len && !memcmp(text, word, len))
			return true;
	return false;
}

/* Writes the settings of a that b does not have. */
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

static bool differ(const struct rank_info *a, const struct rank_info *b,
		   const char *what, const char *va, const char *vb, char *why,
		   size_t len)
{
	char wa[RANK_INFO_WHERE], wb[RANK_INFO_WHERE];

	rank_info_where(a, wa);
	rank_info_where(b, wb);
	snprintf(why, len,
		 "%s differs: rank %" PRIu32 " (%s) has %s, rank %" PRIu32
		 " (%s) has %s",
		 what, a->rank, wa, va, b->rank, wb, vb);
	return false;
}

static bool differ_number(const struct rank_info *a, const struct rank_info *b,
			  const char *what, uint32_t na, uint32_t nb, char *why,
			  size_t len)
{
	char va[16], vb[16];

	snprintf(va, sizeof(va), "%" PRIu32, na);
	snprintf(vb, sizeof(vb), "%" PRIu32, nb);
	return differ(a, b, what, va, vb, why, len);
}

static bool differ_version(const struct rank_info *a, const struct rank_info *b,
			   char *why, size_t len)
{
	const uint32_t n[2] = {a->version, b->version};
	char v[2][40];

	for (int i = 0; i < 2; i++)
		snprintf(v[i], sizeof(v[i]), "%" PRIu32 ".%" PRIu32 ".%" PRIu32,
			 n[i] / 10000, n[i] / 100 % 100, n[i] % 100);
	return differ(a, b, "library version", v[0], v[1], why, len);
}

static bool differ_config(const struct rank_info *a, const struct rank_info *b,
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

bool rank_info_agrees(const struct rank_info *a, const struct rank_info *b,
		      char *why, size_t len)
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
