/* Loops of the simulator that a general compiler leaves half as fast as the machine: uniform draws,
   sums over neighbours, small matrices, gradients of losses of rows. XLA calls them through its
   foreign function interface; they know arrays, not algorithms. Rows are agents, one trial. */
#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif
#ifdef __linux__
#include <sys/mman.h>
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* since Linux 6.1; older ones refuse it */
#endif
#endif
#include "xla/ffi/api/c_api.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

/* ---- what XLA hands over ---- */

typedef XLA_FFI_CallFrame Frame;
typedef void (*Part)(const Frame *frame, int64_t low, int64_t high);

#define ARG(frame, n) ((const XLA_FFI_Buffer *)(frame)->args.args[n])
#define DATA(type, frame, n) ((const type *)ARG(frame, n)->data)
#define OPTIONAL(frame, n) (count(ARG(frame, n)) ? DATA(double, frame, n) : NULL)
#define RESULT(frame, n) ((const XLA_FFI_Buffer *)(frame)->rets.rets[n])

static int64_t count(const XLA_FFI_Buffer *buffer) {
  int64_t n = 1;
  for (int64_t a = 0; a < buffer->rank; a++) n *= buffer->dims[a];
  return n;
}

/* XLA asks every handler for the version that it was built for before it calls it. */
static int is_question(Frame *frame) {
  XLA_FFI_InternalExtension *extension = frame->extension_start;
  if (!extension || extension->type != XLA_FFI_Extension_Metadata) return 0;
  XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)extension)->metadata;
  metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  metadata->api_version.minor_version = XLA_FFI_API_MINOR;
  return 1;
}

/* ---- pages: random reads of large arrays miss the table of small pages at every step ---- */

enum { LARGE = 1 << 25 }; /* bytes: 32 MB is beyond what small pages of a usual table cover */

/* Asks for large pages; where they are there already it costs little, where they are refused nothing. */
static void enlarge(const XLA_FFI_Buffer *buffer, int64_t bytes) {
#ifdef __linux__
  const uintptr_t page = 1 << 21, start = (uintptr_t)buffer->data;
  uintptr_t low = (start + page - 1) / page * page, high = (start + count(buffer) * bytes) / page * page;
  if (count(buffer) * bytes < LARGE || high <= low) return;
  madvise((void *)low, high - low, MADV_HUGEPAGE);
  madvise((void *)low, high - low, MADV_COLLAPSE);
#else
  (void)buffer, (void)bytes;
#endif
}

/* ---- threads: parts that other threads of XLA's pool have not begun, the caller does itself ---- */

typedef struct {
  Part part;
  const Frame *frame;
  int64_t n, size;
  atomic_long next, done, holders;
} Job;

static void work(Job *job) {
  for (;;) {
    int64_t low = atomic_fetch_add(&job->next, 1) * job->size;
    if (low >= job->n) return;
    int64_t high = low + job->size < job->n ? low + job->size : job->n;
    job->part(job->frame, low, high);
    atomic_fetch_add(&job->done, high - low);
  }
}

static void help(void *given) {
  Job *job = given;
  work(job);
  if (atomic_fetch_sub(&job->holders, 1) == 1) free(job);
}

/* `least` items are worth waking a thread for; parts start at multiples of 16. */
static void divide(const Frame *frame, Part part, int64_t n, int64_t least) {
  int64_t threads = 1;
  XLA_FFI_ThreadPool_NumThreads_Args ask = {
      sizeof ask, NULL, frame->ctx, &threads};
  if (n >= 2 * least) frame->api->XLA_FFI_ThreadPool_NumThreads(&ask);
  if (threads > n / least) threads = n / least;
  Job *job = threads > 1 ? malloc(sizeof *job) : NULL;
  if (!job) {
    part(frame, 0, n);
    return;
  }
  int64_t size = (n / (4 * threads) + 15) / 16 * 16;
  *job = (Job){.part = part, .frame = frame, .n = n, .size = size};
  atomic_init(&job->next, 0);
  atomic_init(&job->done, 0);
  atomic_init(&job->holders, threads);
  for (int64_t t = 1; t < threads; t++) {
    XLA_FFI_ThreadPool_Schedule_Args call = {sizeof call, NULL, frame->ctx, help, job};
    if (frame->api->XLA_FFI_ThreadPool_Schedule(&call)) atomic_fetch_sub(&job->holders, 1);
  }
  work(job);
  while (atomic_load(&job->done) < n) { /* at most one part per thread is under way */
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
  }
  if (atomic_fetch_sub(&job->holders, 1) == 1) free(job);
}

