/* SPDX-License-Identifier: BSD-3-Clause */
#include "transports/tcp/seal.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "transports/tcp/nh.h"

#define HEAD_BYTES 4 /* how many bytes of data */
#define TAG_BYTES crypto_aead_chacha20poly1305_ietf_ABYTES
#define NONCE_BYTES crypto_aead_chacha20poly1305_ietf_NPUBBYTES
/* Data of a record. What is encrypted fits the first level of caches; what is
 * signed is sent from where it lies, and received where it belongs. */
#define ENCRYPTED_BYTES (16u << 10)
#define SIGNED_BYTES (64u << 10)
/* So little is copied, for which one system call is enough. */
#define SHORT_BYTES 4096u
/* So little goes without NH. */
#define BRIEF_BYTES 512u
/* What is received behind a record. */
#define AHEAD_BYTES 4096u

_Static_assert(crypto_aead_chacha20poly1305_ietf_KEYBYTES == TCP_SEAL_KEY &&
		       crypto_stream_chacha20_ietf_KEYBYTES == TCP_SEAL_KEY &&
		       crypto_stream_chacha20_ietf_NONCEBYTES == NONCE_BYTES &&
		       crypto_onetimeauth_poly1305_BYTES == TAG_BYTES,
	       "sizes");

struct way {
	uint8_t key[TCP_SEAL_KEY];
	uint64_t records; /* so far */
	uint8_t *nh;      /* [NH_KEY], if records are signed */
};

struct tcp_seal {
	bool encrypts;
	uint32_t most; /* data of a record */
	nh_fn hash;
	struct way out, in;
	/* Records that are partly sent. */
	uint8_t *sent;
	size_t sent_begin, sent_end;
	/* What has come, from got_begin on nobody has looked at it. Before that
	 * is the data of a record, as far as nobody has taken it yet. */
	uint8_t *got;
	size_t got_room, got_begin, got_end;
	size_t plain_begin, plain_end;
	/* So much of the data of a signed record is where it belongs. */
	uint8_t *place; /* NULL: none is coming */
	uint32_t placed, length;
	bool drained; /* the kernel had no more */
	/* The other end's stream is over, with this errno. That stays: after a
	 * record that is not the next one nothing can be believed. */
	bool over;
	int why;
	size_t size;     /* of all */
	uint8_t bytes[]; /* of the pointers above */
};

static void derive(struct way *way, const uint8_t secret[TCP_SEAL_KEY],
		   const char *of)
{
	static const uint8_t nonce[NONCE_BYTES] = "NH";
	uint8_t key[TCP_SEAL_KEY];

	crypto_generichash(way->key, sizeof(way->key), (const uint8_t *)of,
			   strlen(of), secret, TCP_SEAL_KEY);
	if (!way->nh)
		return;
	/* With another key than the records. */
	crypto_generichash(key, sizeof(key), nonce, sizeof(nonce), way->key,
			   sizeof(way->key));
	crypto_stream_chacha20_ietf(way->nh, NH_KEY, nonce, key);
	sodium_memzero(key, sizeof(key));
}

static size_t record_bytes(uint32_t data)
{
	return HEAD_BYTES + data + TAG_BYTES;
}

static struct tcp_seal *make(const uint8_t secret[TCP_SEAL_KEY], bool caller,
			     bool encrypts)
{
	uint32_t most = encrypts ? ENCRYPTED_BYTES : SIGNED_BYTES;
	size_t sent = record_bytes(SHORT_BYTES) + record_bytes(most);
	size_t got = record_bytes(most) + AHEAD_BYTES;
	size_t nh = encrypts ? 0 : NH_KEY;
	size_t size = sizeof(struct tcp_seal) + sent + got + 2 * nh;
	struct tcp_seal *seal = calloc(1, size);

	if (!seal)
		return NULL;
	seal->size = size;
	seal->encrypts = encrypts;
	seal->most = most;
	seal->hash = nh_usable(0);
	seal->sent = seal->bytes;
	seal->got = seal->sent + sent;
	seal->got_room = got;
	if (nh) {
		seal->out.nh = seal->got + got;
		seal->in.nh = seal->out.nh + nh;
	}
	derive(caller ? &seal->out : &seal->in, secret, "who calls");
	derive(caller ? &seal->in : &seal->out, secret, "who is called");
	return seal;
}

