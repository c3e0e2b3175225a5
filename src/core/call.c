/* SPDX-License-Identifier: BSD-3-Clause */
/* A call as data: its signature, its text, and the log of recent calls. */
#include "src/core/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/type.h"

static const char *const names[CALL_FUNCTIONS] = {
	[CALL_SEND] = "send",
	[CALL_RECV] = "recv",
	[CALL_REDUCE_LOCAL] = "reduce_local",
	[CALL_PUT_SIGNAL] = "put_signal",
	[CALL_SIGNAL] = "signal",
	[CALL_WAIT_SIGNAL] = "wait_signal",
	[CALL_GET] = "get",
	[CALL_LOCAL_WORK] = "local work",
};

const char *call_name(unsigned function)
{
	if (function < COLL_KINDS)
		return coll_name((enum coll)function);
	return function < CALL_FUNCTIONS ? names[function] : "?";
}

bool call_reduces(unsigned function)
{
	return function < COLL_KINDS ? coll_reduces((enum coll)function)
				     : function == CALL_REDUCE_LOCAL;
}

bool call_rooted(unsigned function)
{
	return function < COLL_KINDS && coll_rooted((enum coll)function);
}

void call_layout(unsigned function, int rank, int ranks, int root,
		 uint32_t *send_blocks, uint32_t *recv_blocks)
{
	if (function < COLL_KINDS) {
		coll_layout((enum coll)function, rank, ranks, root, send_blocks,
			    recv_blocks);
		return;
	}
	*send_blocks = function == CALL_SEND || function == CALL_REDUCE_LOCAL;
	*recv_blocks = function == CALL_RECV || function == CALL_REDUCE_LOCAL;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
	return h ^ (h >> 29);
}

uint32_t call_signature(const struct call *call, int ranks)
{
	uint64_t h = 0x5bd1e995;
	/* A send and the matching receive must have the same signature. */
	unsigned function =
		call->function == CALL_RECV ? CALL_SEND : call->function;

	h = mix(h, (uint64_t)function);
	h = mix(h, (uint64_t)call->type);
	h = mix(h, call->count);
	if (call_reduces(call->function))
		h = mix(h, (uint64_t)call->op >= 0x100 ? 0x100
						       : (uint64_t)call->op);
	if (call_rooted(call->function))
		h = mix(h, (uint64_t)call->root);
	for (int r = 0; call->counts && r < ranks; r++)
		h = mix(h, call->counts[r]);
	return (uint32_t)(h ^ (h >> 32));
}

static void text(unsigned function, size_t count, int type, int op, int root,
		 char *out, size_t len)
{
	int n = snprintf(out, len, "%s", call_name(function));

#define MORE(...)                                                             \
	do {                                                                  \
		if (n >= 0 && (size_t)n < len)                                \
			n += snprintf(out + n, len - (size_t)n, __VA_ARGS__); \
	} while (0)
	if (function == COLL_BARRIER || function == CALL_SIGNAL ||
	    function == CALL_WAIT_SIGNAL || function == CALL_LOCAL_WORK)
		return;
	if (coll_has_counts(function))
		MORE(" with counts for each rank");
	else
		MORE(" count %zu", count);
	MORE(" %s", type_name((dicomm_datatype_t)type));
	if (call_reduces(function))
		MORE(" %s",
		     op >= 0x100 ? "premulsum" : op_name((dicomm_redop_t)op));
	if (call_rooted(function))
		MORE(" root %d", root);
#undef MORE
}

void call_text(const struct call *call, char *out, size_t len)
{
	size_t n;

	text(call->function, call->count, (int)call->type, (int)call->op,
	     call->root, out, len);
	n = strlen(out);
	if (call->tag)
		snprintf(out + n, len - n, " tag %d", call->tag);
}

#define CREATED 31 /* any operator that is not built in */

/* The bits: function 5, type 5, op 5, root 17 (its low bits), signature 32. */
uint64_t call_log_what(const struct call *call, uint32_t signature)
{
	uint64_t op = call->op < 0x100 ? call->op : CREATED;

	return (uint64_t)call->function | (uint64_t)call->type << 5 | op << 10 |
	       ((uint64_t)(uint32_t)call->root & 0x1ffff) << 15 |
	       (uint64_t)signature << 32;
}