/* ---- draws: uniforms(key0, key1, slot, k) -> (0, 1], Threefry-2x32-20 as in draws.py ---- */

enum { LANES = 16 };
typedef double V8 __attribute__((vector_size(64), aligned(8)));
typedef uint32_t U16 __attribute__((vector_size(64), aligned(4)));
#define AT(type, p) (*(const type *)(p))

INLINE void draw(U16 a, U16 b, U16 slot, uint32_t k, double *restrict u) {
  U16 c = a ^ b ^ 0x1BD11BDAu, x = a + k, y = b + slot;
#define ROUND(r) x += y; y = (y << r) | (y >> (32 - r)); y ^= x;
#define EVEN ROUND(13) ROUND(15) ROUND(26) ROUND(6)
#define ODD ROUND(17) ROUND(29) ROUND(16) ROUND(24)
  EVEN x += b; y += c + 1;
  ODD  x += c; y += a + 2;
  EVEN x += a; y += b + 3;
  ODD  x += b; y += c + 4;
  EVEN x += c; y += a + 5;
  y = (y >> 11) + 1;
#ifdef __AVX512F__ /* gcc 12 converts vectors of uint32 piece by piece */
  __m512i p = (__m512i)x, q = (__m512i)y;
  *(V8 *)u = _mm512_cvtepu32_pd(_mm512_castsi512_si256(p)) * 0x1p-32 +
             _mm512_cvtepu32_pd(_mm512_castsi512_si256(q)) * 0x1p-53;
  *(V8 *)(u + 8) = _mm512_cvtepu32_pd(_mm512_extracti64x4_epi64(p, 1)) * 0x1p-32 +
                   _mm512_cvtepu32_pd(_mm512_extracti64x4_epi64(q, 1)) * 0x1p-53;
#else
  for (int l = 0; l < LANES; l++) u[l] = x[l] * 0x1p-32 + y[l] * 0x1p-53;
#endif
}

/* slot has one number for each key, or one for each row of keys */
static void draw_part(const Frame *frame, int64_t low, int64_t high) {
  const uint32_t *key0 = DATA(uint32_t, frame, 0), *key1 = DATA(uint32_t, frame, 1);
  const uint32_t *slot = DATA(uint32_t, frame, 2), k = *DATA(uint32_t, frame, 3);
  int64_t width = count(ARG(frame, 0)) / count(ARG(frame, 2)), e = low;
  double *u = RESULT(frame, 0)->data;
  for (; e + LANES <= high; e += LANES) {
    U16 s;
    if (width == 1) s = AT(U16, slot + e);
    else if (width % LANES == 0) s = slot[e / width] - (U16){0};
    else for (int l = 0; l < LANES; l++) s[l] = slot[(e + l) / width];
    draw(AT(U16, key0 + e), AT(U16, key1 + e), s, k, u + e);
  }
  if (e < high) { /* a part of a vector */
    uint32_t a[LANES] = {0}, b[LANES] = {0}, s[LANES] = {0};
    double last[LANES];
    for (int l = 0; l < high - e; l++)
      a[l] = key0[e + l], b[l] = key1[e + l], s[l] = slot[(e + l) / width];
    draw(AT(U16, a), AT(U16, b), AT(U16, s), k, last);
    memcpy(u + e, last, (high - e) * sizeof *last);
  }
}

XLA_FFI_Error *hushgrad_uniforms(Frame *frame) {
  if (!is_question(frame)) divide(frame, draw_part, count(ARG(frame, 0)), 1 << 14);
  return NULL;
}

