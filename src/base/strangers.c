/* SPDX-License-Identifier: BSD-3-Clause */
#include "src/base/strangers.h"

void strangers_add(struct strangers *all, struct stranger *s, void *conn)
{
	if (!all->first)
		all->last = &all->first;
	s->conn = conn;
	s->next = NULL;
	s->link = all->last;
	*all->last = s;
	all->last = &s->next;
	all->count++;
}

void strangers_remove(struct strangers *all, struct stranger *s)
{
	if (!s->link)
		return;
	*s->link = s->next;
	if (s->next)
		s->next->link = s->link;
	else
		all->last = s->link;
	s->link = NULL;
	all->count--;
}

void *strangers_oldest(const struct strangers *all)
{
	return all->first ? all->first->conn : NULL;
}

void *strangers_surplus(const struct strangers *all, unsigned ranks)
{
	return all->count > STRANGERS_MOST + ranks ? strangers_oldest(all)
						   : NULL;
}
