/* The limit: hand-written PDG-DS and PDG-NDS with the simulator's draws, for one shape.

   benchmarks/simulator/limit.py compiles this file with -DDIM=d -DROWS=s (least squares) or -DDIM=d
   -DLOGISTIC, because XLA also knows its shapes, and with -DWIDTH=8 and -DWIDTH=4 doubles in a vector:
   the faster code is the limit. Agents' vectors are rows. Links are sorted by
   receiver. Draws lie sender by sender in whole vectors. The sender's step contains the factor
   1 / sum of the shares. An iteration has two phases:
       phase 1, per sender j:    draws, gradient, h_j = lambda_j g_j / sum of its shares
       phase 2, per receiver i:  x_i' = sum over j of w_ij x_j - u_ij h_j
   Two threads divide the agents and meet after each phase. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if WIDTH == 8 && defined __AVX512F__
#define AVX512
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 64")
enum { LANES = 16, PARTS = LANES / WIDTH, MOST_THREADS = 64 }; /* PARTS: vectors in LANES doubles */
enum { DS, LAZY, SQUARE };

/* Loads need no alignment, because rows of ten numbers are not aligned. */
typedef double V __attribute__((vector_size(8 * WIDTH), aligned(8)));
typedef double V4 __attribute__((vector_size(32), aligned(8)));
typedef double V2 __attribute__((vector_size(16), aligned(8)));
typedef uint32_t U __attribute__((vector_size(8 * WIDTH), aligned(4))); /* 2 WIDTH words */
#define AT(type, p) (*(const type *)(p))

/* Every field has eight bytes. benchmarks/simulator/limit.py fills the fields in this order. */
typedef struct {
  int64_t form, agents, blocks, threads;
  double scale, power; /* lambda = scale / n^power (1 - rho / n^2), power 0 or 1 */
  const int64_t *block_agent, *block_draw; /* (blocks + 1) */
  const uint32_t *key0, *key1, *slot;      /* (draws) block by block: shares, then stepsizes, padding */
  const int32_t *share, *shares;           /* (agents) first share, number of shares */
  const int32_t *own, *rho;                /* (agents) draws of the own share and of the stepsize */
  const int32_t *first, *sender, *entry;   /* (agents + 1), (links), (links) links of W and their draws */
  const double *w_own, *w;                 /* (agents), (links) */
  const int32_t *first_b, *sender_b, *entry_b; /* links of B, if B has other links than W */
  const int32_t *colour; /* (links) links of one colour share no agent; NULL unless the run is tiny */
  const double *data, *target, *weight;    /* M, z, sigma; or X, y, penalty */
  int64_t samples;
  double *x, *next;      /* (agents, DIM) */
  double *h, *h_prev;    /* (agents, DIM) */
  double *y, *wx;        /* (agents, DIM) the vector to mix; W x of the last iteration */
  double *u;             /* (draws) */
} Run;

/* ---- draws ---- */

#ifdef AVX512 /* gcc 12 converts vectors of uint32 piece by piece */
INLINE V low(U x) { return _mm512_cvtepu32_pd(_mm512_castsi512_si256((__m512i)x)); }
INLINE V high(U x) { return _mm512_cvtepu32_pd(_mm512_extracti64x4_epi64((__m512i)x, 1)); }
#else
/* Doubles of words: the word is the end of the mantissa of 2^52 + word. */
typedef uint32_t Half __attribute__((vector_size(4 * WIDTH), aligned(4)));
typedef uint64_t Long __attribute__((vector_size(8 * WIDTH), aligned(8)));
INLINE V doubles(Half x) {
  return (V)(__builtin_convertvector(x, Long) | 0x4330000000000000u) - 0x1p52;
}
INLINE V low(U x) { return doubles(AT(Half, &x)); }
INLINE V high(U x) { return doubles(AT(Half, (uint32_t *)&x + WIDTH)); }
#endif