/* ---- sums over neighbours:
   mix(first, neighbour, entry, own_w, w, x, own_u, u, h, plain) -> out
   out_i = own_w_i x_i + own_u_i h_i + plain_i
         + sum over e in first[i] .. first[i+1] of  w_e x_neighbour[e] + u_entry[e] h_neighbour[e]
   Without x or h or plain their terms are absent; without own_w that of x_i, without w it is 1.
   Absent arrays are empty. ---- */

typedef struct { V8 eight[4]; } Block;

/* `n` numbers, at most 8 `vectors`, of which only the last may be short. */
#ifdef __AVX512F__
#define TAIL(n, vectors) ((__mmask8)(0xFF >> (8 * (vectors) - (n))))
INLINE void add(Block *r, double f, const double *p, const int vectors, int n) {
  UNROLL for (int i = 0; i < vectors - 1; i++) r->eight[i] += f * AT(V8, p + 8 * i);
  r->eight[vectors - 1] += f * _mm512_maskz_loadu_pd(TAIL(n, vectors), p + 8 * (vectors - 1));
}
INLINE void put(double *p, const Block *r, const int vectors, int n) {
  UNROLL for (int i = 0; i < vectors - 1; i++) *(V8 *)(p + 8 * i) = r->eight[i];
  _mm512_mask_storeu_pd(p + 8 * (vectors - 1), TAIL(n, vectors), r->eight[vectors - 1]);
}
#else
INLINE void add(Block *r, double f, const double *p, const int vectors, int n) {
  double *sum = (double *)r;
  (void)vectors;
  for (int i = 0; i < n; i++) sum[i] += f * p[i];
}
INLINE void put(double *p, const Block *r, const int vectors, int n) {
  (void)vectors;
  memcpy(p, r, n * sizeof *p);
}
#endif

enum {
  AHEAD = 4,     /* receivers whose neighbours are fetched while one is summed … */
  FAR = 1 << 17, /* … where x has more numbers: a megabyte, half of a usual second-level cache */
};

INLINE void fetch(const double *p, int64_t n) {
  for (int64_t i = 0; i < n; i += 8) __builtin_prefetch(p + i);
}

/* Columns at .. at + n of receivers low .. high. */
INLINE void mix_columns(const Frame *frame, int64_t low, int64_t high, int64_t d, int64_t at, int n,
                        const int vectors, const int has_w, const int has_u) {
  const int32_t *first = DATA(int32_t, frame, 0), *neighbour = DATA(int32_t, frame, 1);
  const int32_t *entry = DATA(int32_t, frame, 2);
  const double *own_w = OPTIONAL(frame, 3), *w = OPTIONAL(frame, 4);
  const double *x = DATA(double, frame, 5) + at;
  const double *own_u = DATA(double, frame, 6), *u = DATA(double, frame, 7);
  const double *h = DATA(double, frame, 8) + at;
  const double *plain = OPTIONAL(frame, 9);
  double *out = (double *)RESULT(frame, 0)->data + at;
  int64_t agents = RESULT(frame, 0)->dims[0];
  int64_t last = agents * d > FAR ? agents - AHEAD : 0;
  for (int64_t i = low; i < high; i++) {
    if (i < last)
      for (int32_t e = first[i + AHEAD]; e < first[i + AHEAD + 1]; e++) {
        if (has_w) fetch(x + neighbour[e] * d, n);
        if (has_u) fetch(h + neighbour[e] * d, n), __builtin_prefetch(u + entry[e]);
      }
    Block sum = {{{0}, {0}, {0}, {0}}};
    if (plain) add(&sum, 1, plain + at + i * d, vectors, n);
    if (has_w && own_w) add(&sum, own_w[i], x + i * d, vectors, n);
    if (has_u) add(&sum, own_u[i], h + i * d, vectors, n);
    for (int32_t e = first[i], end = first[i + 1]; e < end; e++) {
      int64_t j = neighbour[e] * d;
      if (has_w) add(&sum, w ? w[e] : 1, x + j, vectors, n);
      if (has_u) add(&sum, u[entry[e]], h + j, vectors, n);
    }
    put(out + i * d, &sum, vectors, n);
  }
}

