/* Random steps of the kernel for the sanitizers, and for any compiler: each array has memory of its own, exactly as
 * long as its elements, and a step cut into random ranges has to leave the same bits as one in a single piece. The
 * checksum over all results has to be the same whatever compiled the kernel, NaNs aside, whose bits C leaves open. */

#include KERNEL

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static uint32_t state = 1;

static uint32_t any(uint32_t below) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

/* Finite numbers and, seldom, infinities and NaNs, of any dtype. */
static void *random_array(int64_t n, int32_t dtype) {
    size_t bytes = (size_t)n * (size_t)size_of(dtype);
    char *array = malloc(bytes ? bytes : 1);
    for (int64_t j = 0; j < n; j++) {
        float x = any(200) ? (float)any(2001) / 500.0f - 2.0f : any(2) ? INFINITY : NAN;
        double d = x;
        uint16_t half = dtype == F16 ? to_f16(x) : to_bf16(x);
        const void *from = dtype == F32 ? (void *)&x : dtype == F64 ? (void *)&d : (void *)&half;
        memcpy(array + (size_t)j * (size_t)size_of(dtype), from, (size_t)size_of(dtype));
    }
    return array;
}

static void *copied(const void *array, int64_t n, int32_t dtype) {
    size_t bytes = (size_t)n * (size_t)size_of(dtype);
    void *copy = malloc(bytes ? bytes : 1);
    memcpy(copy, array, bytes);
    return copy;
}

static uint64_t checksum = 14695981039346656037u;

static void add_to_checksum(const char *array, int64_t n, int32_t dtype) {
    for (int64_t j = 0; j < n; j++) {
        uint64_t bits = 0;
        size_t size = (size_t)size_of(dtype);
        memcpy(&bits, array + (size_t)j * size, size);
        float x = dtype == F16 ? from_f16((uint16_t)bits) : from_bf16((uint16_t)bits);
        double d = x;
        if (dtype == F32) memcpy(&x, &bits, size), d = x;
        if (dtype == F64) memcpy(&d, &bits, size);
        checksum = (checksum ^ (d != d ? 0x7ff8u : bits)) * 1099511628211u;
    }
}

enum { TENSORS = 5, K = 6 };

static int round_trip(void) {
    static const int64_t sizes[] = {0, 1, 2, 7, 255, 256, 257, 511, 512, 513, 1000};
    int64_t ends[TENSORS], place[K], tensors = 1 + any(TENSORS), k = 1 + any(K), stored = 0, total = 0;
    double betas[K], weights[K];
    for (int64_t i = 0; i < k; i++) {
        place[i] = any(3) ? stored++ : -1;
        betas[i] = place[i] < 0 ? 0.0 : any(1000) / 1000.0;
        weights[i] = any(4) / 2.0;
    }
    int32_t theta_dtype = (int32_t)any(5), velocity_dtype = (int32_t)any(5);
    void *theta[TENSORS], *grad[TENSORS], *velocity[TENSORS * K], *theta2[TENSORS], *velocity2[TENSORS * K];
    int64_t n[TENSORS];
    for (int64_t t = 0; t < tensors; t++) {
        n[t] = sizes[any(sizeof sizes / sizeof *sizes)];
        ends[t] = total += n[t];
        theta[t] = random_array(n[t], theta_dtype);
        grad[t] = random_array(n[t], theta_dtype);
        theta2[t] = copied(theta[t], n[t], theta_dtype);
        for (int64_t i = 0; i < stored; i++) {
            velocity[t * stored + i] = random_array(n[t], velocity_dtype);
            velocity2[t * stored + i] = copied(velocity[t * stored + i], n[t], velocity_dtype);
        }
    }
    struct aggmo_step whole = {
        .tensors = tensors, .ends = ends, .theta = theta, .grad = (const void *const *)grad, .velocity = velocity,
        .k = k, .stored = stored, .place = place, .betas = betas, .weights = weights, .lr = 0.1,
        .weight_decay = any(2) ? 0.01 : 0.0, .inverse_scale = any(2) ? 0.125 : 1.0, .decoupled = (int32_t)any(2),
        .maximize = (int32_t)any(2), .theta_dtype = theta_dtype, .velocity_dtype = velocity_dtype, .key = state,
    };
    struct aggmo_step cut = whole;
    cut.theta = theta2;
    cut.velocity = velocity2;
    aggmo_step(&whole, 0, total);
    for (int64_t begin = 0, end; begin < total; begin = end) {
        end = begin + 1 + any(700);
        if (end > total) end = total;
        aggmo_step(&cut, begin, end);
    }
    int same = 1;
    for (int64_t t = 0; t < tensors; t++) {
        same &= !memcmp(theta[t], theta2[t], (size_t)n[t] * (size_t)size_of(theta_dtype));
        add_to_checksum(theta[t], n[t], theta_dtype);
        for (int64_t i = t * stored; i < (t + 1) * stored; i++) {
            same &= !memcmp(velocity[i], velocity2[i], (size_t)n[t] * (size_t)size_of(velocity_dtype));
            add_to_checksum(velocity[i], n[t], velocity_dtype);
            free(velocity[i]);
            free(velocity2[i]);
        }
        free(theta[t]);
        free(theta2[t]);
        free(grad[t]);
    }
    return same;
}

int main(void) {
    for (int round = 0; round < 2000; round++) {
        if (!round_trip()) {
            fprintf(stderr, "round %d: the ranges left other bits than the whole\n", round);
            return 1;
        }
    }
    printf("2000 steps, checksum %016llx\n", (unsigned long long)checksum);
    return 0;
}