/* 2 WIDTH uniforms in (0, 1], Threefry-2x32-20 of (k, slot). */
INLINE void draw(U a, U b, U slot, uint32_t k, V *restrict u) {
  U c = a ^ b ^ 0x1BD11BDAu, x = a + k, y = b + slot;
#define ROUND(r) x += y; y = (y << r) | (y >> (32 - r)); y ^= x;
#define EVEN ROUND(13) ROUND(15) ROUND(26) ROUND(6)
#define ODD ROUND(17) ROUND(29) ROUND(16) ROUND(24)
  EVEN x += b; y += c + 1;
  ODD  x += c; y += a + 2;
  EVEN x += a; y += b + 3;
  ODD  x += b; y += c + 4;
  EVEN x += c; y += a + 5;
  y = (y >> 11) + 1;
  u[0] = low(x) * 0x1p-32 + low(y) * 0x1p-53;
  u[1] = high(x) * 0x1p-32 + high(y) * 0x1p-53;
}

INLINE void draw_block(const Run *run, int64_t block, uint32_t k) {
  for (int64_t e = run->block_draw[block]; e < run->block_draw[block + 1]; e += 2 * WIDTH)
    draw(AT(U, run->key0 + e), AT(U, run->key1 + e), AT(U, run->slot + e), k, (V *)(run->u + e));
}

typedef struct { double base, decay; } Stepsize;

INLINE Stepsize stepsize(const Run *run, int64_t k) {
  double n = k + 1.0;
  return (Stepsize){run->power == 0 ? run->scale : run->scale / n, 1 / (n * n)};
}

/* ---- threads ---- */

typedef struct { _Atomic int waiting, turn, taken; int n; } Barrier; /* taken: number of tiles taken */

static void meet(Barrier *barrier) {
  if (barrier->n == 1) return;
  int turn = atomic_load(&barrier->turn);
  if (atomic_fetch_add(&barrier->waiting, 1) == barrier->n - 1) {
    atomic_store(&barrier->waiting, 0);
    atomic_store(&barrier->turn, turn + 1);
  } else {
    for (long spins = 0; atomic_load(&barrier->turn) == turn; spins++)
      if (spins > 20000) sched_yield(); /* another process has our core */
  }
}

typedef struct {
  void (*part)(const void *run, int64_t k, int64_t n, int thread, Barrier *barrier);
  const void *run;
  int64_t k, n;
  int thread;
  Barrier *barrier;
} Job;

static void *work(void *given) {
  Job *job = given;
  job->part(job->run, job->k, job->n, job->thread, job->barrier);
  return NULL;
}

static void divide(void (*part)(const void *, int64_t, int64_t, int, Barrier *), const void *run,
                   int64_t k, int64_t n, int threads) {
  Barrier barrier = {.n = threads};
  pthread_t ids[MOST_THREADS];
  Job jobs[MOST_THREADS];
  for (int t = 0; t < threads; t++) jobs[t] = (Job){part, run, k, n, t, &barrier};
  for (int t = 1; t < threads; t++) pthread_create(&ids[t], NULL, work, &jobs[t]);
  work(&jobs[0]);
  for (int t = 1; t < threads; t++) pthread_join(ids[t], NULL);
}

#ifndef LOGISTIC

/* ---- rows of DIM numbers in registers: vectors, then four, two, one ---- */

enum { NV = DIM / WIDTH, N4 = DIM % WIDTH / 4, N2 = DIM % 4 / 2, N1 = DIM % 2 };
enum { AT4 = WIDTH * NV, AT2 = AT4 + 4 * N4, AT1 = DIM - 1 };
typedef struct { V wide[NV ? NV : 1]; V4 four; V2 two; double one; } Row;

/* r += f p */
INLINE void add(Row *r, double f, const double *p) {
  UNROLL for (int i = 0; i < NV; i++) r->wide[i] += f * AT(V, p + WIDTH * i);
  if (N4) r->four += f * AT(V4, p + AT4);
  if (N2) r->two += f * AT(V2, p + AT2);
  if (N1) r->one += f * p[AT1];
}

INLINE Row times(double f, const double *p) {
  Row r;
  UNROLL for (int i = 0; i < NV; i++) r.wide[i] = f * AT(V, p + WIDTH * i);
  if (N4) r.four = f * AT(V4, p + AT4);
  if (N2) r.two = f * AT(V2, p + AT2);
  if (N1) r.one = f * p[AT1];
  return r;
}