struct tcp_seal *tcp_seal_open(const uint8_t secret[TCP_SEAL_KEY], bool caller)
{
	return make(secret, caller, true);
}

struct tcp_seal *tcp_seal_open_signed(const uint8_t secret[TCP_SEAL_KEY],
				      bool caller)
{
	return make(secret, caller, false);
}

void tcp_seal_close(struct tcp_seal *seal)
{
	if (!seal)
		return;
	sodium_memzero(seal, seal->size);
	free(seal);
}

bool tcp_seal_waits(const struct tcp_seal *seal)
{
	return seal->sent_end != 0;
}

/* Of the next record, if its head is there and no lie. */
static bool next_length(const struct tcp_seal *seal, uint32_t *len)
{
	if (seal->got_end - seal->got_begin < HEAD_BYTES)
		return false;
	memcpy(len, seal->got + seal->got_begin, HEAD_BYTES);
	return *len && *len <= seal->most;
}

static bool has_whole(const struct tcp_seal *seal)
{
	uint32_t len;

	return next_length(seal, &len) &&
	       seal->got_end - seal->got_begin >= record_bytes(len);
}

bool tcp_seal_holds(const struct tcp_seal *seal)
{
	return seal->plain_begin < seal->plain_end || seal->over ||
	       seal->got_end - seal->got_begin >= HEAD_BYTES;
}

/* ---- the two ciphers ---- */

static void nonce_of(const struct way *way, uint8_t nonce[NONCE_BYTES])
{
	memset(nonce, 0, NONCE_BYTES);
	memcpy(nonce, &way->records, sizeof(way->records));
}

static size_t hash_data(const struct tcp_seal *seal, const struct way *way,
			const uint8_t *data, uint32_t len, uint8_t *out)
{
	size_t n = 0;

	for (uint32_t at = 0; at < len; at += NH_BLOCK, n += NH_HASH)
		nh_hash(seal->hash, way->nh, data + at,
			len - at < NH_BLOCK ? len - at : NH_BLOCK, out + n);
	return n;
}

/* Poly1305 with a key that is of this record alone, as in RFC 8439, of its
 * length, and of the data, or what NH makes of that. */
static void sign(const struct tcp_seal *seal, const struct way *way,
		 const uint8_t *data, uint32_t len, uint8_t tag[TAG_BYTES])
{
	uint8_t nonce[NONCE_BYTES], key[crypto_onetimeauth_poly1305_KEYBYTES];
	uint8_t all[HEAD_BYTES + BRIEF_BYTES];
	size_t n = len;

	_Static_assert(SIGNED_BYTES / NH_BLOCK * NH_HASH <= BRIEF_BYTES,
		       "room for hashes");
	memcpy(all, &len, HEAD_BYTES);
	if (len <= BRIEF_BYTES)
		memcpy(all + HEAD_BYTES, data, len);
	else
		n = hash_data(seal, way, data, len, all + HEAD_BYTES);
	nonce_of(way, nonce);
	crypto_stream_chacha20_ietf(key, sizeof(key), nonce, way->key);
	crypto_onetimeauth_poly1305(tag, all, HEAD_BYTES + n, key);
}

/* Of data that is to be encrypted where it lies, or stays as it is. */
static void protect(struct tcp_seal *seal, uint8_t *data, uint32_t len,
		    uint8_t tag[TAG_BYTES])
{
	uint8_t nonce[NONCE_BYTES];

	if (seal->encrypts) {
		nonce_of(&seal->out, nonce);
		crypto_aead_chacha20poly1305_ietf_encrypt_detached(
			data, tag, NULL, data, len, (uint8_t *)&len, HEAD_BYTES,
			NULL, nonce, seal->out.key);
	} else {
		sign(seal, &seal->out, data, len, tag);
	}
	seal->out.records++;
}

