/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ncclConfig_t grows at its end, by fields that a program of an older version
 * has not got; and since the end is padded, its size does not always tell
 * (2.18 to 2.25, and 2.26, have 48 bytes): a field is there if the version of
 * the program has it and the size reaches behind it.
 */
#include "compat/nccl/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SINCE(field, version)                                                  \
	{                                                                      \
#field, offsetof(ncclConfig_t, field),                         \
			sizeof(((ncclConfig_t *)NULL)->field), version, NO, NO \
	}
#define NUMBER(field, version, min, max)                                     \
	{                                                                    \
#field, offsetof(ncclConfig_t, field), sizeof(int), version, \
			min, max                                             \
	}
#define NO NCCL_CONFIG_UNDEF_INT
#define ANY 0x7fffffff

/* Numbers are as NCCL admits them. All but blocking are hints about resources
 * that libdicomm has not got, or has by its own measure. */
static const struct field {
	const char *name;
	size_t at, bytes;
	unsigned version;
	int min, max; /* NO: not looked at */
} fields[] = {
	NUMBER(blocking, 21400, 0, 1),
	NUMBER(cgaClusterSize, 21700, 0, ANY),
	NUMBER(minCTAs, 21700, 1, ANY),
	NUMBER(maxCTAs, 21700, 1, ANY),
	SINCE(netName, 21700),
	NUMBER(splitShare, 21800, 0, 1),
	SINCE(trafficClass, 22600),
	SINCE(commName, 22700),
	NUMBER(collnetEnable, 22700, 0, 1),
	NUMBER(CTAPolicy, 22700, 0, 3),
	NUMBER(shrinkShare, 22700, 0, 1),
	NUMBER(nvlsCTAs, 22700, 1, ANY),
	NUMBER(nChannelsPerNetPeer, 22800, 1, 64),
	NUMBER(nvlinkCentricSched, 22800, 0, 1),
	NUMBER(graphUsageMode, 22900, 0, 2),
	NUMBER(numRmaCtx, 22900, 0, ANY),
	NUMBER(maxP2pPeers, 23000, 1, ANY),
	NUMBER(graphStreamOrdering, 23000, 0, 1),
	SINCE(launchOrderImplicit, 23100),
	SINCE(numRmaSig, 23100),
	SINCE(rmaEagerInit, 23100),
	SINCE(hostCftMode, 23200),
	SINCE(nvlsHostMode, 23200),
};

/* What every version has. */
struct head {
	size_t size;
	unsigned int magic;
	unsigned int version;
};

static bool has(const struct head *head, const struct field *f)
{
	return head->version >= f->version && head->size >= f->at + f->bytes;
}

static ncclResult_t check_head(const char *f, const char *what,
			       const char *initializer, const struct head *head,
			       size_t least)
{
	if (head->magic != NCCL_API_MAGIC)
		return nccl_refuse(ncclInvalidArgument,
				   "%s: %s: magic 0x%x, not 0x%x: it was not "
				   "initialised by %s",
				   f, what, head->magic, NCCL_API_MAGIC,
				   initializer);
	if (head->size < least || head->size > 65536)
		return nccl_refuse(ncclInvalidArgument,
				   "%s: %s: size %zu: that of no version of "
				   "NCCL",
				   f, what, head->size);
	if (head->version < 20000 || head->version > 99999)
		return nccl_refuse(ncclInvalidArgument,
				   "%s: %s: version %u: none of NCCL", f, what,
				   head->version);
	return ncclSuccess;
}

static int number(const void *config, const struct field *f)
{
	int value;

	memcpy(&value, (const char *)config + f->at, sizeof(value));
	return value;
}

static ncclResult_t check_numbers(const char *f, const void *config)
{
	const struct head *head = config;
	int least = NO, most = NO;

	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
		const struct field *field = &fields[i];
		int value;

		if (field->min == NO || !has(head, field))
			continue;
		value = number(config, field);
		if (value == NO)
			continue;
		if (value < field->min || value > field->max)
			return nccl_refuse(ncclInvalidArgument,
					   "%s: config.%s %d: not in %d .. %d",
					   f, field->name, value, field->min,
					   field->max);
		if (field->at == offsetof(ncclConfig_t, minCTAs))
			least = value;
		if (field->at == offsetof(ncclConfig_t, maxCTAs))
			most = value;
	}
	if (least != NO && most != NO && least > most)
		return nccl_refuse(ncclInvalidArgument,
				   "%s: config.minCTAs %d is above "
				   "config.maxCTAs %d",
				   f, least, most);
	return ncclSuccess;
}

static const struct field *find(size_t at)
{
	const struct field *f = fields;

	while (f->at != at)
		f++;
	return f;
}

/* As NCCL has it, the environment goes before the program. */
static void read_blocking(struct nccl_options *options)
{
	const char *text = getenv("NCCL_COMM_BLOCKING");

	if (text && !strcmp(text, "0"))
		options->blocking = false;
	if (text && !strcmp(text, "1"))
		options->blocking = true;
}

ncclResult_t nccl_config_read(const char *f, const void *config,
			      struct nccl_options *options)
{
	const struct head *head = config;
	ncclResult_t result;
	const char *name;
	int blocking;

	memset(options, 0, sizeof(*options));
	options->blocking = true;
	read_blocking(options);
	if (!config)
		return ncclSuccess;
	options->given = true;
	result = check_head(f, "config", "NCCL_CONFIG_INITIALIZER", head, 24);
	if (result == ncclSuccess)
		result = check_numbers(f, config);
	if (result != ncclSuccess)
		return result;
	blocking = number(config, find(offsetof(ncclConfig_t, blocking)));
	if (blocking != NO)
		options->blocking = blocking != 0;
	read_blocking(options);
	if (!has(head, find(offsetof(ncclConfig_t, commName))))
		return ncclSuccess;
	memcpy(&name, (const char *)config + offsetof(ncclConfig_t, commName),
	       sizeof(name));
	if (name)
		snprintf(options->name, sizeof(options->name), "%s", name);
	return ncclSuccess;
}

ncclResult_t nccl_config_check_call(const char *f, const void *config)
{
	const ncclCollConfig_t *c = config;
	ncclResult_t result;

	if (!c)
		return ncclSuccess;
	result = check_head(f, "config", "NCCL_COLLCONFIG_INITIALIZER", config,
			    offsetof(ncclCollConfig_t, launchCompletionEvent));
	if (result != ncclSuccess)
		return result;
	if (c->algSelection && *c->algSelection && c->forceAlgSelection)
		return nccl_refuse(
			ncclInvalidUsage,
			"%s: config.algSelection %.64s: algorithms of NCCL "
			"cannot be chosen here; DICOMM_ALGO chooses among "
			"libdicomm's",
			f, c->algSelection);
	if (c->size >= sizeof(*c) && c->version >= 23200 &&
	    c->launchCompletionEvent)
		return nccl_refuse(
			ncclInvalidUsage,
			"%s: config.launchCompletionEvent: libdicomm launches "
			"no kernel whose launch an event could tell",
			f);
	return ncclSuccess;
}
