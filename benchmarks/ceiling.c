/* What an optimizer with two buffers cannot beat: four reads and three writes an element, and hardly any arithmetic. */
#include <stdint.h>

void ceiling(float *restrict p, const float *restrict g, float *restrict u, float *restrict v, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        u[i] += g[i];
        v[i] += g[i];
        p[i] += g[i];
    }
}
