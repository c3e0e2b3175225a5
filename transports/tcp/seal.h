/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sealed connections (DICOMM_ENCRYPT). What is sent is cut into records, each a
 * length, the data, and a tag that authenticates both and the number of the
 * record; so none can be changed, replayed, left out, or put elsewhere. The
 * data is encrypted (ChaCha20-Poly1305), or signed and in clear (NH and
 * Poly1305), at the speed of memory. A connection has a key for each direction.
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

/* Encrypted; signed. `secret` is what only the two ends know; `caller` tells
 * them apart. NULL: no memory. */
struct tcp_seal *tcp_seal_open(const uint8_t secret[TCP_SEAL_KEY], bool caller);
struct tcp_seal *tcp_seal_open_signed(const uint8_t secret[TCP_SEAL_KEY],
				      bool caller);
void tcp_seal_close(struct tcp_seal *seal);
/* As those of socket.c, by way of a descriptor. EBADMSG: it is not what the
 * other end has sent. What has ended stays so, and gives no further byte. If
 * there are two places to receive at, the first may be written before its bytes
 * count; what has not counted is to be asked for at the same address again. */
ssize_t tcp_seal_send(struct tcp_seal *seal, int fd, const struct iovec *v,
		      int n);
ssize_t tcp_seal_receive(struct tcp_seal *seal, int fd, const struct iovec *v,
			 int n);
/* Does ciphertext wait for room in the kernel? What was given to
 * tcp_seal_send() has been taken, but not sent. */
bool tcp_seal_waits(const struct tcp_seal *seal);
/* May there be data that has come and was not asked for, or an end to be told?
 * No descriptor becomes readable for that. */
bool tcp_seal_holds(const struct tcp_seal *seal);

#endif
