/* SPDX-License-Identifier: BSD-3-Clause */
/* References to memory of a sender, and reads of that memory: the receiver asks
 * for a part, and the sender sends it in pieces. */
#include <sodium.h>
#include <string.h>

#include "src/base/log.h"
#include "transports/framed/framed.h"

uint64_t framed_read_seal(const struct framed *f, const void *ref, size_t len)
{
	uint64_t hash;

	_Static_assert(crypto_shorthash_BYTES == sizeof(hash) &&
			       crypto_shorthash_KEYBYTES == sizeof(f->seal_key),
		       "sizes");
	crypto_shorthash((uint8_t *)&hash, ref, len, f->seal_key);
	return hash;
}

/* ---- pieces that arrive ---- */

static bool is_active(const struct framed_read *read)
{
	return atomic_load_explicit(&read->status, memory_order_relaxed) ==
	       DICOMM_IN_PROGRESS;
}

struct framed_read *framed_read_find(struct framed *f, uint32_t rank,
				     uint32_t c, uint64_t seq, uint32_t number)
{
	struct framed_in *in = framed_in_of(f, rank, c);
	struct framed_read *read = in ? &in->reads[seq % FRAMED_READS] : NULL;

	return read && read->number == number && is_active(read) ? read : NULL;
}

uint8_t *framed_read_claim(struct framed_read *read, uint64_t offset,
			   uint64_t len)
{
	if (offset > read->len || len > read->len - offset ||
	    len > read->unclaimed)
		return NULL;
	read->unclaimed -= len;
	return read->dst + offset;
}

void framed_read_advance(struct framed_read *read, uint64_t len)
{
	read->missing -= len;
	if (!read->missing)
		atomic_store_explicit(&read->status, DICOMM_SUCCESS,
				      memory_order_release);
}

void framed_read_fail(struct framed_read *read)
{
	atomic_store_explicit(&read->status, DICOMM_ERR_REMOTE,
			      memory_order_release);
}

/* ---- operations ---- */

static uint64_t address_in(const struct tp_ref *ref)
{
	uint64_t addr;

	memcpy(&addr, ref, sizeof(addr));
	return addr;
}

dicomm_result_t framed_read_map(struct tp_peer *peer, const struct tp_ref *ref,
				uint64_t len, const void **ptr)
{
	(void)len;
	if (!framed_is_self(peer))
		return DICOMM_ERR_UNSUPPORTED;
	*ptr = (const void *)(uintptr_t)address_in(ref);
	return DICOMM_SUCCESS;
}

/* Lock held. */
static dicomm_result_t request(struct framed_in *in, uint64_t seq,
			       const struct tp_ref *ref, uint64_t offset,
			       void *dst, uint64_t len)
{
	struct framed *f = in->framed;
	struct framed_read *read = &in->reads[seq % FRAMED_READS];

	if (framed_is_aborted(f))
		return DICOMM_ERR_ABORTED;
	TRY(framed_link_status(framed_link_of(f, in->rank)));
	if (is_active(read))
		return DICOMM_AGAIN;
	read->dst = dst;
	read->len = read->unclaimed = read->missing = len;
	TRY(f->ops->send_read(in, seq, read, f->reads + 1, ref, offset));
	read->number = ++f->reads;
	atomic_store_explicit(&read->status, DICOMM_IN_PROGRESS,
			      memory_order_relaxed);
	in->urgent = true;
	return DICOMM_IN_PROGRESS;
}

dicomm_result_t framed_read_begin(struct tp_peer *peer, enum tp_class c,
				  uint64_t seq, const struct tp_ref *ref,
				  uint64_t offset, void *dst, uint64_t len)
{
	struct framed *f = framed_of(peer->dev);
	struct framed_in *in = peer->in[c];
	dicomm_result_t status;

	if (framed_is_aborted(f))
		return DICOMM_ERR_ABORTED;
	if (!in)
		return FAIL(DICOMM_ERR_INTERNAL,
			    "%s: read from rank %d before connect_in",
			    f->ops->name, peer->rank);
	if (framed_is_self(peer)) {
		memcpy(dst,
		       (const uint8_t *)(uintptr_t)address_in(ref) + offset,
		       len);
		atomic_store(&in->reads[seq % FRAMED_READS].status,
			     DICOMM_SUCCESS);
		return DICOMM_SUCCESS;
	}
	if (!framed_try_lock(f))
		return DICOMM_AGAIN;
	status = request(in, seq, ref, offset, dst, len);
	framed_unlock(f);
	return status;
}

dicomm_result_t framed_read_status(struct tp_peer *peer, enum tp_class c,
				   uint64_t seq)
{
	struct framed *f = framed_of(peer->dev);
	struct framed_in *in = peer->in[c];
	dicomm_result_t status = (dicomm_result_t)atomic_load_explicit(
		&in->reads[seq % FRAMED_READS].status, memory_order_acquire);

	if (status == DICOMM_SUCCESS)
		return status;
	if (framed_is_aborted(f))
		return DICOMM_ERR_ABORTED;
	if (atomic_load(&framed_link_of(f, in->rank)->status)) {
		framed_lock(f);
		status = framed_link_status(framed_link_of(f, in->rank));
		framed_unlock(f);
	} else if (status != DICOMM_IN_PROGRESS) {
		return FAIL(status,
			    "%s: rank %d did not send what it had offered",
			    f->ops->name, peer->rank);
	}
	return status;
}
