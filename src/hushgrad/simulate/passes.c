/* One pass over long vectors for all that a step computes with them. Numbers are worked on in blocks
   that stay in the nearest cache from the first operation to the last. Every operation is rounded by
   itself, as NumPy's are: the bits are the same. */
#include <stdint.h>

/* BLOCK, the numbers of a block, is given by who compiles: the rooms are of that size. */

typedef struct {
  int32_t code, out, a, b; /* registers; for a number, its place among the numbers */
} Operation;

enum { ADD, SUBTRACT, MULTIPLY, DIVIDE, NEGATE, ADD_NUMBER, SUBTRACT_NUMBER, SUBTRACT_FROM_NUMBER, MULTIPLY_BY_NUMBER,
       DIVIDE_BY_NUMBER, DIVIDE_NUMBER };

#define EACH(expression)                    \
  _Pragma("GCC ivdep") /* o may be a or b */ \
  for (int64_t i = 0; i < n; i++) o[i] = expression; \
  break;

static void apply(int32_t code, double *o, const double *a, const double *b, double s, int64_t n) {
  switch (code) {
    case ADD: EACH(a[i] + b[i])
    case SUBTRACT: EACH(a[i] - b[i])
    case MULTIPLY: EACH(a[i] * b[i])
    case DIVIDE: EACH(a[i] / b[i])
    case NEGATE: EACH(-a[i])
    case ADD_NUMBER: EACH(a[i] + s)
    case SUBTRACT_NUMBER: EACH(a[i] - s)
    case SUBTRACT_FROM_NUMBER: EACH(s - a[i])
    case MULTIPLY_BY_NUMBER: EACH(a[i] * s)
    case DIVIDE_BY_NUMBER: EACH(a[i] / s)
    case DIVIDE_NUMBER: EACH(s / a[i])
  }
}

enum { LANES = 32 };

/* Times zero, a finite number is nothing and all others are NaN. */
static int is_finite(const double *a, int64_t n) {
  double seen[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int64_t j = 0; j < LANES; j++) seen[j] += a[i + j] * 0.0;
  for (; i < n; i++) seen[0] += a[i] * 0.0;
  double sum = 0;
  for (int64_t j = 0; j < LANES; j++) sum += seen[j];
  return sum == 0.0;
}

/* Ask for the next block of every vector while this one is worked on. */
static void fetch(double *const *registers, int64_t n_long, int64_t start, int64_t dim) {
  const int64_t end = start + BLOCK < dim ? start + BLOCK : dim;
  for (int64_t r = 0; r < n_long; r++)
    for (int64_t i = start; i < end; i += 8) __builtin_prefetch(registers[r] + i);
}

int hushgrad_finite(const double *a, int64_t n) { return is_finite(a, n); }

/* Registers below n_long are vectors of dim numbers, those from there on rooms for one block. Gives whether all numbers of
   register `checked` are finite. */
int hushgrad_pass(const Operation *operations, int64_t n_operations, double *const *registers, int64_t n_long,
                  const double *numbers, int64_t dim, int64_t checked) {
  int finite = 1;
  for (int64_t start = 0; start < dim; start += BLOCK) {
    const int64_t n = dim - start < BLOCK ? dim - start : BLOCK;
    if (n == BLOCK) fetch(registers, n_long, start + BLOCK, dim);
    for (const Operation *p = operations; p < operations + n_operations; p++) {
      double *const o = registers[p->out] + (p->out < n_long ? start : 0);
      const double *const a = registers[p->a] + (p->a < n_long ? start : 0);
      if (p->code < NEGATE) apply(p->code, o, a, registers[p->b] + (p->b < n_long ? start : 0), 0.0, n);
      else apply(p->code, o, a, a, p->code == NEGATE ? 0.0 : numbers[p->b], n);
    }
    finite &= is_finite(registers[checked] + start, n);
  }
  return finite;
}
