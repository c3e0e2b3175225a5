/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Encrypted connections (DICOMM_ENCRYPT). What is sent is cut into records,
 * each a length, which is authenticated, too, and a ciphertext with its tag. A
 * connection has a key for each direction, of the communicator's key and what
 * both ends made up for it; records are counted, so that none can be replayed,
 * left out, or put elsewhere.
 */
#ifndef DICOMM_TRANSPORTS_TCP_SEAL_H
#define DICOMM_TRANSPORTS_TCP_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#define TCP_SEAL_KEY 32

struct tcp_seal;

/* `secret` is what only the two ends know; `caller` tells them apart. NULL: no
 * memory. */
struct tcp_seal *tcp_seal_open(const uint8_t secret[TCP_SEAL_KEY], bool caller);
void tcp_seal_close(struct tcp_seal *seal);
/* As those of socket.c, by way of a descriptor. EBADMSG: it is not what the
 * other end has sent. What has ended stays so, and gives no further byte. */
ssize_t tcp_seal_send(struct tcp_seal *seal, int fd, const struct iovec *v,
		      int n);
ssize_t tcp_seal_receive(struct tcp_seal *seal, int fd, const struct iovec *v,
			 int n);
/* Does ciphertext wait for room in the kernel? What was given to
 * tcp_seal_send() has been taken, but not sent. */
bool tcp_seal_waits(const struct tcp_seal *seal);
/* Is there data that has come and was not asked for, or an end to be told? No
 * descriptor becomes readable for that. */
bool tcp_seal_holds(const struct tcp_seal *seal);

#endif
