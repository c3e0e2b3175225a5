/* SPDX-License-Identifier: BSD-3-Clause */
/* Letters between ranks that are not read yet. */
#include "src/boot/control/mail.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"

struct letter *mail_take(struct mail *m, int from, uint64_t key)
{
	for (struct letter **link = &m->first; *link; link = &(*link)->next) {
		struct letter *l = *link;

		if ((from >= 0 && l->from != from) || l->key != key)
			continue;
		*link = l->next;
		return l;
	}
	return NULL;
}

bool mail_put(struct mail *m, int from, uint64_t key, const uint8_t *data,
	      size_t len)
{
	struct letter *l;

	free(mail_take(m, from, key));
	if (!len)
		return true;
	l = malloc(sizeof(*l) + len);
	if (!l)
		return false;
	l->from = from;
	l->key = key;
	l->arrived_ns = clock_ns();
	l->len = len;
	memcpy(l->data, data, len);
	l->next = m->first;
	m->first = l;
	return true;
}

void mail_fini(struct mail *m)
{
	while (m->first) {
		struct letter *l = m->first;

		m->first = l->next;
		free(l);
	}
}