/* Into `to`, which may be the same. False: that is not the next record. */
static bool unprotect(struct tcp_seal *seal, const uint8_t *data, uint32_t len,
		      const uint8_t tag[TAG_BYTES], uint8_t *to)
{
	uint8_t nonce[NONCE_BYTES], right[TAG_BYTES];
	bool genuine;

	if (seal->encrypts) {
		nonce_of(&seal->in, nonce);
		genuine = !crypto_aead_chacha20poly1305_ietf_decrypt_detached(
			to, NULL, data, len, tag, (uint8_t *)&len, HEAD_BYTES,
			nonce, seal->in.key);
	} else {
		sign(seal, &seal->in, data, len, right);
		genuine = !sodium_memcmp(right, tag, TAG_BYTES);
		if (genuine && to != data)
			memcpy(to, data, len);
	}
	seal->in.records += genuine;
	return genuine;
}

/* ---- out ---- */

/* Bytes sent, 0: the kernel has no room; -1: it has ended. */
static ssize_t give(int fd, struct iovec *v, size_t n)
{
	struct msghdr m = {.msg_iov = v, .msg_iovlen = n};
	ssize_t sent = sendmsg(fd, &m, MSG_NOSIGNAL);

	return sent < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : sent;
}

/* False: the kernel has no room, or *failed. */
static bool flush(struct tcp_seal *seal, int fd, bool *failed)
{
	while (seal->sent_begin < seal->sent_end) {
		struct iovec v = {seal->sent + seal->sent_begin,
				  seal->sent_end - seal->sent_begin};
		ssize_t n = give(fd, &v, 1);

		*failed = n < 0;
		if (n <= 0)
			return false;
		seal->sent_begin += (size_t)n;
	}
	seal->sent_begin = seal->sent_end = 0;
	return true;
}

static void keep(struct tcp_seal *seal, const void *bytes, size_t len)
{
	memcpy(seal->sent + seal->sent_end, bytes, len);
	seal->sent_end += len;
}

/* Up to `most` bytes of what is there from byte `at` on; their number. */
static uint32_t gather(uint8_t *to, const struct iovec *v, int n, size_t at,
		       uint32_t most)
{
	uint32_t len = 0;

	for (int i = 0; i < n && len < most; i++) {
		size_t skip = at < v[i].iov_len ? at : v[i].iov_len;
		size_t part = v[i].iov_len - skip;

		at -= skip;
		if (part > most - len)
			part = most - len;
		if (part)
			memcpy(to + len, (uint8_t *)v[i].iov_base + skip, part);
		len += (uint32_t)part;
	}
	return len;
}

/* Behind what waits; the length of its data. */
static uint32_t copy_record(struct tcp_seal *seal, const struct iovec *v, int n,
			    size_t at, uint32_t most)
{
	uint8_t *head = seal->sent + seal->sent_end, *data = head + HEAD_BYTES;
	uint32_t len = gather(data, v, n, at, most);

	if (!len)
		return 0;
	memcpy(head, &len, HEAD_BYTES);
	protect(seal, data, len, data + len);
	seal->sent_end += record_bytes(len);
	return len;
}

/* From where the data lies, behind what waits. What the kernel has no room for
 * is copied; if it has none at all, nothing has happened: 0. */