uint64_t call_log_count(const struct call *call, int ranks)
{
	uint32_t sum = 0, moment = 0;

	if (!call->counts)
		return call->count;
	for (int r = 0; r < ranks; r++) {
		sum += (uint32_t)call->counts[r];
		moment += (uint32_t)r * (uint32_t)call->counts[r];
	}
	return (uint64_t)moment << 32 | sum;
}

/* Reads a record. Returns false if it is not of that call, or was replaced
 * meanwhile. */
static bool read_record(const struct call_log *log, uint64_t number,
			uint64_t *what, uint64_t *count)
{
	const struct call_record *r = &log->records[call_log_slot(number)];

	if (!number ||
	    atomic_load_explicit(&r->number, memory_order_acquire) != number)
		return false;
	*what = atomic_load_explicit(&r->what, memory_order_acquire);
	*count = atomic_load_explicit(&r->count, memory_order_acquire);
	return atomic_load_explicit(&r->number, memory_order_relaxed) == number;
}

bool call_log_counts(const struct call_log *log, uint64_t number,
		     uint64_t *counts)
{
	uint64_t what;

	return read_record(log, number, &what, counts) &&
	       coll_has_counts(what & 31);
}

/* Would the signature be that one if rank r's count differed by that much? */
static bool explains(const struct call *call, int ranks, int r, int32_t more,
		     uint32_t signature)
{
	size_t *counts = malloc((size_t)ranks * sizeof(*counts));
	struct call other = *call;
	bool same;

	if (!counts)
		return false;
	memcpy(counts, call->counts, (size_t)ranks * sizeof(*counts));
	counts[r] += (size_t)more;
	other.counts = counts;
	same = call_signature(&other, ranks) == signature;
	free(counts);
	return same;
}

/* If only rank r's count differs, by d, then the sums differ by d, and those of
 * rank times count by r * d. The signature tells whether that is all. */
bool call_odd_count(const struct call *call, int ranks, uint64_t counts,
		    uint32_t signature, int *rank, size_t *count)
{
	uint64_t mine = call_log_count(call, ranks);
	uint32_t d = (uint32_t)counts - (uint32_t)mine;
	uint32_t moment = (uint32_t)(counts >> 32) - (uint32_t)(mine >> 32);

	for (int r = 0; call->counts && d && r < ranks; r++) {
		if ((uint32_t)r * d != moment ||
		    !explains(call, ranks, r, (int32_t)d, signature))
			continue;
		*rank = r;
		*count = call->counts[r] + (size_t)(int32_t)d;
		return true;
	}
	return false;
}

unsigned call_logged_function(uint64_t what)
{
	return what & 31;
}

void call_logged_text(uint64_t what, uint64_t count, char *out, size_t len)
{
	int op = what >> 10 & 31;

	text(call_logged_function(what), count, (int)(what >> 5 & 31),
	     op == CREATED ? 0x100 : op, (int)(what >> 15 & 0x1ffff), out, len);
}

uint64_t call_logged_bytes(uint64_t what, uint64_t count)
{
	unsigned function = call_logged_function(what);

	if (function == COLL_BARRIER || coll_has_counts(function))
		return 0;
	return count * type_bytes((dicomm_datatype_t)(what >> 5 & 31));
}

bool call_log_find(const struct call_log *log, uint64_t number,
		   uint32_t *signature, char *out, size_t len)
{
	uint64_t what, count;

	if (!read_record(log, number, &what, &count))
		return false;
	*signature = (uint32_t)(what >> 32);
	call_logged_text(what, count, out, len);
	return true;
}

uint64_t call_log_latest(const struct call_log *log, uint64_t *what,
			 uint64_t *count)
{
	uint64_t latest = 0, number;

	for (int i = 0; i < CALL_LOG_ENTRIES; i++) {
		number = atomic_load_explicit(&log->records[i].number,
					      memory_order_relaxed);
		if (number > latest)
			latest = number;
	}
	/* It may be replaced meanwhile, by one that is 64 calls later. */
	return read_record(log, latest, what, count) ? latest : 0;
}
