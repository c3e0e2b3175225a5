/* SPDX-License-Identifier: BSD-3-Clause */
#include "transports/tcp/seal.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define RECORD_BYTES (16u << 10) /* of data: fits the first level of caches */
#define HEAD_BYTES 4             /* how many bytes of data */
#define TAG_BYTES crypto_aead_chacha20poly1305_ietf_ABYTES
#define NONCE_BYTES crypto_aead_chacha20poly1305_ietf_NPUBBYTES

_Static_assert(crypto_aead_chacha20poly1305_ietf_KEYBYTES == TCP_SEAL_KEY,
	       "size of a key");

struct way {
	uint8_t key[TCP_SEAL_KEY];
	uint64_t records; /* so far */
};

struct tcp_seal {
	struct way out, in;
	/* A record that is partly sent. */
	uint8_t sent[HEAD_BYTES + RECORD_BYTES + TAG_BYTES];
	size_t sent_begin, sent_end;
	/* One that is partly there. */
	uint8_t got[HEAD_BYTES + RECORD_BYTES + TAG_BYTES];
	size_t got_end;
	/* Its data, as far as nobody has taken it yet. */
	uint8_t plain[RECORD_BYTES];
	size_t plain_begin, plain_end;
	/* The other end's stream is over, with this errno. That stays: after a
	 * record that is not the next one nothing can be believed. */
	bool over;
	int why;
};

static void derive(struct way *way, const uint8_t secret[TCP_SEAL_KEY],
		   const char *of)
{
	crypto_generichash(way->key, sizeof(way->key), (const uint8_t *)of,
			   strlen(of), secret, TCP_SEAL_KEY);
}

struct tcp_seal *tcp_seal_open(const uint8_t secret[TCP_SEAL_KEY], bool caller)
{
	struct tcp_seal *seal = calloc(1, sizeof(*seal));

	if (!seal)
		return NULL;
	derive(caller ? &seal->out : &seal->in, secret, "who calls");
	derive(caller ? &seal->in : &seal->out, secret, "who is called");
	return seal;
}

void tcp_seal_close(struct tcp_seal *seal)
{
	if (!seal)
		return;
	sodium_memzero(seal, sizeof(*seal));
	free(seal);
}

bool tcp_seal_waits(const struct tcp_seal *seal)
{
	return seal->sent_end != 0;
}

bool tcp_seal_holds(const struct tcp_seal *seal)
{
	return seal->plain_begin < seal->plain_end || seal->over;
}

static void nonce_of(const struct way *way, uint8_t nonce[NONCE_BYTES])
{
	memset(nonce, 0, NONCE_BYTES);
	memcpy(nonce, &way->records, sizeof(way->records));
}

/* ---- out ---- */

/* False: the kernel has no room, or *failed. */
static bool flush(struct tcp_seal *seal, int fd, bool *failed)
{
	while (seal->sent_begin < seal->sent_end) {
		ssize_t n =
			send(fd, seal->sent + seal->sent_begin,
			     seal->sent_end - seal->sent_begin, MSG_NOSIGNAL);

		if (n < 0) {
			*failed = errno != EAGAIN && errno != EINTR;
			return false;
		}
		seal->sent_begin += (size_t)n;
	}
	seal->sent_begin = seal->sent_end = 0;
	return true;
}

/* Up to a record of what is there from byte `at` on; its length. */
static uint32_t gather(uint8_t *to, const struct iovec *v, int n, size_t at)
{
	uint32_t len = 0;

	for (int i = 0; i < n && len < RECORD_BYTES; i++) {
		size_t skip = at < v[i].iov_len ? at : v[i].iov_len;
		size_t part = v[i].iov_len - skip;

		at -= skip;
		if (part > RECORD_BYTES - len)
			part = RECORD_BYTES - len;
		if (part)
			memcpy(to + len, (uint8_t *)v[i].iov_base + skip, part);
		len += (uint32_t)part;
	}
	return len;
}

