/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections by TCP, for as long as a rank lives. */
#ifndef DICOMM_BASE_TCP_H
#define DICOMM_BASE_TCP_H

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <sys/socket.h>

#define TCP_SILENT_MS 30000

/* Send small messages at once, and notice within half a minute a host that fell
 * silent while there is no data for it. A host that takes no more, but answers,
 * is not one: TCP_USER_TIMEOUT would end the connection to a stopped rank. */
static inline void tcp_tune_data(int fd)
{
	int on = 1, idle_s = 10, every_s = 5, count = 4;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof(every_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

/* The same for one that carries few and short words, which are always taken: be
 * there data for it or not. */
static inline void tcp_tune(int fd)
{
	unsigned silent_ms = TCP_SILENT_MS;

	tcp_tune_data(fd);
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent_ms,
		   sizeof(silent_ms));
}

/* Is this errno of accept() want of descriptors or memory? The listener stays
 * ready then, and trying again at once would only burn the core. */
static inline bool tcp_is_short(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOMEM ||
	       error == ENOBUFS;
}

#endif
