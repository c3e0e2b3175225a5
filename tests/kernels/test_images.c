/* SPDX-License-Identifier: BSD-3-Clause */
/* What lies in the library for devices that this machine does not have: every
 * kernel is there, and asks its device for what we give. */
#include <check.h>
#include <elf.h>
#include <stdio.h>
#include <string.h>

#include "src/accel/launch/image.h"
#include "src/accel/launch/launch.h"
#include "tests/support/runner.h"
#include "tests/support/element.h"

/* ---- all launches there are ---- */

typedef void (*launch_fn)(const struct launch *l, const void *ctx);

static void each_launch(launch_fn fn, const void *ctx)
{
	const void *const src[2] = {NULL, NULL};
	struct launch l;
	int seen = 0;

	for (int i = 0; i < element_ntypes; i++) {
		dicomm_datatype_t type = element_types[i];

		for (int o = 0; o < element_nops; o++) {
			dicomm_redop_t op = element_ops[o];

			if (!launch_reduce(&l, type, op, NULL, NULL, NULL, 1))
				continue;
			fn(&l, ctx);
			ck_assert(launch_fold(&l, type, op, NULL, src, 2, 1));
			fn(&l, ctx);
			seen += 2;
		}
		ck_assert(launch_scale(&l, type, NULL, NULL, NULL, 0, 1));
		fn(&l, ctx);
		if (launch_divide(&l, type, NULL, NULL, 1, 1))
			fn(&l, ctx);
	}
	ck_assert_int_eq(seen, 2 * (16 * 5 + 8 * 3));
}

/* ---- AMD GPUs ---- */

/* The kernel descriptor of the AMDGPU ABI, of code object version 4 */
struct descriptor {
	uint32_t group_bytes, private_bytes, kernarg_bytes, reserved0;
	int64_t entry;
	uint8_t reserved1[20];
	uint32_t rsrc3, rsrc1, rsrc2;
	uint16_t properties, reserved2[3];
};

struct object {
	const unsigned char *data;
	size_t bytes;
	const Elf64_Shdr *sections;
	int nsections;
	const char *name; /* "gfx90a" */
};

static struct object object_open(const struct image *image)
{
	const Elf64_Ehdr *h = (const void *)image->data;
	struct object o = {.data = image->data,
			   .bytes = (size_t)(image->end - image->data),
			   .name = image->name};

	ck_assert_uint_gt(o.bytes, sizeof(*h));
	ck_assert(memcmp(h->e_ident, ELFMAG, SELFMAG) == 0);
	ck_assert_int_eq(h->e_machine, EM_AMDGPU);
	/* ELFOSABI_AMDGPU_HSA, version of the code object */
	ck_assert_int_eq(h->e_ident[EI_OSABI], 64);
	ck_assert_int_eq(h->e_ident[EI_ABIVERSION], 2);
	ck_assert_uint_le(h->e_shoff + h->e_shnum * sizeof(Elf64_Shdr),
			  o.bytes);
	o.sections = (const void *)(o.data + h->e_shoff);
	o.nsections = h->e_shnum;
	return o;
}

/* Where an address of the running object lies in the file */
static const void *object_at(const struct object *o, uint64_t address)
{
	for (int i = 0; i < o->nsections; i++) {
		const Elf64_Shdr *s = &o->sections[i];

		if (s->sh_type == SHT_PROGBITS && s->sh_flags & SHF_ALLOC &&
		    address - s->sh_addr < s->sh_size)
			return o->data + s->sh_offset + address - s->sh_addr;
	}
	return NULL;
}

static const Elf64_Sym *object_symbol(const struct object *o, const char *name)
{
	for (int i = 0; i < o->nsections; i++) {
		const Elf64_Shdr *s = &o->sections[i];
		const Elf64_Sym *symbols =
			(const void *)(o->data + s->sh_offset);
		const char *names;

		if (s->sh_type != SHT_DYNSYM)
			continue;
		names = (const char *)o->data +
			o->sections[s->sh_link].sh_offset;
		for (size_t k = 0; k < s->sh_size / sizeof(*symbols); k++)
			if (!strcmp(names + symbols[k].st_name, name))
				return &symbols[k];
	}
	return NULL;
}

