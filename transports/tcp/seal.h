/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sealed connections (DICOMM_ENCRYPT). The stream is cut into records. A record
 * has a length, the data, and a tag that authenticates both and the number of
 * the record. So no record can be changed, replayed, left out or moved. The
 * data is either encrypted (ChaCha20-Poly1305), or sent in clear with a tag of
 * NH and Poly1305, at the speed of memory. A connection has a key for each
 * direction.
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

/* Makes the seal of a connection. Only the two ends know `secret`; `caller` is
 * true on the end that has connected. NULL: no memory. */
struct tcp_seal *tcp_seal_open(const uint8_t secret[TCP_SEAL_KEY], bool caller);
struct tcp_seal *tcp_seal_open_signed(const uint8_t secret[TCP_SEAL_KEY],
				      bool caller);
void tcp_seal_close(struct tcp_seal *seal);
/* As those of socket.c, for a descriptor. EBADMSG: the bytes are not those that
 * the other end has sent. After an end or an error, no further bytes are
 * returned. If there are two places to receive into, the first may be written
 * before its bytes are returned; the next call then has to pass the same
 * address again. */
ssize_t tcp_seal_send(struct tcp_seal *seal, int fd, const struct iovec *v,
		      int n);
ssize_t tcp_seal_receive(struct tcp_seal *seal, int fd, const struct iovec *v,
			 int n);
/* Returns true if ciphertext of bytes that tcp_seal_send() has accepted waits
 * for room in the kernel. */
bool tcp_seal_waits(const struct tcp_seal *seal);
/* Returns true if data, or the end of the connection, may have been read from
 * the kernel and not been returned yet. The descriptor does not become readable
 * for these. */
bool tcp_seal_holds(const struct tcp_seal *seal);

#endif