INLINE void put(double *p, double f, const Row *r) {
  UNROLL for (int i = 0; i < NV; i++) *(V *)(p + WIDTH * i) = f * r->wide[i];
  if (N4) *(V4 *)(p + AT4) = f * r->four;
  if (N2) *(V2 *)(p + AT2) = f * r->two;
  if (N1) p[AT1] = f * r->one;
}

#if WIDTH == 8
INLINE V4 fold(V t) {
  return __builtin_shufflevector(t, t, 0, 1, 2, 3) + __builtin_shufflevector(t, t, 4, 5, 6, 7);
}
#else
INLINE V4 fold(V t) { return t; }
#endif

/* Four partial sums of p · x. */
INLINE V4 product(const double *p, const double *x) {
  V4 sum = {0};
  if (NV) {
    V t = AT(V, p) * AT(V, x);
    UNROLL for (int i = 1; i < NV; i++) t += AT(V, p + WIDTH * i) * AT(V, x + WIDTH * i);
    sum = fold(t);
  }
  if (N4) sum += AT(V4, p + AT4) * AT(V4, x + AT4);
  if (N2) {
    V2 t = AT(V2, p + AT2) * AT(V2, x + AT2), zero = {0};
    sum += __builtin_shufflevector(t, zero, 0, 1, 2, 3);
  }
  if (N1) sum[0] += p[AT1] * x[AT1];
  return sum;
}