static uint32_t send_record(struct tcp_seal *seal, int fd, uint8_t *data,
			    uint32_t len, uint64_t records, bool *failed)
{
	uint8_t tag[TAG_BYTES];
	struct iovec v[3];
	ssize_t n;

	keep(seal, &len, HEAD_BYTES);
	protect(seal, data, len, tag);
	v[0] = (struct iovec){seal->sent, seal->sent_end};
	v[1] = (struct iovec){data, len};
	v[2] = (struct iovec){tag, sizeof(tag)};
	n = give(fd, v, 3);
	*failed = n < 0;
	if (n <= 0) {
		seal->out.records = records;
		seal->sent_end = 0;
		return 0;
	}
	seal->sent_begin = (size_t)n;
	if (seal->sent_begin >= v[0].iov_len) {
		size_t gone = seal->sent_begin - v[0].iov_len;

		seal->sent_begin = seal->sent_end = 0;
		if (gone < len)
			keep(seal, data + gone, len - gone);
		gone -= gone < len ? gone : len;
		keep(seal, tag + gone, sizeof(tag) - gone);
	} else {
		keep(seal, data, len);
		keep(seal, tag, sizeof(tag));
	}
	return len;
}

static size_t bytes_of(const struct iovec *v, int n)
{
	size_t len = 0;

	for (int i = 0; i < n; i++)
		len += v[i].iov_len;
	return len;
}

/* A long body goes from where it lies, and its head, which has to be read
 * before the receiver knows where the body belongs, is a record before it. */
static size_t send_signed(struct tcp_seal *seal, int fd, const struct iovec *v,
			  int n, size_t at, bool *failed)
{
	uint64_t records = seal->out.records;
	size_t left = bytes_of(v, n) - at, head = 0, part;
	uint32_t len;

	if (left <= SHORT_BYTES)
		return copy_record(seal, v, n, at, SHORT_BYTES);
	for (; at >= v->iov_len; v++, n--)
		at -= v->iov_len;
	part = v->iov_len - at;
	if (part <= SHORT_BYTES) {
		head = copy_record(seal, v, n, at, (uint32_t)part);
		at = 0;
		for (v++; !v->iov_len; v++)
			;
		part = v->iov_len;
	}
	len = part < seal->most ? (uint32_t)part : seal->most;
	len = send_record(seal, fd, (uint8_t *)v->iov_base + at, len, records,
			  failed);
	return len ? head + len : 0;
}