INLINE void mix_terms(const Frame *frame, int64_t low, int64_t high, const int has_w,
                      const int has_u) {
  int64_t d = RESULT(frame, 0)->dims[1];
  for (int64_t at = 0; at < d; at += 32) {
    int n = d - at < 32 ? d - at : 32;
    switch ((n + 7) / 8) {
      case 1: mix_columns(frame, low, high, d, at, n, 1, has_w, has_u); break;
      case 2: mix_columns(frame, low, high, d, at, n, 2, has_w, has_u); break;
      case 3: mix_columns(frame, low, high, d, at, n, 3, has_w, has_u); break;
      case 4: mix_columns(frame, low, high, d, at, n, 4, has_w, has_u); break;
    }
  }
}

static void mix_part(const Frame *frame, int64_t low, int64_t high) {
  int has_w = count(ARG(frame, 5)) > 0, has_u = count(ARG(frame, 8)) > 0;
  if (has_w && has_u) mix_terms(frame, low, high, 1, 1);
  else if (has_w) mix_terms(frame, low, high, 1, 0);
  else mix_terms(frame, low, high, 0, 1);
}

XLA_FFI_Error *hushgrad_mix(Frame *frame) {
  if (!is_question(frame)) {
    const XLA_FFI_Buffer *out = RESULT(frame, 0);
    enlarge(out, sizeof(double));
    for (int n = 5; n < 9; n++) enlarge(ARG(frame, n), sizeof(double));
    divide(frame, mix_part, out->dims[0], 1 + (1 << 15) / (out->dims[1] ? out->dims[1] : 1));
  }
  return NULL;
}

/* ---- one small matrix for each agent:
   rows(A, x) -> (agents, s), A_i x_i;   columns(A, r) -> (agents, d), transposed A_i times r_i ---- */

INLINE double sum_of(V8 v) {
#ifdef __AVX512F__
  return _mm512_reduce_add_pd(v);
#else
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
#endif
}

/* n numbers of p, zeros behind them. */
INLINE V8 load(const double *p, int n) {
#ifdef __AVX512F__
  return _mm512_maskz_loadu_pd((__mmask8)(0xFF >> (8 - n)), p);
#else
  V8 v = {0};
  memcpy(&v, p, n * sizeof *p);
  return v;
#endif
}

INLINE void store(double *p, V8 v, int n) {
#ifdef __AVX512F__
  _mm512_mask_storeu_pd(p, (__mmask8)(0xFF >> (8 - n)), v);
#else
  memcpy(p, &v, n * sizeof *p);
#endif
}

typedef double V4 __attribute__((vector_size(32), aligned(8)));

INLINE V4 halves(V8 v) {
  return __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
}