static void seal_record(struct tcp_seal *seal, uint32_t len)
{
	uint8_t nonce[NONCE_BYTES], *data = seal->sent + HEAD_BYTES;

	memcpy(seal->sent, &len, HEAD_BYTES);
	nonce_of(&seal->out, nonce);
	crypto_aead_chacha20poly1305_ietf_encrypt_detached(
		data, data + len, NULL, data, len, seal->sent, HEAD_BYTES, NULL,
		nonce, seal->out.key);
	seal->out.records++;
	seal->sent_end = HEAD_BYTES + len + TAG_BYTES;
}

ssize_t tcp_seal_send(struct tcp_seal *seal, int fd, const struct iovec *v,
		      int n)
{
	size_t taken = 0;
	bool failed = false;
	uint32_t len;

	while (flush(seal, fd, &failed)) {
		len = gather(seal->sent + HEAD_BYTES, v, n, taken);
		if (!len)
			break;
		seal_record(seal, len);
		taken += len;
	}
	return failed ? -1 : (ssize_t)taken;
}

/* ---- in ---- */

static int end(struct tcp_seal *seal, int why)
{
	seal->over = true;
	seal->why = why;
	return -1;
}

/* 1: all of the next record is there, and how many bytes of data it has; 0: not
 * yet; -1: it will never be. */
static int fetch_record(struct tcp_seal *seal, int fd, uint32_t *len)
{
	size_t want = HEAD_BYTES;
	ssize_t n;

	for (;;) {
		if (seal->got_end >= HEAD_BYTES) {
			memcpy(len, seal->got, HEAD_BYTES);
			if (!*len || *len > RECORD_BYTES)
				return end(seal, EBADMSG);
			want = HEAD_BYTES + *len + TAG_BYTES;
		}
		if (seal->got_end == want)
			return 1;
		n = recv(fd, seal->got + seal->got_end, want - seal->got_end,
			 0);
		if (n == 0)
			return end(seal, 0);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return 0;
		if (n < 0)
			return end(seal, errno);
		seal->got_end += (size_t)n;
	}
}

/* 1: there is data; 0: not yet; -1: there never will be. */
static int open_record(struct tcp_seal *seal, int fd)
{
	uint8_t nonce[NONCE_BYTES];
	uint32_t len = 0;
	int found = seal->over ? -1 : fetch_record(seal, fd, &len);

	if (found <= 0)
		return found;
	nonce_of(&seal->in, nonce);
	if (crypto_aead_chacha20poly1305_ietf_decrypt_detached(
		    seal->plain, NULL, seal->got + HEAD_BYTES, len,
		    seal->got + HEAD_BYTES + len, seal->got, HEAD_BYTES, nonce,
		    seal->in.key))
		return end(seal, EBADMSG);
	seal->in.records++;
	seal->got_end = 0;
	seal->plain_begin = 0;
	seal->plain_end = len;
	return 1;
}

static size_t hand_out(struct tcp_seal *seal, const struct iovec *v, int n,
		       size_t at)
{
	size_t given = 0;

	for (int i = 0; i < n; i++) {
		size_t skip = at < v[i].iov_len ? at : v[i].iov_len;
		size_t part = v[i].iov_len - skip;
		size_t left = seal->plain_end - seal->plain_begin;

		at -= skip;
		if (part > left)
			part = left;
		if (part)
			memcpy((uint8_t *)v[i].iov_base + skip,
			       seal->plain + seal->plain_begin, part);
		seal->plain_begin += part;
		given += part;
	}
	return given;
}

ssize_t tcp_seal_receive(struct tcp_seal *seal, int fd, const struct iovec *v,
			 int n)
{
	size_t room = 0, got = 0;
	int more = 1;

	for (int i = 0; i < n; i++)
		room += v[i].iov_len;
	while (got < room) {
		if (seal->plain_begin == seal->plain_end)
			more = open_record(seal, fd);
		if (more <= 0)
			break;
		got += hand_out(seal, v, n, got);
	}
	/* What came before an end counts first; the end is told next time. */
	if (got || more >= 0)
		return (ssize_t)got;
	errno = seal->why;
	return -1;
}
