/* One AggMo step over a group's tensors as one flat range of elements, each read and written once whatever K is.
 *
 * The order of operations is that of aggmo.reference.step, and this file is compiled without contraction of products
 * and sums (-ffp-contract=off), so that in float and double the result is bit for bit the reference's: whatever the
 * processor, the number of threads, the tiling, the alignment and the split into tensors.
 *
 *     g     <- +-gradient / scale + coupled weight decay * theta
 *     v_i   <- beta_i v_i + g                                          stored velocities; the others are g itself
 *     total <- w_1 v_1 + ... + w_K v_K + decoupled weight decay * theta
 *     theta <- theta - lr * total
 *
 * Half-precision tensors are calculated with in float and rounded once, when they are stored: to nearest even, or
 * (bfloat16 only) up or down at random with probabilities that make the mean exact. The random bits are a function of
 * a key, which the caller draws from seed and step, the element's index and the tensor's role.
 *
 * Plain C99, without Python.h and without any header of a framework. No non-temporal stores: they were measured slower.
 */

#ifndef REAL /* this file includes itself, once for each type that is calculated in */

#include <stdint.h>
#include <string.h>

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT
#endif

/* Where the dynamic loader can choose, the loops are compiled for wider vectors as well. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GLIBC__) && !defined(AGGMO_NO_CLONES)
#if defined(__clang__)
#define CLONES __attribute__((target_clones("avx512bw", "avx2", "default")))
#elif __GNUC__ < 12 /* to which the levels of x86-64 are errors */
#define CLONES __attribute__((target_clones("avx2", "default")))
#else
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif
#else
#define CLONES
#endif

#if defined(_MSC_VER)
#define INLINE static __forceinline
#define RESTRICT __restrict
#else
#define INLINE static inline __attribute__((always_inline))
#define RESTRICT restrict
#endif

/* Before a loop whose arrays do not overlap. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define INDEPENDENT _Pragma("GCC ivdep")
#else
#define INDEPENDENT
#endif

enum { TILE = 256 }; /* elements; a tile of every tensor stays in the first-level cache (measured: 128 to 256 best) */

enum { MOST = 4 }; /* stored velocities for which there is one loop: up to K = 5 as in the paper */

enum decay { NONE, COUPLED, DECOUPLED };
enum dtype { F32 = 0, F64 = 1, BF16 = 2, F16 = 3, BF16_AT_RANDOM = 4 }; /* the last is rounded so when it is written */

struct aggmo_step {
    int64_t tensors;          /* how many parameters there are                                        */
    const int64_t *ends;      /* of each, the index after its last element in the flat range          */
    void *const *theta;       /* of each, its elements                                                */
    const void *const *grad;  /* of each, its gradient                                                */
    void *const *velocity;    /* of each, its stored velocities, one after the other                  */
    int64_t k;                /* the number of velocities                                             */
    int64_t stored;           /* how many of them are stored                                          */
    const int64_t *place;     /* of each velocity, its place among the stored ones, or -1             */
    const double *betas;      /* of each velocity                                                     */
    const double *weights;    /* of each velocity                                                     */
    double lr;
    double weight_decay;
    double inverse_scale;     /* by which gradients are multiplied; 1 without loss scaling            */
    int32_t decoupled;        /* whether weight decay bypasses the velocities                         */
    int32_t maximize;
    int32_t theta_dtype;      /* of parameters and gradients                                          */
    int32_t velocity_dtype;
    uint32_t key;             /* of the random bits                                                   */
};

/* --- half precision ------------------------------------------------------------------------------------------- */

INLINE uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

