/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/links/agree.h"

#include "src/base/log.h"
#include "src/core/operation.h"
#include "src/core/paths.h"

#define SIGNATURE UINT32_C(0x61677265)

void agree_begin(struct agree *a, const struct operation *before,
		 uint32_t *word, uint32_t words)
{
	a->messages = (struct internal_messages){
		.comm = before->comm,
		.before = before,
		.signature = before->signature ^ SIGNATURE};
	a->word = word;
	a->words = words;
	a->distance = 1;
	a->sent = a->taken = false;
}

static int rank_to(const struct agree *a)
{
	const struct dicomm_comm *comm = a->messages.comm;

	return (comm->rank + a->distance) % comm->ranks;
}

static int rank_from(const struct agree *a)
{
	const struct dicomm_comm *comm = a->messages.comm;

	return (comm->rank + comm->ranks - a->distance) % comm->ranks;
}

int agree_awaits(const struct agree *a)
{
	return a->taken ? rank_to(a) : rank_from(a);
}

dicomm_result_t agree_turn(struct agree *a, bool *moved)
{
	size_t bytes = a->words * sizeof(*a->word);

	for (; a->distance < a->messages.comm->ranks; a->distance *= 2) {
		if (!a->sent)
			TRY(internal_put(&a->messages, rank_to(a), a->word,
					 bytes));
		*moved |= !a->sent;
		a->sent = true;
		if (!a->taken) {
			TRY(internal_take(&a->messages, rank_from(a), a->theirs,
					  &bytes));
			comm_flush(a->messages.comm);
			*moved = true;
		}
		a->taken = true;
		/* The transport may send the message from here, so wait until
		 * the receiver has taken it. */
		if (internal_under_way(&a->messages, rank_to(a)))
			return DICOMM_AGAIN;
		for (uint32_t i = 0; i < a->words; i++)
			if (a->theirs[i] < a->word[i])
				a->word[i] = a->theirs[i];
		a->sent = a->taken = false;
	}
	return DICOMM_SUCCESS;
}
