/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device kernels as they lie in the library. The build writes images.inc,
 * a line IMAGE(name, "file") for each image that it made.
 */
#include "src/accel/launch/image.h"

#include <stddef.h>
#include <string.h>

#define SYMBOL(name) "dicomm_image_" #name

#define IMAGE(name, file)                                                      \
	__asm__(".pushsection .rodata\n"                                       \
		".hidden " SYMBOL(name) ", " SYMBOL(                           \
			name) "_end\n"                                         \
			      ".globl " SYMBOL(name) ", " SYMBOL(              \
				      name) "_end\n"                           \
					    ".balign 64\n" SYMBOL(             \
						    name) ":\n"                \
							  ".incbin \"" file    \
							  "\"\n" SYMBOL(       \
								  name) "_end" \
									":\n"  \
									".byt" \
									"e "   \
									"0\n"  \
									".pop" \
									"sect" \
									"ion"  \
									"\n"); \
	extern const unsigned char dicomm_image_##name[];                      \
	extern const unsigned char dicomm_image_##name##_end[];
#include "src/accel/launch/images.inc"
#undef IMAGE

static const struct image images[] = {
#define IMAGE(name, file) \
	{#name, dicomm_image_##name, dicomm_image_##name##_end},
#include "src/accel/launch/images.inc"
#undef IMAGE
	{NULL, NULL, NULL},
};

const struct image *image_at(int i)
{
	return i >= 0 && images[i].name ? &images[i] : NULL;
}

const struct image *image_find(const char *name)
{
	for (int i = 0; images[i].name; i++)
		if (!strcmp(images[i].name, name))
			return &images[i];
	return NULL;
}