static void check_kernel(const struct launch *l, const void *ctx)
{
	const struct object *o = ctx;
	const struct descriptor *d;
	const Elf64_Sym *symbol;
	char name[64];

	snprintf(name, sizeof(name), "%s.kd", l->kernel);
	symbol = object_symbol(o, name);
	ck_assert_msg(symbol, "%s: no %s", o->name, name);
	ck_assert_uint_eq(symbol->st_size, sizeof(*d));
	d = object_at(o, symbol->st_value);
	ck_assert_ptr_nonnull(d);
	/* Our arguments and no hidden ones */
	ck_assert_uint_eq(d->kernarg_bytes, (uint32_t)l->nargs * 8);
	ck_assert_uint_eq(d->group_bytes, 0);
	/* Registers do not spill but for a few, in the longest kernels */
	ck_assert_msg(d->private_bytes <= 128, "%s: %s spills %u bytes",
		      o->name, l->kernel, d->private_bytes);
	/* To nearest even, and no denormals flushed, in both precisions */
	ck_assert_uint_eq(d->rsrc1 >> 12 & 0xf, 0);
	ck_assert_msg((d->rsrc1 >> 16 & 0xf) == 0xf,
		      "%s: %s flushes denormals: mode %#x", o->name, l->kernel,
		      d->rsrc1 >> 12 & 0xff);
}

static bool contains(const struct object *o, const char *text)
{
	return memmem(o->data, o->bytes, text, strlen(text));
}

START_TEST(objects_of_amd_gpus_have_every_kernel)
{
	int seen = 0;

	_Static_assert(sizeof(struct descriptor) == 64, "as the ABI says");
	for (int i = 0; image_at(i); i++) {
		const struct image *image = image_at(i);
		struct object o;

		if (strncmp(image->name, "gfx", 3))
			continue;
		seen++;
		o = object_open(image);
		each_launch(check_kernel, &o);
		ck_assert_msg(contains(&o, image->name), "%s: other device",
			      image->name);
		ck_assert_msg(!contains(&o, "hidden_"), "%s: hidden arguments",
			      image->name);
	}
	printf("%d AMD GPUs\n", seen);
}
END_TEST

/* ---- NVIDIA GPUs, and the source ---- */

static void check_entry(const struct launch *l, const void *ctx)
{
	const struct image *image;
	char name[64];

	(void)ctx;
	snprintf(name, sizeof(name), "ptx_%s", launch_module_name(l->module));
	image = image_find(name);
	ck_assert_msg(image, "no image %s", name);
	snprintf(name, sizeof(name), ".visible .entry %s(", l->kernel);
	ck_assert_msg(strstr((const char *)image->data, name), "%s: no %s",
		      image->name, l->kernel);
}

START_TEST(ptx_has_every_kernel)
{
	if (!image_find("ptx_f32"))
		return;
	each_launch(check_entry, NULL);
	for (int i = 0; image_at(i); i++) {
		const char *text = (const char *)image_at(i)->data;

		if (strncmp(image_at(i)->name, "ptx_", 4))
			continue;
		/* Registers do not spill; loads are of 16 bytes */
		ck_assert_ptr_null(strstr(text, ".local"));
		ck_assert_ptr_nonnull(strstr(text, "ld.global.v4."));
		ck_assert_ptr_nonnull(strstr(text, "st.global.v4."));
	}
}
END_TEST

START_TEST(source_is_there)
{
	const struct image *image = image_find("source");

	ck_assert_ptr_nonnull(image);
	ck_assert_ptr_nonnull(strstr((const char *)image->data, "REDUCE_ONLY"));
	ck_assert_int_eq(*image->end, 0);
	ck_assert_ptr_null(image_find("sourc"));
	ck_assert_ptr_null(image_at(-1));
	for (int i = 0; image_at(i); i++)
		ck_assert_uint_eq((uintptr_t)image_at(i)->data % 64, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("images");
	TCase *t = tcase_create("images");

	tcase_add_test(t, objects_of_amd_gpus_have_every_kernel);
	tcase_add_test(t, ptx_has_every_kernel);
	tcase_add_test(t, source_is_there);
	suite_add_tcase(s, t);
	return runner_main(s);
}
