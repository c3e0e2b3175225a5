/* SPDX-License-Identifier: BSD-3-Clause */
/* Options of TCP connections that last as long as a rank. */
#ifndef DICOMM_BASE_TCP_H
#define DICOMM_BASE_TCP_H

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <sys/socket.h>

#define TCP_SILENT_MS 30000

/* Sends small messages at once. Notices within half a minute that a host does
 * not answer any more, if there is no data for it. A host that answers but
 * accepts no data is not such a case: TCP_USER_TIMEOUT would end the connection
 * to a stopped rank. */
static inline void tcp_tune_data(int fd)
{
	int on = 1, idle_s = 10, every_s = 5, count = 4;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof(every_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

/* As tcp_tune_data(), for a connection with few and short messages, which the
 * other end always accepts. So a silent host is noticed even if there is data
 * for it. */
static inline void tcp_tune(int fd)
{
	unsigned silent_ms = TCP_SILENT_MS;

	tcp_tune_data(fd);
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent_ms,
		   sizeof(silent_ms));
}

/* Returns true if this errno of accept() means that descriptors or memory are
 * short. The listener stays readable in that case, so an immediate retry would
 * only burn CPU time. */
static inline bool tcp_is_short(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOMEM ||
	       error == ENOBUFS;
}

#endif