INLINE float float_of(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

INLINE float from_bf16(uint16_t h) { return float_of((uint32_t)h << 16); }

/* a where the condition (0 or 1) holds, else b: without a branch, so that loops over it become vector code. */
INLINE uint32_t pick(uint32_t condition, uint32_t a, uint32_t b) { return b ^ ((a ^ b) & (0u - condition)); }

/* To nearest, ties to even; a NaN keeps its upper bits and stays quiet. */
INLINE uint16_t to_bf16(float x) {
    uint32_t u = bits_of(x);
    uint32_t nearest = u + 0x7fffu + ((u >> 16) & 1u);
    return (uint16_t)((x != x ? u | 0x400000u : nearest) >> 16);
}

/* Up with the probability of the part that is cut off; infinities and NaNs as they are. */
INLINE uint16_t to_bf16_at_random(float x, uint32_t random16) {
    uint32_t u = bits_of(x);
    uint32_t special = x != x ? u | 0x400000u : u;
    return (uint16_t)(((u & 0x7f800000u) == 0x7f800000u ? special : u + random16) >> 16);
}

INLINE float from_f16(uint16_t h) {
    uint32_t magnitude = (uint32_t)(h & 0x7fffu) << 13;
    uint32_t exponent = magnitude & 0x0f800000u;
    uint32_t normal = magnitude + (112u << 23);
    uint32_t special = magnitude + (224u << 23);
    uint32_t subnormal = bits_of(float_of(magnitude + (113u << 23)) - float_of(113u << 23));
    uint32_t u = pick(exponent == 0x0f800000u, special, pick(exponent == 0, subnormal, normal));
    return float_of(u | (uint32_t)(h & 0x8000u) << 16);
}

/* To nearest, ties to even. */
INLINE uint16_t to_f16(float x) {
    uint32_t u = bits_of(x);
    uint32_t sign = (u >> 16) & 0x8000u;
    uint32_t magnitude = u & 0x7fffffffu;
    /* the addition moves the bits of a subnormal to the bottom of the mantissa and rounds them on the way */
    uint32_t subnormal = bits_of(float_of(magnitude) + float_of(126u << 23)) - (126u << 23);
    uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    uint32_t finite = pick(magnitude < (113u << 23), subnormal, normal);
    uint32_t special = pick(magnitude > 0x7f800000u, 0x7e00u | ((magnitude >> 13) & 0x3ffu), 0x7c00u);
    return (uint16_t)(sign | pick(magnitude >= (143u << 23), special, finite));
}

/* --- random bits ---------------------------------------------------------------------------------------------- */

INLINE uint32_t mixed(uint32_t h) {
    h ^= h >> 16;
    h *= 0x85ebca6bu;
    h ^= h >> 13;
    h *= 0xc2b2ae35u;
    return h ^ h >> 16;
}

/* Sixteen bits for each element of an aligned run of TILE in the flat range, for one tensor role (0 for theta, 1 ...
 * for its velocities): halves of the hashes (Murmur's finalizer) of a counter that starts where a hash of all that the
 * bits depend on says. */
INLINE void draw(uint16_t *RESTRICT bits, uint32_t key, uint32_t role, int64_t run) {
    uint32_t seed = mixed(mixed(mixed(key ^ role * 0x9e3779b1u) ^ (uint32_t)run) ^ (uint32_t)((uint64_t)run >> 32));
    for (int j = 0; j < TILE / 2; j++) {
        uint32_t x = mixed(seed + (uint32_t)j * 0x9e3779b1u);
        bits[j] = (uint16_t)x;
        bits[TILE / 2 + j] = (uint16_t)(x >> 16);
    }
}

/* --- tiles ---------------------------------------------------------------------------------------------------- */

INLINE int size_of(int32_t dtype) { return dtype == F64 ? 8 : dtype == F32 ? 4 : 2; }

/* The call with DTYPE a constant, so that its loop is compiled for each dtype by itself. */
#define WITH_DTYPE(dtype, call)                                                                                    \
    switch (dtype) {                                                                                               \
    case F32: { enum { DTYPE = F32 }; call; break; }                                                               \
    case F64: { enum { DTYPE = F64 }; call; break; }                                                               \
    case F16: { enum { DTYPE = F16 }; call; break; }                                                               \
    case BF16: { enum { DTYPE = BF16 }; call; break; }                                                             \
    default: { enum { DTYPE = BF16_AT_RANDOM }; call; break; }                                                     \
    }

/* Whether there is one loop for such a step; a velocity that is the gradient itself comes before the others or not. */
INLINE int has_one_loop(const struct aggmo_step *s) {
    int leading = s->place[0] < 0;
    return s->k == leading + s->stored && s->stored >= 1 && s->stored <= MOST && s->theta_dtype == s->velocity_dtype &&
           s->theta_dtype != F16;
}

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(function) JOIN(function, REAL)

#define REAL float
#define REAL_IS_FLOAT 1
#define OWN F32
#include "kernel.c"
#undef REAL
#undef REAL_IS_FLOAT
#undef OWN

#define REAL double
#define REAL_IS_FLOAT 0
#define OWN F64
#include "kernel.c"
#undef REAL
#undef REAL_IS_FLOAT
#undef OWN

CLONES static void step_range(const struct aggmo_step *s, int64_t begin, int64_t end) {
    int in_double = s->theta_dtype == F64 || (s->stored && s->velocity_dtype == F64);
    int64_t tensor = 0, high = s->tensors;
    while (tensor < high) { /* the first tensor that ends after begin */
        int64_t middle = tensor + (high - tensor) / 2;
        if (s->ends[middle] > begin)
            high = middle;
        else
            tensor = middle + 1;
    }
    for (int64_t index = begin; index < end; tensor++) {
        int64_t start = tensor ? s->ends[tensor - 1] : 0;
        int64_t stop = s->ends[tensor] < end ? s->ends[tensor] : end;
        while (index < stop) {
            int64_t next = (index / TILE + 1) * TILE; /* tiles are aligned, as the random bits are */
            int n = (int)((next < stop ? next : stop) - index);
            if (in_double)
                tile_double(s, tensor, index - start, index, n);
            else
                tile_float(s, tensor, index - start, index, n);
            index += n;
        }
    }
}

/* The elements [begin, end) of the flat range; disjoint ranges may be updated at the same time. */
EXPORT void aggmo_step(const struct aggmo_step *s, int64_t begin, int64_t end) { step_range(s, begin, end); }

#else /* REAL: reading, writing and the arithmetic on one tile */

INLINE REAL NAME(get)(const char *p, int dtype, int j) {
    switch (dtype) {
    case F32: return (REAL)((const float *)(const void *)p)[j];
    case F64: return (REAL)((const double *)(const void *)p)[j];
    case F16: return (REAL)from_f16(((const uint16_t *)(const void *)p)[j]);
    default: return (REAL)from_bf16(((const uint16_t *)(const void *)p)[j]);
    }
}

/* Returns what the tensor holds then. */
INLINE REAL NAME(put)(char *p, int dtype, int j, REAL x, const uint16_t *bits) {
    uint16_t half;
    switch (dtype) {
    case F32: return (REAL)(((float *)(void *)p)[j] = (float)x);
    case F64: return (REAL)(((double *)(void *)p)[j] = (double)x);
    case F16: half = to_f16((float)x); break;
    case BF16: half = to_bf16((float)x); break;
    default: half = to_bf16_at_random((float)x, bits[j]); break;
    }
    ((uint16_t *)(void *)p)[j] = half;
    return dtype == F16 ? (REAL)from_f16(half) : (REAL)from_bf16(half);
}

INLINE void NAME(gradient)(REAL *RESTRICT out, const char *RESTRICT g, int dtype, int n, REAL factor) {
    for (int j = 0; j < n; j++) out[j] = NAME(get)(g, dtype, j) * factor;
}

INLINE void NAME(decay)(REAL *RESTRICT out, const char *RESTRICT theta, int dtype, int n, REAL weight_decay) {
    for (int j = 0; j < n; j++) out[j] = out[j] + weight_decay * NAME(get)(theta, dtype, j);
}

INLINE void NAME(velocity)(char *RESTRICT v, int dtype, REAL *RESTRICT total, const REAL *RESTRICT g, int n, int first,
                           REAL beta, REAL weight, const uint16_t *RESTRICT bits) {
    if (first)
        for (int j = 0; j < n; j++)
            total[j] = weight * NAME(put)(v, dtype, j, beta * NAME(get)(v, dtype, j) + g[j], bits);
    else
        for (int j = 0; j < n; j++)
            total[j] = total[j] + weight * NAME(put)(v, dtype, j, beta * NAME(get)(v, dtype, j) + g[j], bits);
}

INLINE void NAME(move)(char *RESTRICT theta, int dtype, const REAL *RESTRICT total, int n, REAL lr,
                       const uint16_t *RESTRICT bits) {
    for (int j = 0; j < n; j++) NAME(put)(theta, dtype, j, NAME(get)(theta, dtype, j) - lr * total[j], bits);
}

/* The whole step in one loop, for one to MOST stored velocities, after one that is the gradient itself (`leading`) or
 * not, and tensors of one dtype. All parameters from `leading` on are constants where this is called. */
INLINE void NAME(one_loop)(const struct aggmo_step *s, char *theta, const char *gradient, char *const *v, int n,
                           const uint16_t *const *bits, int leading, int stored, int decay, int dtype) {
    REAL factor = (REAL)(s->maximize ? -s->inverse_scale : s->inverse_scale);
    REAL weight_decay = (REAL)s->weight_decay, lr = (REAL)s->lr, weight_0 = (REAL)s->weights[0];
    REAL beta[MOST], weight[MOST];
    for (int i = 0; i < stored; i++) {
        beta[i] = (REAL)s->betas[leading + i];
        weight[i] = (REAL)s->weights[leading + i];
    }
    REAL beta_1 = beta[0], beta_2 = beta[stored > 1], beta_3 = beta[stored > 2 ? 2 : 0], beta_4 = beta[stored - 1];
    REAL weight_1 = weight[0], weight_2 = weight[stored > 1], weight_3 = weight[stored > 2 ? 2 : 0];
    REAL weight_4 = weight[stored - 1];
    char *v_1 = v[0], *v_2 = v[stored > 1], *v_3 = v[stored > 2 ? 2 : 0], *v_4 = v[stored - 1];
    const uint16_t *bits_0 = bits[0], *bits_1 = bits[1], *bits_2 = bits[2], *bits_3 = bits[3], *bits_4 = bits[4];
    INDEPENDENT
    for (int j = 0; j < n; j++) {
        REAL x = NAME(get)(theta, dtype, j);
        REAL g = NAME(get)(gradient, dtype, j) * factor;
        if (decay == COUPLED) g = g + weight_decay * x;
        REAL moved_1 = NAME(put)(v_1, dtype, j, beta_1 * NAME(get)(v_1, dtype, j) + g, bits_1);
        REAL total = leading ? weight_0 * g + weight_1 * moved_1 : weight_1 * moved_1;
        if (stored > 1)
            total = total + weight_2 * NAME(put)(v_2, dtype, j, beta_2 * NAME(get)(v_2, dtype, j) + g, bits_2);
        if (stored > 2)
            total = total + weight_3 * NAME(put)(v_3, dtype, j, beta_3 * NAME(get)(v_3, dtype, j) + g, bits_3);
        if (stored > 3)
            total = total + weight_4 * NAME(put)(v_4, dtype, j, beta_4 * NAME(get)(v_4, dtype, j) + g, bits_4);
        if (decay == DECOUPLED) total = total + weight_decay * x;
        NAME(put)(theta, dtype, j, x - lr * total, bits_0);
    }
}

#define CASE(leading, stored, decay)                                                                               \
    case leading + 2 * (stored - 1) + 2 * MOST * decay:                                                            \
        NAME(one_loop)(s, theta, gradient, v, n, bits, leading, stored, decay, dtype);                             \
        break
#define CASES(decay)                                                                                               \
    CASE(0, 1, decay); CASE(0, 2, decay); CASE(0, 3, decay); CASE(0, 4, decay);                                    \
    CASE(1, 1, decay); CASE(1, 2, decay); CASE(1, 3, decay); CASE(1, 4, decay)

INLINE void NAME(few)(const struct aggmo_step *s, char *theta, const char *gradient, char *const *v, int n, int leading,
                      int stored, int decay, int dtype, const uint16_t *const *bits) {
    switch (leading + 2 * (stored - 1) + 2 * MOST * decay) {
        CASES(NONE);
        CASES(COUPLED);
        CASES(DECOUPLED);
    }
}

#undef CASE
#undef CASES

/* Elements [at, at + n) of one parameter, within one tile; `index` is that of the first in the flat range. */
INLINE void NAME(tile)(const struct aggmo_step *s, int64_t tensor, int64_t at, int64_t index, int n) {
    REAL g_buffer[TILE], total[TILE];
    const REAL *g = g_buffer;
    char *theta = (char *)s->theta[tensor] + at * size_of(s->theta_dtype);
    char *gradient = (char *)s->grad[tensor] + at * size_of(s->theta_dtype);
    REAL weight_decay = (REAL)s->weight_decay;
    REAL factor = (REAL)(s->maximize ? -s->inverse_scale : s->inverse_scale);
    int coupled = weight_decay != 0 && !s->decoupled;
    int leading = s->place[0] < 0; /* a velocity that is the gradient itself, before the others */
    if (has_one_loop(s)) {
        char *v[MOST];
        uint16_t all[MOST + 1][TILE];
        const uint16_t *each[MOST + 1];
        for (int i = 0; i <= MOST; i++) each[i] = all[i] + index % TILE;
        for (int64_t i = 0; i < s->stored; i++)
            v[i] = (char *)s->velocity[tensor * s->stored + i] + at * size_of(s->velocity_dtype);
        if (s->theta_dtype == BF16_AT_RANDOM)
            for (int role = 0; role <= s->stored; role++) draw(all[role], s->key, (uint32_t)role, index / TILE);
        int decay = weight_decay == 0 ? NONE : coupled ? COUPLED : DECOUPLED;
        switch (s->theta_dtype) {
#if REAL_IS_FLOAT
        case F32: NAME(few)(s, theta, gradient, v, n, leading, (int)s->stored, decay, F32, each); return;
        case BF16: NAME(few)(s, theta, gradient, v, n, leading, (int)s->stored, decay, BF16, each); return;
        case BF16_AT_RANDOM:
            NAME(few)(s, theta, gradient, v, n, leading, (int)s->stored, decay, BF16_AT_RANDOM, each);
            return;
#else
        case F64: NAME(few)(s, theta, gradient, v, n, leading, (int)s->stored, decay, F64, each); return;
#endif
        default: break;
        }
    }
    uint16_t drawn[TILE] = {0};
    const uint16_t *bits = drawn + index % TILE;
    if (factor == 1 && !coupled && s->theta_dtype == OWN)
        g = (const REAL *)(const void *)gradient;
    else
        WITH_DTYPE(s->theta_dtype, NAME(gradient)(g_buffer, gradient, DTYPE, n, factor));
    if (coupled) WITH_DTYPE(s->theta_dtype, NAME(decay)(g_buffer, theta, DTYPE, n, weight_decay));
    for (int64_t i = 0; i < s->k; i++) {
        REAL beta = (REAL)s->betas[i], weight = (REAL)s->weights[i];
        int64_t place = s->place[i];
        if (place >= 0) {
            char *v = (char *)s->velocity[tensor * s->stored + place] + at * size_of(s->velocity_dtype);
            if (s->velocity_dtype == BF16_AT_RANDOM) draw(drawn, s->key, (uint32_t)place + 1, index / TILE);
            WITH_DTYPE(s->velocity_dtype, NAME(velocity)(v, DTYPE, total, g, n, i == 0, beta, weight, bits));
        } else if (i == 0) {
            for (int j = 0; j < n; j++) total[j] = weight * g[j];
        } else {
            for (int j = 0; j < n; j++) total[j] = total[j] + weight * g[j];
        }
    }
    if (weight_decay != 0 && s->decoupled)
        WITH_DTYPE(s->theta_dtype, NAME(decay)(total, theta, DTYPE, n, weight_decay));
    if (s->theta_dtype == BF16_AT_RANDOM) draw(drawn, s->key, 0, index / TILE);
    WITH_DTYPE(s->theta_dtype, NAME(move)(theta, DTYPE, total, n, (REAL)s->lr, bits));
}

#endif