/* The sums of four vectors, in nine instructions instead of sixteen. */
INLINE V4 sums(V4 a, V4 b, V4 c, V4 d) {
  V4 ab = __builtin_shufflevector(a, b, 0, 4, 2, 6) + __builtin_shufflevector(a, b, 1, 5, 3, 7);
  V4 cd = __builtin_shufflevector(c, d, 0, 4, 2, 6) + __builtin_shufflevector(c, d, 1, 5, 3, 7);
  return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

/* Half the gradient, M'(M x - z) + sigma x. */
INLINE Row gradient(const Run *run, int64_t i, const double *x) {
  const double *M = run->data + i * ROWS * DIM, *z = run->target + i * ROWS;
  double r[ROWS];
  UNROLL for (int q = 0; q + 4 <= ROWS; q += 4)
    *(V4 *)(r + q) = sums(product(M + q * DIM, x), product(M + (q + 1) * DIM, x),
                          product(M + (q + 2) * DIM, x), product(M + (q + 3) * DIM, x)) -
                     AT(V4, z + q);
  UNROLL for (int q = ROWS / 4 * 4; q < ROWS; q++) {
    V4 s = product(M + q * DIM, x);
    r[q] = (s[0] + s[1]) + (s[2] + s[3]) - z[q];
  }
  Row g = times(run->weight[i], x);
  UNROLL for (int q = 0; q < ROWS; q++) add(&g, r[q], M + q * DIM);
  return g;
}

/* ---- any number of agents, one trial ---- */

INLINE void send(const Run *run, int form, int64_t j, Stepsize step, const double *x,
                 const double *x_prev, int is_first) {
  double sum = 0;
  const double *shares = run->u + run->share[j];
  for (int t = 0, n = run->shares[j]; t < n; t++) sum += shares[t];
  double lam = 2 * step.base * (1 - run->u[run->rho[j]] * step.decay);
  int64_t at = j * DIM;
  Row g = gradient(run, j, x + at);
  if (form == DS) {
    put(run->h + at, lam / sum, &g);
    return;
  }
  double lambda_g[DIM];
  put(lambda_g, lam, &g);
  const double *before = form == LAZY ? x_prev : run->wx;
  double each = is_first && form == SQUARE ? 1 : 1 / sum;
  for (int c = 0; c < DIM; c++) {
    run->h[at + c] = each * (lambda_g[c] - run->h_prev[at + c]);
    run->h_prev[at + c] = lambda_g[c];
    run->y[at + c] = 2 * x[at + c] - before[at + c];
  }
}

INLINE void receive(const Run *run, int form, int64_t i, const double *x, double *next,
                    int is_first) {
  int64_t at = i * DIM;
  const double *h = run->h, *u = run->u;
  const double *mixed = form == DS ? x : run->y;
  double half = form == LAZY ? 0.5 : 1;
  Row sum = times(form == LAZY ? 0.5 + 0.5 * run->w_own[i] : run->w_own[i], mixed + at);
  if (form != SQUARE) {
    add(&sum, -u[run->own[i]], h + at);
    for (int e = run->first[i], end = run->first[i + 1]; e < end; e++) {
      int64_t j = run->sender[e] * (int64_t)DIM;
      add(&sum, half * run->w[e], mixed + j);
      add(&sum, -u[run->entry[e]], h + j);
    }
    put(next + at, 1, &sum);
    return;
  }
  /* 2 W x - W (W x_prev) = W (2x - W x_prev); the next iteration uses W x again */
  Row wx = times(run->w_own[i], x + at);
  for (int e = run->first[i], end = run->first[i + 1]; e < end; e++) {
    int64_t j = run->sender[e] * (int64_t)DIM;
    add(&wx, run->w[e], x + j);
    add(&sum, run->w[e], mixed + j);
  }
  if (is_first) { /* x = W x - h */
    sum = wx;
    add(&sum, -1, h + at);
  } else {
    add(&sum, -u[run->own[i]], h + at);
    for (int e = run->first_b[i], end = run->first_b[i + 1]; e < end; e++)
      add(&sum, -u[run->entry_b[e]], h + run->sender_b[e] * (int64_t)DIM);
  }
  put(run->wx + at, 1, &wx);
  put(next + at, 1, &sum);
}

INLINE void iterate(const Run *run, int form, int64_t k, int64_t n, int thread, Barrier *barrier) {
  int64_t low = run->blocks * thread / barrier->n, high = run->blocks * (thread + 1) / barrier->n;
  double *x = run->x, *next = run->next;
  for (int64_t end = k + n; k < end; k++) {
    Stepsize step = stepsize(run, k);
    for (int64_t block = low; block < high; block++) {
      draw_block(run, block, (uint32_t)k);
      for (int64_t j = run->block_agent[block]; j < run->block_agent[block + 1]; j++)
        send(run, form, j, step, x, next, k == 0);
    }
    meet(barrier);
    for (int64_t i = run->block_agent[low]; i < run->block_agent[high]; i++)
      receive(run, form, i, x, next, k == 0);
    meet(barrier);
    double *swap = x;
    x = next, next = swap;
  }
}

static void part(const void *given, int64_t k, int64_t n, int thread, Barrier *barrier) {
  const Run *run = given;
  switch (run->form) { /* the compiler specialises each form */
    case DS: iterate(run, DS, k, n, thread, barrier); break;
    case LAZY: iterate(run, LAZY, k, n, thread, barrier); break;
    case SQUARE: iterate(run, SQUARE, k, n, thread, barrier); break;
  }
}

#if DIM * ROWS <= 16

#ifdef AVX512

/* ---- PDG-DS with at most eight agents: everything in registers, a lane for each agent ---- */

enum { COLOURS = 3 };

INLINE V permute(V from, const int64_t *index) {
  return _mm512_permutexvar_pd(_mm512_loadu_si512(index), from);
}

INLINE V pick(const V *from, const int64_t *index) {
  return _mm512_permutex2var_pd(from[0], _mm512_loadu_si512(index), from[1]);
}

typedef struct {
  uint32_t key0[32], key1[32], slot[32]; /* own shares, stepsizes, sixteen links */
  int64_t take[COLOURS][8]; /* the draw of an agent's link of a colour */
  int64_t from[COLOURS][8]; /* the agent at the other end */
  V has[COLOURS], w[COLOURS], w_own;
  V M[ROWS][DIM], z[ROWS], sigma;
} Lanes;

static void lay_out(const Run *run, Lanes *lanes) {
  memset(lanes, 0, sizeof *lanes);
  int links = 16;
#define COPY(to, from) \
  lanes->key0[to] = run->key0[from], lanes->key1[to] = run->key1[from], lanes->slot[to] = run->slot[from]
  for (int p = 0; p < COLOURS; p++)
    for (int l = 0; l < 8; l++) lanes->from[p][l] = l;
  for (int i = 0; i < run->agents; i++) {
    COPY(i, run->own[i]);
    COPY(8 + i, run->rho[i]);
    lanes->w_own[i] = run->w_own[i];
    lanes->sigma[i] = run->weight[i];
    for (int q = 0; q < ROWS; q++) {
      lanes->z[q][i] = run->target[i * ROWS + q];
      for (int c = 0; c < DIM; c++) lanes->M[q][c][i] = run->data[(i * ROWS + q) * DIM + c];
    }
    for (int e = run->first[i]; e < run->first[i + 1]; e++, links++) {
      int j = run->sender[e], p = run->colour[e];
      COPY(links, run->entry[e]);
      lanes->take[p][j] = links - 16;
      lanes->has[p][j] = 1;
      lanes->w[p][j] = run->w[e];
      lanes->from[p][i] = j;
    }
  }
}

static void tiny(const Run *run, int64_t k, int64_t n) {
  Lanes s;
  lay_out(run, &s);
  V x[DIM] = {0};
  for (int i = 0; i < run->agents; i++)
    for (int c = 0; c < DIM; c++) x[c][i] = run->x[i * DIM + c];
  for (int64_t end = k + n; k < end; k++) {
    Stepsize step = stepsize(run, k);
    V own[2], links[2], u[COLOURS], r[ROWS], h[DIM]; /* own[1]: draws of the stepsizes */
    draw(AT(U, s.key0), AT(U, s.key1), AT(U, s.slot), (uint32_t)k, own);
    draw(AT(U, s.key0 + 16), AT(U, s.key1 + 16), AT(U, s.slot + 16), (uint32_t)k, links);
    V sum = own[0];
    UNROLL for (int p = 0; p < COLOURS; p++) sum += u[p] = s.has[p] * pick(links, s.take[p]);
    V f = (2 * step.base - (2 * step.base * step.decay) * own[1]) / sum;
    UNROLL for (int q = 0; q < ROWS; q++) {
      r[q] = -s.z[q];
      UNROLL for (int c = 0; c < DIM; c++) r[q] += s.M[q][c] * x[c];
    }
    UNROLL for (int c = 0; c < DIM; c++) {
      h[c] = s.sigma * x[c];
      UNROLL for (int q = 0; q < ROWS; q++) h[c] += s.M[q][c] * r[q];
      h[c] *= f;
    }
    UNROLL for (int c = 0; c < DIM; c++) {
      V all = s.w_own * x[c] - own[0] * h[c];
      UNROLL for (int p = 0; p < COLOURS; p++) all += permute(s.w[p] * x[c] - u[p] * h[c], s.from[p]);
      x[c] = all;
    }
  }
  for (int i = 0; i < run->agents; i++)
    for (int c = 0; c < DIM; c++) run->x[i * DIM + c] = x[c][i];
}

#endif

/* ---- PDG-DS, many trials of a few agents: a lane for each trial ---- */

/* Sixteen trials end before the next sixteen begin, so L1 holds all their numbers. */
typedef struct {
  int64_t agents, tiles, threads;
  double scale, power;
  const uint32_t *split0, *split1, *step0, *step1; /* (agents, tiles, 16) keys */
  const int32_t *share;                            /* (agents + 1) first share of each sender */
  const int32_t *own;                              /* (agents) the own share */
  const int32_t *first, *sender, *entry;           /* (agents + 1), (links), (links) */
  const double *w_own, *w;                         /* (agents), (links) */
  const double *data, *target, *weight;            /* M, z, sigma */
  double *x;                                       /* (tiles, agents, DIM, 16) */
} Trials;

INLINE void draws(const uint32_t *key0, const uint32_t *key1, uint32_t slot, uint32_t k, V *u) {
  U zero = {0};
  UNROLL for (int w = 0; w < LANES; w += 2 * WIDTH)
    draw(AT(U, key0 + w), AT(U, key1 + w), zero + slot, k, u + w / WIDTH);
}

static void tile(const Trials *run, int64_t at, int64_t k, int64_t n, V *h, V *next, V *u) {
  int64_t m = run->agents;
  V *x = (V *)(run->x + at * m * DIM * LANES), *home = x;
  Run schedule = {.scale = run->scale, .power = run->power};
  for (int64_t end = k + n; k < end; k++) {
    Stepsize step = stepsize(&schedule, k);
    for (int64_t j = 0; j < m; j++) {
      int64_t key = (j * run->tiles + at) * LANES;
      V sum[PARTS] = {{0}}, rho[PARTS];
      for (int e = run->share[j]; e < run->share[j + 1]; e++) {
        draws(run->split0 + key, run->split1 + key, (uint32_t)(e - run->share[j]), (uint32_t)k, u + PARTS * e);
        UNROLL for (int l = 0; l < PARTS; l++) sum[l] += u[PARTS * e + l];
      }
      draws(run->step0 + key, run->step1 + key, 0, (uint32_t)k, rho);
      const double *M = run->data + j * ROWS * DIM, *z = run->target + j * ROWS;
      for (int l = 0; l < PARTS; l++) {
        V f = (2 * step.base - (2 * step.base * step.decay) * rho[l]) / sum[l], g[DIM];
        UNROLL for (int c = 0; c < DIM; c++) g[c] = run->weight[j] * x[(j * DIM + c) * PARTS + l];
        UNROLL for (int q = 0; q < ROWS; q++) {
          V r = M[q * DIM] * x[j * DIM * PARTS + l] - z[q];
          UNROLL for (int c = 1; c < DIM; c++) r += M[q * DIM + c] * x[(j * DIM + c) * PARTS + l];
          UNROLL for (int c = 0; c < DIM; c++) g[c] += M[q * DIM + c] * r;
        }
        UNROLL for (int c = 0; c < DIM; c++) h[(j * DIM + c) * PARTS + l] = f * g[c];
      }
    }
    for (int64_t i = 0; i < m; i++) {
      V sum[PARTS * DIM];
      UNROLL for (int c = 0; c < PARTS * DIM; c++)
        sum[c] = run->w_own[i] * x[i * DIM * PARTS + c] - u[PARTS * run->own[i] + c % PARTS] * h[i * DIM * PARTS + c];
      for (int e = run->first[i]; e < run->first[i + 1]; e++) {
        int64_t j = run->sender[e] * (int64_t)DIM * PARTS;
        V *share = u + PARTS * run->entry[e];
        UNROLL for (int c = 0; c < PARTS * DIM; c++)
          sum[c] += run->w[e] * x[j + c] - share[c % PARTS] * h[j + c];
      }
      UNROLL for (int c = 0; c < PARTS * DIM; c++) next[i * DIM * PARTS + c] = sum[c];
    }
    V *swap = x;
    x = next, next = swap;
  }
  if (x != home) memcpy(home, x, m * DIM * LANES * sizeof(double));
}

static void tiles(const void *given, int64_t k, int64_t n, int thread, Barrier *barrier) {
  const Trials *run = given;
  int64_t m = run->agents, shares = run->share[m];
  V *room = aligned_alloc(64, (2 * m * DIM + shares) * LANES * sizeof(double));
  (void)thread; /* a free thread takes the next tile */
  for (int64_t at; (at = atomic_fetch_add(&barrier->taken, 1)) < run->tiles;)
    tile(run, at, k, n, room, room + PARTS * m * DIM, room + 2 * PARTS * m * DIM);
  free(room);
}

void advance_trials(const Trials *run, int64_t k, int64_t n) {
  divide(tiles, run, k, n, (int)run->threads);
}

#endif
#else

/* ---- PDG-DS on logistic losses: one pass over the data, memory bound ---- */

/* e^t to about one unit in the last place, |t| <= 708: 2^i e^r, |r| <= ln(2)/2. */
INLINE double exponential(double t) {
  t = t < -708 ? -708 : t > 708 ? 708 : t;
  double shifted = t * 0x1.71547652b82fep0 + 0x1.8p52, i = shifted - 0x1.8p52;
  double r = t - i * 0x1.62e42fefa38p-1 - i * 0x1.ef35793c7673p-45, p = 1.0 / 6227020800;
  static const double inverse[] = {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880,
                                   1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24,
                                   1.0 / 6, 1.0 / 2, 1, 1};
  UNROLL for (int c = 0; c < 13; c++) p = p * r + inverse[c];
  int64_t bits;
  memcpy(&bits, &shifted, 8);
  bits = (bits + 1023) << 52; /* the low bits of `shifted` are i */
  double power;
  memcpy(&power, &bits, 8);
  return p * power;
}

/* penalty x - X' (y / (1 + exp(y X x))), four rows at a time, each read once. */
INLINE void gradient(const Run *run, int64_t agent, const double *restrict x, double *restrict g) {
  enum { GROUP = 4 };
  int64_t n = run->samples;
  const double *X = run->data + agent * n * DIM, *label = run->target + agent * n;
  const double *penalty = run->weight + agent * DIM;
  for (int c = 0; c < DIM; c++) g[c] = penalty[c] * x[c];
  int64_t r = 0;
  for (; r + GROUP <= n; r += GROUP) {
    const double *row = X + r * DIM;
    V partial[GROUP] = {{0}};
    for (int c = 0; c < DIM / WIDTH * WIDTH; c += WIDTH)
      UNROLL for (int q = 0; q < GROUP; q++) partial[q] += AT(V, row + q * DIM + c) * AT(V, x + c);
    double pull[GROUP];
    for (int q = 0; q < GROUP; q++) {
      double t = 0;
      for (int l = 0; l < WIDTH; l++) t += partial[q][l];
      for (int c = DIM / WIDTH * WIDTH; c < DIM; c++) t += row[q * DIM + c] * x[c];
      pull[q] = t;
    }
    for (int q = 0; q < GROUP; q++)
      pull[q] = label[r + q] / (1 + exponential(label[r + q] * pull[q]));
    for (int c = 0; c < DIM; c++)
      g[c] -= (pull[0] * row[c] + pull[1] * row[DIM + c]) +
              (pull[2] * row[2 * DIM + c] + pull[3] * row[3 * DIM + c]);
  }
  for (; r < n; r++) {
    double t = 0;
    for (int c = 0; c < DIM; c++) t += X[r * DIM + c] * x[c];
    double pull = label[r] / (1 + exponential(label[r] * t));
    for (int c = 0; c < DIM; c++) g[c] -= pull * X[r * DIM + c];
  }
}

static void part(const void *given, int64_t k, int64_t n, int thread, Barrier *barrier) {
  const Run *run = given;
  int64_t low = run->agents * thread / barrier->n, high = run->agents * (thread + 1) / barrier->n;
  double *x = run->x, *next = run->next, *h = run->h;
  for (int64_t end = k + n; k < end; k++) {
    Stepsize step = stepsize(run, k);
    if (thread == 0)
      for (int64_t block = 0; block < run->blocks; block++) draw_block(run, block, (uint32_t)k);
    meet(barrier);
    for (int64_t j = low; j < high; j++) {
      double sum = 0;
      for (int t = 0; t < run->shares[j]; t++) sum += run->u[run->share[j] + t];
      double f = step.base * (1 - run->u[run->rho[j]] * step.decay) / sum;
      gradient(run, j, x + j * DIM, h + j * DIM);
      for (int c = 0; c < DIM; c++) h[j * DIM + c] *= f;
    }
    meet(barrier);
    for (int64_t i = low; i < high; i++) {
      double *restrict to = next + i * DIM, w = run->w_own[i], u = run->u[run->own[i]];
      for (int c = 0; c < DIM; c++) to[c] = w * x[i * DIM + c] - u * h[i * DIM + c];
      for (int e = run->first[i]; e < run->first[i + 1]; e++) {
        const double *xj = x + run->sender[e] * (int64_t)DIM, *hj = h + run->sender[e] * (int64_t)DIM;
        w = run->w[e], u = run->u[run->entry[e]];
        for (int c = 0; c < DIM; c++) to[c] += w * xj[c] - u * hj[c];
      }
    }
    meet(barrier);
    double *swap = x;
    x = next, next = swap;
  }
}

#endif

/* Run n iterations, from iteration k on. run->x holds the iterate before and after. */
void advance(Run *run, int64_t k, int64_t n) {
#if defined AVX512 && !defined LOGISTIC && DIM * ROWS <= 16
  if (run->form == DS && run->colour) {
    tiny(run, k, n);
    return;
  }
#endif
  divide(part, run, k, n, (int)run->threads);
  if (n % 2) {
    double *swap = run->x;
    run->x = run->next, run->next = swap;
  }
}