ssize_t tcp_seal_send(struct tcp_seal *seal, int fd, const struct iovec *v,
		      int n)
{
	size_t taken = 0, len = 1;
	bool failed = false;

	while (flush(seal, fd, &failed) && len) {
		len = seal->encrypts
			      ? copy_record(seal, v, n, taken, seal->most)
			      : send_signed(seal, fd, v, n, taken, &failed);
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

/* Receives `len` bytes to `to`, `more` behind them into `got`, and a few that
 * follow; *n is what `to` has got. 1: there is something new; 0: not yet; -1:
 * there never will be. */
static int fetch(struct tcp_seal *seal, int fd, uint8_t *to, size_t len,
		 size_t more, size_t *n)
{
	struct iovec v[2] = {{to, len}};
	struct msghdr m = {.msg_iov = v + !len, .msg_iovlen = 1 + !!len};
	ssize_t got;

	/* Nothing before got_begin is of use any more. */
	seal->got_end -= seal->got_begin;
	memmove(seal->got, seal->got + seal->got_begin, seal->got_end);
	seal->got_begin = 0;
	v[1] = (struct iovec){seal->got + seal->got_end, more + AHEAD_BYTES};
	if (v[1].iov_len > seal->got_room - seal->got_end)
		v[1].iov_len = seal->got_room - seal->got_end;
	got = recvmsg(fd, &m, 0);
	if (got == 0)
		return end(seal, 0);
	if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
		seal->drained = true;
		return 0;
	}
	if (got < 0)
		return end(seal, errno);
	seal->drained = (size_t)got < len + v[1].iov_len;
	*n = (size_t)got < len ? (size_t)got : len;
	seal->got_end += (size_t)got - *n;
	return 1;
}

/* 1: so many bytes have come; 0 and -1 as above. */
static int await(struct tcp_seal *seal, int fd, size_t bytes)
{
	size_t have, none;
	int found = 1;

	while ((have = seal->got_end - seal->got_begin) < bytes && found > 0)
		found = fetch(seal, fd, NULL, 0, bytes - have, &none);
	return found;
}

/* The data of a signed record goes to where it belongs before it is proved, and
 * counts after that. */
static int place_record(struct tcp_seal *seal, int fd, uint8_t *to,
			uint32_t len)
{
	size_t n = seal->got_end - seal->got_begin;
	const uint8_t *tag;
	int found = 1;

	if (!seal->place) {
		seal->got_begin += HEAD_BYTES;
		n -= HEAD_BYTES;
		n = n < len ? n : len;
		memcpy(to, seal->got + seal->got_begin, n);
		seal->got_begin += n;
		seal->place = to;
		seal->placed = (uint32_t)n;
	}
	while (seal->placed < len && found > 0) {
		found = fetch(seal, fd, to + seal->placed, len - seal->placed,
			      TAG_BYTES, &n);
		seal->placed += found > 0 ? (uint32_t)n : 0;
	}
	if (found > 0)
		found = await(seal, fd, TAG_BYTES);
	if (found <= 0)
		return found;
	tag = seal->got + seal->got_begin;
	seal->got_begin += TAG_BYTES;
	seal->place = NULL;
	return unprotect(seal, to, len, tag, to) ? 1 : end(seal, EBADMSG);
}

/* All of it, and then into `to`, or, if that is NULL, to where it is. */
static int open_record(struct tcp_seal *seal, int fd, uint8_t *to, uint32_t len)
{
	int found = await(seal, fd, record_bytes(len));
	uint8_t *data = seal->got + seal->got_begin + HEAD_BYTES;

	if (found <= 0)
		return found;
	if (!unprotect(seal, data, len, data + len, to ? to : data))
		return end(seal, EBADMSG);
	if (!to) {
		seal->plain_begin = (size_t)(data - seal->got);
		seal->plain_end = seal->plain_begin + len;
	}
	seal->got_begin += record_bytes(len);
	return 1;
}

/* The next record. If all of it belongs into the `room` bytes from `to` on,
 * which are part of a body, its length is in *direct. If not, and the caller
 * has got something already, it had better ask for this with the body that
 * follows from that: 0. */
static int take_record(struct tcp_seal *seal, int fd, uint8_t *to, size_t room,
		       bool has, uint32_t *direct)
{
	uint32_t len = seal->length;
	int found;

	*direct = 0;
	if (seal->over)
		return -1;
	if (!seal->place) {
		found = await(seal, fd, HEAD_BYTES);
		if (found <= 0)
			return found;
		if (!next_length(seal, &len))
			return end(seal, EBADMSG);
	} else if (seal->place != to || len > room) {
		return end(seal, EFAULT);
	}
	if (len > room)
		return has && len > SHORT_BYTES
			       ? 0
			       : open_record(seal, fd, NULL, len);
	seal->length = len;
	found = seal->encrypts || len <= SHORT_BYTES
			? open_record(seal, fd, to, len)
			: place_record(seal, fd, to, len);
	*direct = found > 0 ? len : 0;
	return found;
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
			       seal->got + seal->plain_begin, part);
		seal->plain_begin += part;
		given += part;
	}
	return given;
}

ssize_t tcp_seal_receive(struct tcp_seal *seal, int fd, const struct iovec *v,
			 int n)
{
	size_t all = bytes_of(v, n), body = n > 1 ? v->iov_len : 0, got = 0;
	uint32_t direct;
	int more = 1;

	seal->drained = false;
	while (got < all && more > 0) {
		if (seal->plain_begin < seal->plain_end) {
			got += hand_out(seal, v, n, got);
			continue;
		}
		if (got && seal->drained && !has_whole(seal))
			break;
		more = take_record(seal, fd,
				   body ? (uint8_t *)v->iov_base + got : NULL,
				   body > got ? body - got : 0, got, &direct);
		got += direct;
	}
	/* What came before an end counts first; the end is told next time. */
	if (got || more >= 0)
		return (ssize_t)got;
	errno = seal->why;
	return -1;
}