/* The sums of four vectors, with nine instructions instead of sixteen. */
INLINE V4 sums(V4 a, V4 b, V4 c, V4 d) {
  V4 ab = __builtin_shufflevector(a, b, 0, 4, 2, 6) + __builtin_shufflevector(a, b, 1, 5, 3, 7);
  V4 cd = __builtin_shufflevector(c, d, 0, 4, 2, 6) + __builtin_shufflevector(c, d, 1, 5, 3, 7);
  return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

INLINE V8 product(const double *A, const V8 *x, int tail, const int vectors) {
  V8 sum = load(A + 8 * (vectors - 1), tail) * x[vectors - 1];
  UNROLL for (int i = 0; i < vectors - 1; i++) sum += AT(V8, A + 8 * i) * x[i];
  return sum;
}

/* d of at most 8 `vectors`, x in registers. */
INLINE void rows_few(const double *A, const double *x, double *out, int64_t s, int64_t d,
                     const int vectors) {
  int tail = d - 8 * (vectors - 1);
  V8 held[4];
  UNROLL for (int i = 0; i < vectors - 1; i++) held[i] = AT(V8, x + 8 * i);
  held[vectors - 1] = load(x + 8 * (vectors - 1), tail);
  int64_t q = 0;
#define PRODUCT(row) product(A + (row) * d, held, tail, vectors)
  for (; q + 4 <= s; q += 4)
    *(V4 *)(out + q) = sums(halves(PRODUCT(q)), halves(PRODUCT(q + 1)), halves(PRODUCT(q + 2)),
                            halves(PRODUCT(q + 3)));
  for (; q < s; q++) out[q] = sum_of(PRODUCT(q));
}

/* Two rows at a time: twice the loads under way. */
INLINE void rows_many(const double *A, const double *x, double *out, int64_t s, int64_t d) {
  for (int64_t q = 0; q < s; q += 2, A += 2 * d) {
    const double *B = q + 1 < s ? A + d : A;
    V8 a[4] = {{0}, {0}, {0}, {0}}, b[4] = {{0}, {0}, {0}, {0}};
    int64_t c = 0;
    for (; c + 32 <= d; c += 32)
      UNROLL for (int i = 0; i < 4; i++) {
        V8 v = AT(V8, x + c + 8 * i);
        a[i] += AT(V8, A + c + 8 * i) * v;
        b[i] += AT(V8, B + c + 8 * i) * v;
      }
    for (; c < d; c += 8) {
      int n = d - c < 8 ? d - c : 8;
      a[0] += load(A + c, n) * load(x + c, n);
      b[0] += load(B + c, n) * load(x + c, n);
    }
    out[q] = sum_of((a[0] + a[1]) + (a[2] + a[3]));
    if (q + 1 < s) out[q + 1] = sum_of((b[0] + b[1]) + (b[2] + b[3]));
  }
}

static void rows_part(const Frame *frame, int64_t low, int64_t high) {
  const int64_t s = ARG(frame, 0)->dims[1], d = ARG(frame, 0)->dims[2];
  const double *A = DATA(double, frame, 0), *x = DATA(double, frame, 1);
  double *out = RESULT(frame, 0)->data;
#define EACH(call) for (int64_t i = low; i < high; i++) call; break
  switch ((d + 7) / 8) {
    case 1: EACH(rows_few(A + i * s * d, x + i * d, out + i * s, s, d, 1));
    case 2: EACH(rows_few(A + i * s * d, x + i * d, out + i * s, s, d, 2));
    case 3: EACH(rows_few(A + i * s * d, x + i * d, out + i * s, s, d, 3));
    case 4: EACH(rows_few(A + i * s * d, x + i * d, out + i * s, s, d, 4));
    default: EACH(rows_many(A + i * s * d, x + i * d, out + i * s, s, d));
  }
}

INLINE void columns_few(const double *A, const double *r, double *out, int64_t s, int64_t d,
                        const int vectors) {
  int tail = d - 8 * (vectors - 1);
  V8 sum[4] = {{0}, {0}, {0}, {0}};
  for (int64_t q = 0; q < s; q++, A += d) {
    UNROLL for (int i = 0; i < vectors - 1; i++) sum[i] += r[q] * AT(V8, A + 8 * i);
    sum[vectors - 1] += r[q] * load(A + 8 * (vectors - 1), tail);
  }
  UNROLL for (int i = 0; i < vectors - 1; i++) *(V8 *)(out + 8 * i) = sum[i];
  store(out + 8 * (vectors - 1), sum[vectors - 1], tail);
}

/* out += transposed A times r, four rows of A at a time, in the order in which they lie in memory. */
INLINE void add_columns(const double *A, const double *r, double *out, int64_t s, int64_t d) {
  for (int64_t q = 0; q < s; q += 4) {
    const double *row[4];
    double f[4];
    UNROLL for (int i = 0; i < 4; i++) {
      row[i] = A + (q + i < s ? q + i : q) * d;
      f[i] = q + i < s ? r[q + i] : 0;
    }
    int64_t c = 0;
#define ALL(load) (f[0] * load(row[0]) + f[1] * load(row[1])) + (f[2] * load(row[2]) + f[3] * load(row[3]))
#define WHOLE(p) AT(V8, (p) + c)
#define PART(p) load((p) + c, n)
    for (; c + 8 <= d; c += 8) *(V8 *)(out + c) += ALL(WHOLE);
    if (c < d) {
      int n = d - c;
      store(out + c, load(out + c, n) + ALL(PART), n);
    }
  }
}

/* From the last agent to the first: what `rows` read last is still in the cache. */
static void columns_part(const Frame *frame, int64_t low, int64_t high) {
  const int64_t s = ARG(frame, 0)->dims[1], d = ARG(frame, 0)->dims[2];
  const double *A = DATA(double, frame, 0), *r = DATA(double, frame, 1);
  double *out = RESULT(frame, 0)->data;
#define BACK(call) for (int64_t i = high - 1; i >= low; i--) call; break
  switch ((d + 7) / 8) {
    case 1: BACK(columns_few(A + i * s * d, r + i * s, out + i * d, s, d, 1));
    case 2: BACK(columns_few(A + i * s * d, r + i * s, out + i * d, s, d, 2));
    case 3: BACK(columns_few(A + i * s * d, r + i * s, out + i * d, s, d, 3));
    case 4: BACK(columns_few(A + i * s * d, r + i * s, out + i * d, s, d, 4));
    default: BACK((memset(out + i * d, 0, d * sizeof *out), add_columns(A + i * s * d, r + i * s, out + i * d, s, d)));
  }
}

static void divide_matrices(const Frame *frame, Part part) {
  const int64_t *dims = ARG(frame, 0)->dims;
  divide(frame, part, dims[0], 1 + (1 << 16) / (dims[1] * dims[2] + 1));
}

XLA_FFI_Error *hushgrad_rows(Frame *frame) {
  if (!is_question(frame)) divide_matrices(frame, rows_part);
  return NULL;
}

XLA_FFI_Error *hushgrad_columns(Frame *frame) {
  if (!is_question(frame)) divide_matrices(frame, columns_part);
  return NULL;
}

/* ---- gradients of losses of rows, reading every row once:
   loss(A, y, weight, penalty, delta, x) -> (agents, d)
   transposed A_i times (weight_i slope(A_i x_i, y_i)) + penalty_i x_i, the misfit's twice that,
   for A (agents, s, d), y (agents, s), weight (agents, s) or empty, penalty (agents, d) or (agents),
   delta (agents) or empty ---- */

enum { MISFIT, SQUARES, LOGISTIC, HUBER };

/* The derivative of a row's loss in t = a'x. */
INLINE double slope(const int loss, double t, double y, double delta) {
  if (loss == LOGISTIC) {
    double m = y * t, small = exp(-fabs(m));
    return -y * (m > 0 ? small : 1) / (1 + small);
  }
  double r = t - y;
  if (loss == MISFIT) return 2 * r;
  if (loss == SQUARES) return r;
  return r > delta ? delta : r < -delta ? -delta : r;
}

typedef struct {
  const double *A, *y, *weight, *penalty, *x;
  int each; /* a penalty for each coordinate */
  double delta;
  double *out;
  int64_t s, d;
} Loss;

/* n coordinates of the regulariser's gradient from c on, x given. */
INLINE V8 regulariser(const int loss, const Loss *l, int64_t c, int n, V8 x) {
  double factor = loss == MISFIT ? 2 : 1;
  return l->each ? factor * load(l->penalty + c, n) * x : factor * *l->penalty * x;
}

INLINE double slope_of(const int loss, const Loss *l, int64_t q, double t) {
  return slope(loss, t, l->y[q], l->delta) * (l->weight ? l->weight[q] : 1);
}

/* d of at most 8 `vectors`: x and the sum stay in registers. */
INLINE void loss_few(const int loss, const Loss *l, const int vectors) {
  const int64_t d = l->d;
  const double *A = l->A;
  int tail = d - 8 * (vectors - 1);
  V8 held[4], sum[4];
  UNROLL for (int i = 0; i < vectors; i++) {
    int n = i < vectors - 1 ? 8 : tail;
    held[i] = load(l->x + 8 * i, n);
    sum[i] = regulariser(loss, l, 8 * i, n, held[i]);
  }
#define ACCUMULATE(row, f) \
  UNROLL for (int v = 0; v < vectors - 1; v++) sum[v] += (f) * AT(V8, A + (row) * d + 8 * v); \
  sum[vectors - 1] += (f) * load(A + (row) * d + 8 * (vectors - 1), tail);
  int64_t q = 0;
  for (; q + 4 <= l->s; q += 4) {
    V4 t = sums(halves(PRODUCT(q)), halves(PRODUCT(q + 1)), halves(PRODUCT(q + 2)),
                halves(PRODUCT(q + 3)));
    double r[4];
    UNROLL for (int i = 0; i < 4; i++) r[i] = slope_of(loss, l, q + i, t[i]);
    UNROLL for (int i = 0; i < 4; i++) { ACCUMULATE(q + i, r[i]) }
  }
  for (; q < l->s; q++) {
    double r = slope_of(loss, l, q, sum_of(PRODUCT(q)));
    ACCUMULATE(q, r)
  }
  UNROLL for (int i = 0; i < vectors - 1; i++) *(V8 *)(l->out + 8 * i) = sum[i];
  store(l->out + 8 * (vectors - 1), sum[vectors - 1], tail);
}

/* Four rows at a time, which the first-level cache holds for the second reading. */
INLINE void loss_many(const int loss, const Loss *l) {
  for (int64_t c = 0; c < l->d; c += 8) {
    int n = l->d - c < 8 ? l->d - c : 8;
    store(l->out + c, regulariser(loss, l, c, n, load(l->x + c, n)), n);
  }
  for (int64_t q = 0; q < l->s; q += 4) {
    int64_t n = l->s - q < 4 ? l->s - q : 4;
    double r[4];
    rows_many(l->A + q * l->d, l->x, r, n, l->d);
    for (int64_t i = 0; i < n; i++) r[i] = slope_of(loss, l, q + i, r[i]);
    add_columns(l->A + q * l->d, r, l->out, n, l->d);
  }
}

INLINE void loss_part(const int loss, const Frame *frame, int64_t low, int64_t high) {
  const int64_t s = ARG(frame, 0)->dims[1], d = ARG(frame, 0)->dims[2];
  const double *weight = OPTIONAL(frame, 2), *penalty = DATA(double, frame, 3);
  const double *delta = OPTIONAL(frame, 4);
  int each = ARG(frame, 3)->rank > 1;
  for (int64_t i = low; i < high; i++) {
    Loss l = {.A = DATA(double, frame, 0) + i * s * d, .y = DATA(double, frame, 1) + i * s,
              .weight = weight ? weight + i * s : NULL, .penalty = penalty + (each ? i * d : i),
              .x = DATA(double, frame, 5) + i * d, .each = each, .delta = delta ? delta[i] : 0,
              .out = (double *)RESULT(frame, 0)->data + i * d, .s = s, .d = d};
    switch ((d + 7) / 8) {
      case 1: loss_few(loss, &l, 1); break;
      case 2: loss_few(loss, &l, 2); break;
      case 3: loss_few(loss, &l, 3); break;
      case 4: loss_few(loss, &l, 4); break;
      default: loss_many(loss, &l);
    }
  }
}

#define LOSS(name, kind)                                                             \
  static void name##_part(const Frame *frame, int64_t low, int64_t high) {          \
    loss_part(kind, frame, low, high);                                               \
  }                                                                                  \
  XLA_FFI_Error *hushgrad_##name(Frame *frame) {                                     \
    if (!is_question(frame)) divide_matrices(frame, name##_part);                    \
    return NULL;                                                                     \
  }
LOSS(misfit, MISFIT)
LOSS(squares, SQUARES)
LOSS(logistic, LOGISTIC)
LOSS(huber, HUBER)
