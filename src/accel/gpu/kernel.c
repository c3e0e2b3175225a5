/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/accel/gpu/device.h"
#include "src/accel/gpu/kernel.h"
#include "src/base/log.h"

/* Most blocks to start for each multiprocessor: as many as keep all its threads
 * busy. Kernels that read many vectors at a time need more registers, so fewer
 * of their threads fit. */
#define BLOCKS_PER_UNIT 8
#define BLOCKS_OF_MANY 4

struct gpu_kernel {
	char name[sizeof(((struct launch *)0)->kernel)];
	void *function;
	struct gpu_kernel *next;
};

/* Returns image i to try for a module, or NULL. */
static const struct image *image_try(const struct gpu_driver *gpu, int module,
				     int i)
{
	const struct image *image;
	char name[32];

	if (!gpu->one_module) {
		snprintf(name, sizeof(name), "%s_%s", gpu->images,
			 launch_module_name((enum launch_module)module));
		return i ? NULL : image_find(name);
	}
	for (int k = 0; (image = image_at(k)); k++)
		if (!strncmp(image->name, gpu->images, strlen(gpu->images)) &&
		    i-- == 0)
			return image;
	return NULL;
}

static int code_load(struct gpu_driver *gpu, void **m, const void *code,
		     size_t bytes)
{
	return gpu->module_load ? gpu->module_load(m, code, bytes)
				: gpu->api.module_load(m, code);
}

/* Load the first image of this build that the driver accepts. Returns
 * DICOMM_ERR_UNSUPPORTED, with the reason in why, if it accepts none. */
static dicomm_result_t image_load(struct gpu_driver *gpu, int index, int module,
				  char *why, size_t len)
{
	struct gpu_device *d = &gpu->devices[index];
	const struct image *image;
	int error = 0, i;

	for (i = 0; (image = image_try(gpu, module, i)); i++) {
		error = code_load(gpu, &d->modules[module], image->data,
				  (size_t)(image->end - image->data));
		if (!error)
			return DICOMM_SUCCESS;
		if (!gpu->wrong_image(error))
			return gpu_device_failed(gpu, error, index,
						 image->name);
	}
	if (i)
		snprintf(why, len,
			 "the driver takes none of %d images: %s (%d)", i,
			 gpu->error_text(error), error);
	else
		snprintf(why, len, "this build has none for %s", gpu->kind);
	return DICOMM_ERR_UNSUPPORTED;
}

/* Compile the source with the runtime's compiler, and load the result. On
 * success the code is never freed, because a driver may read it as long as the
 * module is loaded. */
static dicomm_result_t source_load(struct gpu_driver *gpu, int index,
				   int module, char *why, size_t len)
{
	void *code = NULL;
	int error;

	TRY(gpu->compile(index, module, &code, why, len));
	error = code_load(gpu, &gpu->devices[index].modules[module], code, 0);
	if (!error) {
		log_debug("%s:%d: kernels were compiled", gpu->kind, index);
		return DICOMM_SUCCESS;
	}
	free(code);
	if (!gpu->wrong_image(error))
		return gpu_device_failed(gpu, error, index, "compiled kernels");
	snprintf(why, len, "the driver does not take compiled ones: %s (%d)",
		 gpu->error_text(error), error);
	return DICOMM_ERR_UNSUPPORTED;
}

/* Load the module with the kernels of a type. The caller holds the lock. A
 * module that neither images nor the compiler provide is not tried again. */
static dicomm_result_t module_load(struct gpu_driver *gpu, int index,
				   int module)
{
	char none[128] = "", why[256], text[400];
	struct gpu_device *d = &gpu->devices[index];
	dicomm_result_t status;

	if (d->loaded[module])
		return DICOMM_SUCCESS;
	if (!d->unfit[module]) {
		status = image_load(gpu, index, module, none, sizeof(none));
		if (status == DICOMM_ERR_UNSUPPORTED)
			status = source_load(gpu, index, module, why,
					     sizeof(why));
		d->loaded[module] = status == DICOMM_SUCCESS;
		if (status != DICOMM_ERR_UNSUPPORTED)
			return status;
		snprintf(text, sizeof(text), "%s; %s", none, why);
		d->unfit[module] = strdup(text);
		if (!d->unfit[module])
			return gpu_device_no_memory(gpu, index);
	}
	log_set_last_error(d->unfit[module]);
	return DICOMM_ERR_UNSUPPORTED;
}

static struct gpu_kernel *kernel_find(struct gpu_driver *gpu, int index,
				      const struct launch *l)
{
	struct gpu_kernel *k = atomic_load_explicit(
		&gpu->devices[index].kernels[l->module], memory_order_acquire);

	while (k && strcmp(k->name, l->kernel))
		k = k->next;
	return k;
}

/* Get a kernel from its module. Drivers may load it only now. The caller holds
 * the lock. */
static dicomm_result_t kernel_load(struct gpu_driver *gpu, int index,
				   const struct launch *l)
{
	struct gpu_device *d = &gpu->devices[index];
	int error, module = gpu->one_module ? 0 : (int)l->module;
	struct gpu_kernel *k;

	if (kernel_find(gpu, index, l))
		return DICOMM_SUCCESS;
	TRY(module_load(gpu, index, module));
	k = calloc(1, sizeof(*k));
	if (!k)
		return gpu_device_no_memory(gpu, index);
	error = gpu->api.module_function(&k->function, d->modules[module],
					 l->kernel);
	if (error) {
		free(k);
		return gpu_device_failed(gpu, error, index, l->kernel);
	}
	memcpy(k->name, l->kernel, sizeof(k->name));
	k->next = atomic_load(&d->kernels[l->module]);
	atomic_store_explicit(&d->kernels[l->module], k, memory_order_release);
	return DICOMM_SUCCESS;
}

/* Load all kernels of a type at once, since loading one may wait for the
 * device. The caller holds the lock. */
static dicomm_result_t kernels_load(struct gpu_driver *gpu, int index,
				    dicomm_datatype_t type)
{
	static const dicomm_redop_t ops[] = {
		DICOMM_SUM, DICOMM_PROD, DICOMM_AVG, DICOMM_MAX,
		DICOMM_MIN, DICOMM_BAND, DICOMM_BOR, DICOMM_BXOR,
	};
	const void *const src[2] = {NULL, NULL};
	struct launch l;

	for (size_t o = 0; o < sizeof(ops) / sizeof(*ops); o++) {
		if (launch_reduce(&l, type, ops[o], NULL, NULL, NULL, 1))
			TRY(kernel_load(gpu, index, &l));
		if (launch_fold(&l, type, ops[o], NULL, src, 2, 1))
			TRY(kernel_load(gpu, index, &l));
	}
	if (launch_scale(&l, type, NULL, NULL, NULL, 0, 1))
		TRY(kernel_load(gpu, index, &l));
	if (launch_divide(&l, type, NULL, NULL, 1, 1))
		TRY(kernel_load(gpu, index, &l));
	return DICOMM_SUCCESS;
}

dicomm_result_t gpu_kernel_prepare(struct accel_stream *s,
				   dicomm_datatype_t type)
{
	struct gpu_driver *gpu = s->gpu;
	dicomm_result_t status;

	TRY(gpu_device_enter(gpu, s->index));
	pthread_mutex_lock(&gpu->lock);
	status = kernels_load(gpu, s->index, type);
	pthread_mutex_unlock(&gpu->lock);
	gpu_device_leave(gpu);
	return status;
}

dicomm_result_t gpu_kernel_start(struct accel_stream *s, struct launch *l)
{
	struct gpu_driver *gpu = s->gpu;
	struct gpu_kernel *k = kernel_find(gpu, s->index, l);
	void *args[LAUNCH_ARGS + 1] = {NULL};
	uint32_t blocks;
	int error;

	if (!l->items)
		return DICOMM_SUCCESS;
	if (!k)
		return FAIL(DICOMM_ERR_INTERNAL,
			    "%s:%d: kernel %s was not prepared", gpu->kind,
			    s->index, l->kernel);
	blocks = launch_grid(
		l, LAUNCH_BLOCK,
		gpu->devices[s->index].units *
			(l->many > 1 ? BLOCKS_OF_MANY : BLOCKS_PER_UNIT));
	for (int i = 0; i < l->nargs; i++)
		args[i] = &l->args[i];
	TRY(gpu_device_enter(gpu, s->index));
	error = gpu->api.launch(k->function, blocks, 1, 1, LAUNCH_BLOCK, 1, 1,
				0, s->handle, args, NULL);
	return gpu_device_done(gpu, error, s->index, l->kernel);
}
