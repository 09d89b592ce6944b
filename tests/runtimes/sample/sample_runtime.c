/* sample_runtime.c - a complete superfluid runtime in plain C: start your own from here.
 *
 * The "model" is a hash, so there is no maths in the way of the interface. Its KV cache is one 64-bit word per
 * position, the hash of everything up to it; the logits after a position are spread by that word. So the text
 * depends on every token of the lane and on nothing else: any mistake with lanes or positions shows.
 *
 *   cc -std=c99 -O2 -fPIC -shared -fvisibility=hidden -I abi/include sample_runtime.c -o libsample.so
 */
#define _POSIX_C_SOURCE 200112L /* nanosleep */
#include "superfluid_runtime.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

SFR_DESCRIPTOR_SECTION static const char DESCRIPTOR[] =
  "{\"descriptor_version\":1,\"id\":\"sample\",\"version\":\"0.1.0\","
  "\"about\":\"a hash that pretends to be a model; the start of your own runtime\",\"abi\":[0,2],"
  "\"formats\":[{\"format\":\"gguf\",\"versions\":[2,3],\"architectures\":[\"toy\"]}],"
  "\"interfaces\":[\"sf.engine/1\",\"sf.inspect/1\",\"sf.kv/1\"],"
  "\"capabilities\":{\"workload\":{\"chat\":true,\"completion\":true,\"embedding\":\"a hash has no vectors\"},"
  "\"kv\":{\"fork\":true,\"truncate\":true,\"export\":true,\"import\":true,\"bits\":\"a position is one 64-bit hash\"},"
  "\"determinism\":{\"batch_invariant\":true}},"
  "\"options\":[{\"key\":\"delay-us\",\"type\":\"int\",\"default\":0,\"min\":0,\"max\":1000000,"
  "\"help\":\"microseconds to sleep in each step\"}]}";

#define VOCAB_MAX (1u << 20)
#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE) /* stats is [any]: it may run during a step */
#define STORE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELEASE)

typedef struct facts { uint32_t vocab, seed, ctx_trained, eos; } facts;
typedef struct knobs { int64_t ctx_max, lanes_max, step_tokens_max, threads, kv_cells, delay_us; } knobs;
typedef struct lane { uint64_t id, *kv; uint32_t len; } lane; /* id 0 = free slot */

struct sfr_model {
  facts facts;
  knobs knobs;
  lane *lanes;      /* [lanes_max] */
  uint64_t *kv;     /* [lanes_max, ctx_max], untouched pages cost nothing */
  float *logits;    /* [rows_cap, vocab] */
  sfr_lane_out *outs; /* [lanes_max] */
  sfr_row *rows;    /* [step_tokens_max] */
  uint64_t rows_cap, next_lane, ticket, seq;
  uint32_t out_count, row_count;
  int in_flight;
  sfr_stats stats;
};

static const sfr_host *host; /* set once by init, static by contract */

/* ------------------------------------------------------------------ errors, buffers, layout rules */
static sfr_status fail(sfr_error *err, sfr_status code, const char *field, const char *format, ...) {
  char text[SFR_ERROR_MESSAGE_MAX + 1];
  va_list args;
  size_t n;
  if (!err || err->struct_size < sizeof *err) return code;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  n = strlen(text);
  if (n == SFR_ERROR_MESSAGE_MAX) /* perhaps cut: end at a character border */
    while (n && ((unsigned char)text[n - 1] & 0x80)) n--;
  memcpy(err->message, text, n);
  err->message_len = (uint32_t)n;
  n = strlen(field) < SFR_ERROR_FIELD_MAX ? strlen(field) : SFR_ERROR_FIELD_MAX;
  memcpy(err->field, field, n);
  err->field_len = (uint32_t)n;
  err->code = code;
  err->native_code = 0;
  err->scope = SFR_SCOPE_CALL;
  return code;
}

static sfr_status put(sfr_buf *out, const char *text) {
  if (!out) return SFR_E_ARG;
  out->needed = strlen(text);
  if (out->cap < out->needed || !out->p) return SFR_E_SMALL_BUFFER;
  memcpy(out->p, text, out->needed);
  return SFR_OK;
}

/* L4: copies a struct or record of the writer's size; what we do not know must be zero. */
static sfr_status take(void *mine, size_t size, const void *theirs, size_t written, const char *what, sfr_error *err) {
  const unsigned char *bytes = theirs;
  size_t i;
  if (!theirs || written < size || written > 4096)
    return fail(err, SFR_E_ABI, what, "%s is missing or has a size that ABI 0.2 does not know", what);
  for (i = size; i < written; i++)
    if (bytes[i]) return fail(err, SFR_E_UNSUPPORTED, what, "%s asks for something newer than ABI 0.2", what);
  memcpy(mine, theirs, size);
  return SFR_OK;
}
#define TAKE(mine, theirs, err) \
  take(&(mine), sizeof(mine), (theirs), (theirs) ? (theirs)->struct_size : 0, #theirs, (err))

/* An array lies within `space` bytes and its records are whole. Addresses have all the space there is. */
static sfr_status check_array(sfr_array a, uint64_t space, size_t record, const char *what, sfr_error *err) {
  if (a.count == 0) return SFR_OK;
  if (a.at % 8 || a.stride % 4 || a.stride < record || a.at > space || a.count > (space - a.at) / a.stride ||
      (space == UINT64_MAX && !a.at))
    return fail(err, SFR_E_ABI, what, "%s: offset %llu, count %u or stride %u breaks the layout rules", what,
                (unsigned long long)a.at, a.count, a.stride);
  return SFR_OK;
}

static int is(sfr_str s, const char *text) { return s.n == strlen(text) && (!s.n || !memcmp(s.p, text, s.n)); }

/* ------------------------------------------------------------------ the model file: a small, safe GGUF reader */
typedef struct reader { FILE *f; uint64_t left; } reader;

static int get(reader *r, void *out, uint64_t n) {
  if (n > r->left || fread(out, 1, (size_t)n, r->f) != n) return 0;
  r->left -= n;
  return 1;
}

static int skip(reader *r, uint64_t n) {
  if (n > r->left || fseek(r->f, (long)n, SEEK_CUR)) return 0;
  r->left -= n;
  return 1;
}

/* Reads a string; what does not fit into out is skipped and leaves it empty. */
static int get_text(reader *r, char *out, uint64_t cap) {
  uint64_t n;
  out[0] = 0;
  if (!get(r, &n, 8)) return 0;
  if (n >= cap) return skip(r, n);
  if (!get(r, out, n)) return 0;
  out[n] = 0;
  return 1;
}

static int skip_value(reader *r, uint32_t type, int in_array) {
  static const uint32_t sizes[13] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}; /* 8 is a string, 9 an array */
  uint64_t n;
  uint32_t item;
  if (type > 12) return 0;
  if (sizes[type]) return skip(r, sizes[type]);
  if (type == 8) return get(r, &n, 8) && skip(r, n);
  if (in_array || !get(r, &item, 4) || !get(r, &n, 8) || item > 12) return 0;
  if (sizes[item]) return n <= r->left / sizes[item] && skip(r, n * sizes[item]);
  while (n-- > 0) /* ends at the latest when the file does */
    if (!skip_value(r, item, 1)) return 0;
  return 1;
}

static int read_metadata(reader *r, facts *out, char *arch, uint64_t arch_cap) {
  uint64_t tensors, pairs;
  if (!get(r, &tensors, 8) || !get(r, &pairs, 8)) return 0;
  for (; pairs > 0; pairs--) {
    char key[64];
    uint32_t type, *to;
    if (!get_text(r, key, sizeof key) || !get(r, &type, 4)) return 0;
    to = !strcmp(key, "toy.vocab_size")                ? &out->vocab
         : !strcmp(key, "toy.seed")                    ? &out->seed
         : !strcmp(key, "toy.context_length")          ? &out->ctx_trained
         : !strcmp(key, "tokenizer.ggml.eos_token_id") ? &out->eos
                                                       : NULL;
    if (type == 8 && !strcmp(key, "general.architecture")) {
      if (!get_text(r, arch, arch_cap)) return 0;
    } else if (to && type == 4) {
      if (!get(r, to, 4)) return 0;
    } else if (!skip_value(r, type, 0)) {
      return 0;
    }
  }
  return 1;
}

static sfr_status read_model(const sfr_open *req, facts *out, sfr_error *err) {
  char path[4096], arch[64] = "";
  uint32_t magic = 0, version = 0;
  sfr_str name;
  reader r;
  long size;
  int whole;
  if (req->paths.count != 1) return fail(err, SFR_E_ARG, "paths", "a toy model is one file, got %u", req->paths.count);
  memcpy(&name, (const void *)(uintptr_t)req->paths.at, sizeof name);
  if (!name.p || name.n == 0 || name.n >= sizeof path || memchr(name.p, 0, (size_t)name.n))
    return fail(err, SFR_E_ARG, "paths", "the path is empty, longer than 4095 bytes or holds a NUL");
  memcpy(path, name.p, (size_t)name.n);
  path[name.n] = 0;
  if (!(r.f = fopen(path, "rb")))
    return fail(err, SFR_E_NOT_FOUND, "paths", "cannot open %s: %s", path, strerror(errno));
  size = fseek(r.f, 0, SEEK_END) ? 0 : ftell(r.f);
  r.left = size > 0 && !fseek(r.f, 0, SEEK_SET) ? (uint64_t)size : 0;
  memset(out, 0, sizeof *out);
  out->eos = SFR_NONE;
  whole = get(&r, &magic, 4) && magic == 0x46554747u && get(&r, &version, 4) && (version == 2 || version == 3) &&
          read_metadata(&r, out, arch, sizeof arch);
  fclose(r.f);
  if (magic != 0x46554747u) return fail(err, SFR_E_FORMAT, "paths", "%s is not a GGUF file", path);
  if (!whole) return fail(err, SFR_E_FORMAT, "paths", "%s: GGUF version %u with a damaged header", path, version);
  if (strcmp(arch, "toy")) return fail(err, SFR_E_FORMAT, "general.architecture", "architecture %s is not toy", arch);
  if (out->vocab == 0 || out->vocab > VOCAB_MAX)
    return fail(err, SFR_E_FORMAT, "toy.vocab_size", "vocabulary of %u, want 1 to %u", out->vocab, VOCAB_MAX);
  return SFR_OK;
}

/* ------------------------------------------------------------------ open, describe, close */
static sfr_status read_options(const sfr_open *req, const facts *model, knobs *out, sfr_error *err) {
  struct { const char *key; int64_t *to, min, max, initial; } known[6];
  uint32_t i, k;
  const uint32_t trained = model->ctx_trained;
  known[0].key = "ctx.max", known[0].to = &out->ctx_max, known[0].max = 1 << 20;
  known[0].initial = trained >= 1 && trained < 2048 ? trained : 2048;
  known[1].key = "lanes.max", known[1].to = &out->lanes_max, known[1].max = 256, known[1].initial = 8;
  known[2].key = "step.tokens.max", known[2].to = &out->step_tokens_max, known[2].max = 1 << 16;
  known[2].initial = 512;
  known[3].key = "threads", known[3].to = &out->threads, known[3].max = 1024, known[3].initial = 1; /* at most */
  known[4].key = "kv.cells", known[4].to = &out->kv_cells, known[4].max = 1 << 30, known[4].initial = 0;
  known[5].key = "x.sample.delay-us", known[5].to = &out->delay_us, known[5].max = 1000000, known[5].initial = 0;
  for (k = 0; k < 6; k++) known[k].min = k < 5, *known[k].to = known[k].initial;
  for (i = 0; i < req->opts.count; i++) {
    char *record = (char *)(uintptr_t)req->opts.at + (size_t)i * req->opts.stride, key[SFR_ERROR_FIELD_MAX] = "";
    uint32_t honoured = SFR_HONOURED_IGNORED;
    sfr_opt opt;
    sfr_status status = take(&opt, sizeof opt, record, req->opts.stride, "opts", err);
    if (status) return status;
    if (opt.flags & ~SFR_OPT_MUST) return fail(err, SFR_E_UNSUPPORTED, "opts", "unknown flags 0x%x", opt.flags);
    if (opt.key.n && !opt.key.p) return fail(err, SFR_E_ARG, "opts", "option %u has no key", i);
    memcpy(key, opt.key.p ? opt.key.p : "", opt.key.n < sizeof key ? (size_t)opt.key.n : sizeof key - 1);
    for (k = 0; k < 6; k++) {
      if (!is(opt.key, known[k].key)) continue;
      if (opt.type == SFR_T_I64 && opt.i >= known[k].min && opt.i <= known[k].max)
        *known[k].to = opt.i, honoured = SFR_HONOURED_EXACTLY;
      else if (opt.flags & SFR_OPT_MUST)
        return fail(err, SFR_E_OPTION, key, "%s takes an integer from %d to %d", key, (int)known[k].min,
                    (int)known[k].max);
    }
    memcpy(record + offsetof(sfr_opt, honoured), &honoured, sizeof honoured);
    if (honoured != SFR_HONOURED_EXACTLY && (opt.flags & SFR_OPT_MUST))
      return fail(err, SFR_E_OPTION, key, "the sample runtime has no option %s", key);
  }
  if (!out->kv_cells) out->kv_cells = out->lanes_max * out->ctx_max; /* not asked for: all that the lanes can hold */
  return SFR_OK;
}

static sfr_status read_request(const sfr_open *theirs, facts *model, knobs *options, sfr_open *req, sfr_error *err) {
  sfr_status s;
  uint32_t i;
  if ((s = TAKE(*req, theirs, err))) return s;
  if (req->flags) return fail(err, SFR_E_UNSUPPORTED, "flags", "unknown flags 0x%x", req->flags);
  if ((s = check_array(req->paths, UINT64_MAX, sizeof(sfr_str), "paths", err))) return s;
  if ((s = check_array(req->opts, UINT64_MAX, sizeof(sfr_opt), "opts", err))) return s;
  if ((s = check_array(req->devices, UINT64_MAX, sizeof(sfr_str), "devices", err))) return s;
  for (i = 0; i < req->devices.count; i++) {
    sfr_str device;
    memcpy(&device, (const char *)(uintptr_t)req->devices.at + (size_t)i * req->devices.stride, sizeof device);
    if (!is(device, "cpu:0")) return fail(err, SFR_E_NOT_FOUND, "devices", "the only device is cpu:0");
  }
  if ((s = read_model(req, model, err))) return s;
  return read_options(req, model, options, err);
}

static void model_close(sfr_model *m) {
  if (!m) return;
  free(m->lanes), free(m->kv), free(m->logits), free(m->outs), free(m->rows), free(m);
}

static sfr_status model_open(const sfr_open *theirs, sfr_model **out, sfr_error *err) {
  sfr_open req;
  sfr_status s;
  sfr_model *m;
  int64_t i;
  if (!out) return fail(err, SFR_E_ARG, "out", "no place for the model");
  if (!(m = calloc(1, sizeof *m))) return fail(err, SFR_E_NOMEM_HOST, "", "no memory for a model");
  if ((s = read_request(theirs, &m->facts, &m->knobs, &req, err))) return model_close(m), s;
  m->rows_cap = (uint64_t)m->knobs.lanes_max;
  m->lanes = calloc((size_t)m->knobs.lanes_max, sizeof *m->lanes);
  m->outs = calloc((size_t)m->knobs.lanes_max, sizeof *m->outs);
  m->rows = calloc((size_t)m->knobs.step_tokens_max, sizeof *m->rows);
  m->kv = calloc((size_t)m->knobs.lanes_max, (size_t)m->knobs.ctx_max * 8);
  m->logits = calloc((size_t)m->rows_cap, (size_t)m->facts.vocab * sizeof(float));
  if (!m->lanes || !m->outs || !m->rows || !m->kv || !m->logits) {
    s = fail(err, SFR_E_NOMEM_HOST, "ctx.max", "no memory for %d lanes of %d positions", (int)m->knobs.lanes_max,
             (int)m->knobs.ctx_max);
    return model_close(m), s;
  }
  for (i = 0; i < m->knobs.lanes_max; i++) m->lanes[i].kv = m->kv + i * m->knobs.ctx_max;
  m->stats.struct_size = sizeof m->stats;
  m->stats.kv_cells_total = (uint64_t)m->knobs.kv_cells;
  m->stats.bytes_kv = (uint64_t)(m->knobs.lanes_max * m->knobs.ctx_max) * 8;
  m->stats.bytes_compute = m->rows_cap * m->facts.vocab * sizeof(float);
  if (host && SFR_HAS(host, sfr_host, log)) {
    sfr_str target = {"sample", 6}, message = {"opened a toy model", 18};
    host->log(host->ctx, SFR_LOG_DEBUG, target, message);
  }
  if (req.progress) req.progress(req.progress_ctx, 1.0f);
  *out = m;
  return SFR_OK;
}

static sfr_status model_describe(sfr_model *m, sfr_buf *json, sfr_error *err) {
  char text[512];
  (void)err;
  snprintf(text, sizeof text,
           "{\"effective\":{\"ctx.max\":%d,\"lanes.max\":%d,\"step.tokens.max\":%d,\"threads\":%d,"
           "\"kv.cells\":%d,\"x.sample.delay-us\":%d},"
           "\"model\":{\"architecture\":\"toy\",\"vocab\":%u,\"ctx_trained\":%u,"
           "\"parameters\":0,\"quantization\":\"none\"},\"capabilities\":{}}",
           (int)m->knobs.ctx_max, (int)m->knobs.lanes_max, (int)m->knobs.step_tokens_max, (int)m->knobs.threads,
           (int)m->knobs.kv_cells, (int)m->knobs.delay_us, m->facts.vocab, m->facts.ctx_trained);
  return put(json, text);
}

/* ------------------------------------------------------------------ lanes */
static lane *find(sfr_model *m, uint64_t id) {
  int64_t i;
  for (i = 0; id && i < m->knobs.lanes_max; i++)
    if (m->lanes[i].id == id) return &m->lanes[i];
  return NULL;
}

static sfr_status find_idle(sfr_model *m, uint64_t id, lane **out, sfr_error *err) {
  if (m->in_flight) return fail(err, SFR_E_STATE, "", "a step is in flight");
  *out = find(m, id);
  return *out ? SFR_OK : fail(err, SFR_E_NOT_FOUND, "lane", "no lane %llu", (unsigned long long)id);
}

/* All lanes share kv_cells positions; each has at most ctx_max of them. */
static int has_room(const sfr_model *m, const lane *l, uint64_t more) {
  return more <= (uint64_t)m->knobs.ctx_max - l->len && m->stats.kv_cells_used + more <= (uint64_t)m->knobs.kv_cells;
}

static void set_len(sfr_model *m, lane *l, uint32_t len) {
  STORE(m->stats.kv_cells_used, m->stats.kv_cells_used - l->len + len);
  l->len = len;
}

static sfr_status lane_create(sfr_model *m, uint64_t *id, sfr_error *err) {
  int64_t i;
  if (m->in_flight) return fail(err, SFR_E_STATE, "", "a step is in flight");
  if (!id) return fail(err, SFR_E_ARG, "lane", "no place for the lane's id");
  for (i = 0; i < m->knobs.lanes_max && m->lanes[i].id; i++) {}
  if (i == m->knobs.lanes_max)
    return fail(err, SFR_E_CAPACITY, "lanes.max", "all %d lanes are in use", (int)m->knobs.lanes_max);
  *id = m->lanes[i].id = ++m->next_lane;
  STORE(m->stats.lanes_live, m->stats.lanes_live + 1);
  return SFR_OK;
}

static sfr_status lane_free(sfr_model *m, uint64_t id, sfr_error *err) {
  lane *l;
  sfr_status s = find_idle(m, id, &l, err);
  if (s) return s;
  set_len(m, l, 0);
  l->id = 0;
  STORE(m->stats.lanes_live, m->stats.lanes_live - 1);
  return SFR_OK;
}

static sfr_status lane_truncate(sfr_model *m, uint64_t id, uint32_t want, uint32_t *got, sfr_error *err) {
  lane *l;
  sfr_status s = find_idle(m, id, &l, err);
  if (s) return s;
  if (want < l->len) set_len(m, l, want);
  if (got) *got = l->len;
  return SFR_OK;
}

/* A new lane with a copy of `len` positions. */
static sfr_status lane_with(sfr_model *m, const void *kv, uint64_t len, uint64_t *id, sfr_error *err) {
  lane *l;
  sfr_status s = lane_create(m, id, err);
  if (s) return s;
  l = find(m, *id);
  if (!has_room(m, l, len)) {
    lane_free(m, *id, NULL);
    return fail(err, SFR_E_CAPACITY, "kv.cells", "no room for %llu more positions", (unsigned long long)len);
  }
  if (len) memcpy(l->kv, kv, (size_t)len * 8);
  set_len(m, l, (uint32_t)len);
  return SFR_OK;
}

/* The lane, which holds at least `upto` positions. */
static sfr_status find_long(sfr_model *m, uint64_t id, uint32_t upto, lane **out, sfr_error *err) {
  sfr_status s = find_idle(m, id, out, err);
  if (s) return s;
  if (upto > (*out)->len) return fail(err, SFR_E_ARG, "upto", "%u is past the lane's %u positions", upto, (*out)->len);
  return SFR_OK;
}

static sfr_status lane_fork(sfr_model *m, uint64_t parent, uint32_t upto, uint64_t *child, sfr_error *err) {
  lane *from;
  sfr_status s = find_long(m, parent, upto, &from, err);
  return s ? s : lane_with(m, from->kv, upto, child, err);
}

/* ------------------------------------------------------------------ a lane's state: an envelope, then its positions */
typedef struct envelope { uint64_t identity, checksum, len; } envelope; /* uint64_t kv[len] follows */

static uint64_t mix(uint64_t a, uint64_t b) {
  a = (a ^ b) * 0x9E3779B97F4A7C15u;
  a = (a ^ (a >> 29)) * 0xBF58476D1CE4E5B9u;
  return a ^ (a >> 32);
}

static uint64_t identity(const sfr_model *m) { return mix(mix(0x73616D706C65u, m->facts.vocab), m->facts.seed); }

static uint64_t checksum(const void *kv, uint64_t len) {
  uint64_t sum = len, word, i;
  for (i = 0; i < len; i++) memcpy(&word, (const char *)kv + i * 8, 8), sum = mix(sum, word);
  return sum;
}

static sfr_status export_size(sfr_model *m, uint64_t id, uint32_t upto, uint64_t *bytes, sfr_error *err) {
  lane *l;
  sfr_status s = find_long(m, id, upto, &l, err);
  if (s) return s;
  if (!bytes) return fail(err, SFR_E_ARG, "bytes", "no place for the size");
  *bytes = sizeof(envelope) + (uint64_t)upto * 8;
  return SFR_OK;
}

static sfr_status export_state(sfr_model *m, uint64_t id, uint32_t upto, sfr_buf *out, sfr_error *err) {
  envelope e;
  lane *l;
  sfr_status s = find_long(m, id, upto, &l, err);
  if (s) return s;
  if (!out) return fail(err, SFR_E_ARG, "out", "no place for the state");
  out->needed = sizeof e + (uint64_t)upto * 8;
  if (out->cap < out->needed || !out->p)
    return fail(err, SFR_E_SMALL_BUFFER, "out", "%llu bytes needed", (unsigned long long)out->needed);
  e.identity = identity(m), e.checksum = checksum(l->kv, upto), e.len = upto;
  memcpy(out->p, &e, sizeof e);
  memcpy((char *)out->p + sizeof e, l->kv, (size_t)upto * 8);
  return SFR_OK;
}

static sfr_status import_state(sfr_model *m, const void *bytes, uint64_t len, uint64_t *id, sfr_error *err) {
  const char *kv = (const char *)bytes + sizeof(envelope);
  envelope e;
  if (!bytes || len < sizeof e)
    return fail(err, SFR_E_FORMAT, "bytes", "%llu bytes are no state", (unsigned long long)len);
  memcpy(&e, bytes, sizeof e);
  if (e.identity != identity(m)) return fail(err, SFR_E_IDENTITY, "bytes", "the state belongs to another model");
  if (len % 8 || e.len != (len - sizeof e) / 8 || e.checksum != checksum(kv, e.len))
    return fail(err, SFR_E_CHECKSUM, "bytes", "the state is damaged");
  return lane_with(m, kv, e.len, id, err);
}

/* ------------------------------------------------------------------ steps */
/* Token ids below 256 are bytes in the toy vocabulary: letters most, then print, rarely the rest; EOS now and then. */
static void fill_logits(const sfr_model *m, uint64_t state, float *out) {
  uint32_t t;
  for (t = 0; t < m->facts.vocab; t++) {
    float base = (t >= 'a' && t <= 'z') || t == ' ' ? 6.0f : t >= ' ' && t < 127 ? 3.0f : t < 256 ? -4.0f : -12.0f;
    out[t] = base + (float)(mix(state, t) >> 40) * (4.0f / 16777216.0f);
  }
  if (m->facts.eos < m->facts.vocab) out[m->facts.eos] = mix(state, UINT64_MAX) % 64 == 0 ? 16.0f : -2.0f;
}

static void get_feed(const sfr_plan *plan, uint32_t i, sfr_feed *out) {
  memcpy(out, (const char *)plan->arena + plan->feeds.at + (size_t)i * plan->feeds.stride, sizeof *out);
}

/* The plan's shape: a mistake here is an error of the call and changes no lane. Counts the wanted rows. */
static sfr_status check_plan(const sfr_model *m, const sfr_plan *p, uint64_t *rows, sfr_error *err) {
  uint64_t tokens = 0;
  uint32_t i, k;
  sfr_feed f, g;
  sfr_status s;
  *rows = 0;
  if (p->flags) return fail(err, SFR_E_UNSUPPORTED, "flags", "unknown flags 0x%x", p->flags);
  if (p->samplers.count || p->adapters.count || p->media.count || p->trees.count)
    return fail(err, SFR_E_UNSUPPORTED, "plan", "the sample has no samplers, adapters, media or trees");
  if ((uintptr_t)p->arena % 8 || (!p->arena && p->arena_len))
    return fail(err, SFR_E_ABI, "arena", "the arena is missing or not aligned to 8");
  if ((s = check_array(p->feeds, p->arena_len, sizeof f, "feeds", err))) return s;
  if ((s = check_array(p->tokens, p->arena_len, 4, "tokens", err))) return s;
  if (p->tokens.count && p->tokens.stride != 4) return fail(err, SFR_E_ABI, "tokens", "tokens have a stride of 4");
  if (p->feeds.count > (uint64_t)m->knobs.lanes_max)
    return fail(err, SFR_E_ARG, "feeds", "%u feeds for %d lanes", p->feeds.count, (int)m->knobs.lanes_max);
  for (i = 0; i < p->feeds.count; i++) {
    const char *at = (const char *)p->arena + p->feeds.at + (size_t)i * p->feeds.stride;
    if ((s = take(&f, sizeof f, at, p->feeds.stride, "feeds", err))) return s;
    if (f.flags || f.reserved0 || f.media_len || f.sampler != SFR_NONE || f.adapter != SFR_NONE || f.tree != SFR_NONE)
      return fail(err, SFR_E_UNSUPPORTED, "feeds", "feed %u asks for more than plain tokens", i);
    if (!f.token_len || f.token_off > p->tokens.count || f.token_len > p->tokens.count - f.token_off)
      return fail(err, SFR_E_ABI, "token_off", "feed %u: its run is empty or outside the plan's tokens", i);
    if (f.row_off > f.token_len || f.row_len > f.token_len - f.row_off)
      return fail(err, SFR_E_ABI, "row_off", "feed %u: its rows are outside its run of %u", i, f.token_len);
    for (k = 0; k < i; k++) {
      get_feed(p, k, &g);
      if (g.lane == f.lane) return fail(err, SFR_E_ARG, "lane", "lane %llu is fed twice", (unsigned long long)f.lane);
    }
    tokens += f.token_len, *rows += f.row_len;
  }
  if (tokens > (uint64_t)m->knobs.step_tokens_max)
    return fail(err, SFR_E_CAPACITY, "step.tokens.max", "%llu tokens in a step, at most %d",
                (unsigned long long)tokens, (int)m->knobs.step_tokens_max);
  return SFR_OK;
}

/* Sleeps as asked, a millisecond at a time so that an abort is noticed. True = aborted. */
static int delay(const sfr_model *m, const sfr_control *control) {
  uint32_t seen = control ? LOAD(control->abort_seq) : 0;
  int64_t left = m->knobs.delay_us;
  for (; left > 0; left -= 1000) {
    struct timespec nap;
    nap.tv_sec = 0, nap.tv_nsec = (left < 1000 ? left : 1000) * 1000;
    nanosleep(&nap, NULL);
    if (control && LOAD(control->abort_seq) != seen) return 1;
  }
  return 0;
}

/* One lane's run. What is wrong with it is its own fault: the neighbours go on. */
static void run_feed(sfr_model *m, const sfr_plan *p, const sfr_feed *f, sfr_lane_out *out) {
  const uint32_t *tokens = (const uint32_t *)(const void *)((const char *)p->arena + p->tokens.at) + f->token_off;
  lane *l = find(m, f->lane);
  uint32_t i;
  memset(out, 0, sizeof *out);
  out->lane = f->lane;
  out->row_off = m->row_count;
  if (!l) { out->status = SFR_E_NOT_FOUND; return; }
  out->pos = l->len;
  if (f->pos0 != l->len) { out->status = SFR_E_STATE; return; }
  if (!has_room(m, l, f->token_len)) { out->status = SFR_E_CAPACITY; return; }
  for (i = 0; i < f->token_len; i++)
    if (tokens[i] >= m->facts.vocab) { out->status = SFR_E_ARG; return; }
  for (i = 0; i < f->token_len; i++) {
    uint32_t pos = f->pos0 + i;
    l->kv[pos] = mix(pos ? l->kv[pos - 1] : m->facts.seed, tokens[i] + 1u);
    if (i >= f->row_off && i - f->row_off < f->row_len) {
      sfr_row *row = &m->rows[m->row_count];
      memset(row, 0, sizeof *row);
      row->lane = f->lane, row->pos = pos, row->logits_row = m->row_count, row->token = SFR_NONE;
      fill_logits(m, l->kv[pos], m->logits + (size_t)m->row_count++ * m->facts.vocab);
    }
  }
  set_len(m, l, l->len + f->token_len);
  STORE(m->stats.tokens_fed, m->stats.tokens_fed + f->token_len);
  out->pos = l->len, out->consumed = f->token_len, out->row_len = f->row_len;
}

static sfr_status step_begin(sfr_model *m, const sfr_plan *plan, uint64_t *ticket, sfr_error *err) {
  sfr_plan p;
  sfr_feed f;
  uint64_t rows;
  uint32_t i;
  sfr_status s;
  if (m->in_flight) return fail(err, SFR_E_STATE, "", "a step is in flight");
  if (!ticket) return fail(err, SFR_E_ARG, "ticket", "no place for the ticket");
  if ((s = TAKE(p, plan, err))) return s;
  if ((s = check_plan(m, &p, &rows, err))) return s;
  if (rows > m->rows_cap) {
    float *more = realloc(m->logits, (size_t)rows * m->facts.vocab * sizeof(float));
    if (!more) return fail(err, SFR_E_NOMEM_HOST, "rows", "no memory for %llu rows", (unsigned long long)rows);
    m->logits = more, m->rows_cap = rows;
    STORE(m->stats.bytes_compute, rows * m->facts.vocab * sizeof(float));
  }
  if (delay(m, p.control)) return fail(err, SFR_E_CANCELLED, "", "the step was aborted");
  m->row_count = 0;
  for (i = 0; i < p.feeds.count; i++) {
    get_feed(&p, i, &f);
    run_feed(m, &p, &f, &m->outs[i]);
  }
  m->out_count = p.feeds.count, m->seq = p.seq, m->in_flight = 1;
  *ticket = ++m->ticket;
  STORE(m->stats.steps, m->stats.steps + 1);
  return SFR_OK;
}

static sfr_status step_end(sfr_model *m, uint64_t ticket, sfr_result *r, sfr_error *err) {
  const uint64_t lanes = m->out_count * sizeof(sfr_lane_out), rows = m->row_count * sizeof(sfr_row);
  if (!m->in_flight || ticket != m->ticket) return fail(err, SFR_E_STATE, "ticket", "no such step is in flight");
  if (!r || r->struct_size < sizeof *r) return fail(err, SFR_E_ABI, "result", "missing or shorter than ABI 0.2 has it");
  if ((uintptr_t)r->arena % 8) return fail(err, SFR_E_ABI, "arena", "the arena is not aligned to 8");
  r->arena_used = lanes + rows;
  if (r->arena_len < lanes + rows || (!r->arena && lanes + rows))
    return fail(err, SFR_E_SMALL_BUFFER, "arena", "%llu bytes needed", (unsigned long long)(lanes + rows));
  if (lanes) memcpy(r->arena, m->outs, (size_t)lanes);
  if (rows) memcpy((char *)r->arena + lanes, m->rows, (size_t)rows);
  r->flags = 0, r->seq = m->seq;
  r->lanes.at = 0, r->lanes.count = m->out_count, r->lanes.stride = sizeof(sfr_lane_out);
  r->rows.at = lanes, r->rows.count = m->row_count, r->rows.stride = sizeof(sfr_row);
  r->logits = m->logits, r->logits_rows = m->row_count, r->logits_dtype = SFR_DTYPE_F32;
  r->logits_stride = m->facts.vocab * (uint32_t)sizeof(float), r->vocab = m->facts.vocab;
  r->reserved0 = 0, r->device_ns = 0;
  m->in_flight = 0;
  return SFR_OK;
}

static sfr_status model_stats(sfr_model *m, sfr_stats *out) {
  if (!out || out->struct_size < sizeof *out) return SFR_E_ABI;
  out->lanes_live = LOAD(m->stats.lanes_live);
  out->steps = LOAD(m->stats.steps);
  out->tokens_fed = LOAD(m->stats.tokens_fed);
  out->kv_cells_used = LOAD(m->stats.kv_cells_used);
  out->bytes_compute = LOAD(m->stats.bytes_compute);
  out->kv_cells_total = m->stats.kv_cells_total; /* the rest never changes */
  out->bytes_kv = m->stats.bytes_kv;
  out->bytes_weights = out->bytes_mapped = out->device_free = 0;
  return SFR_OK;
}

/* ------------------------------------------------------------------ inspect: the header only */
static sfr_status inspect(const sfr_open *theirs, sfr_buf *json, sfr_error *err) {
  char text[256];
  sfr_open req;
  facts model;
  knobs options;
  sfr_status s = read_request(theirs, &model, &options, &req, err);
  if (s) return s;
  snprintf(text, sizeof text, "{\"architecture\":\"toy\",\"quantization\":\"none\",\"ctx_trained\":%u,\"vocab\":%u}",
           model.ctx_trained, model.vocab);
  return put(json, text);
}

static sfr_status estimate(const sfr_open *theirs, sfr_estimate *out, sfr_error *err) {
  sfr_open req;
  facts model;
  knobs options;
  sfr_status s = read_request(theirs, &model, &options, &req, err);
  if (s) return s;
  if (!out || out->struct_size < sizeof *out) return fail(err, SFR_E_ABI, "estimate", "shorter than ABI 0.2 has it");
  out->confidence = 1, out->bytes_weights = 0, out->bytes_kv_per_token = 8, out->bytes_fixed_per_lane = 0;
  out->bytes_compute = (uint64_t)options.lanes_max * model.vocab * sizeof(float);
  out->ctx_trained = model.ctx_trained, out->lanes_max = 256;
  return SFR_OK;
}

/* ------------------------------------------------------------------ the runtime and its one export */
static const sfr_kv_vt KV = {sizeof KV, 0, lane_fork, export_size, export_state, import_state};
static const sfr_inspect_vt INSPECT = {sizeof INSPECT, 0, inspect, estimate};

static const void *model_interface(sfr_model *m, const char *id) {
  (void)m;
  return id && !strcmp(id, "sf.kv/1") ? &KV : NULL;
}

static const sfr_engine_vt ENGINE = {
  sizeof ENGINE, 0, model_open, model_close, model_describe, lane_create, lane_free, lane_truncate, step_begin,
  step_end, model_stats, model_interface};

static sfr_status init(const sfr_host *h, sfr_error *err) {
  if (!h || h->struct_size < sizeof *h) return fail(err, SFR_E_ABI, "host", "missing or shorter than ABI 0.2 has it");
  host = h;
  return SFR_OK;
}

static void shut_down(void) { host = NULL; }

static sfr_status probe(const sfr_probe *theirs, sfr_buf *json, sfr_error *err) {
  sfr_probe req;
  sfr_status s = TAKE(req, theirs, err);
  if (s) return s;
  if (req.depth > 2) return fail(err, SFR_E_ARG, "depth", "depth %u, at most 2", req.depth);
  return put(json, "{\"available\":true,\"devices\":[{\"id\":\"cpu:0\",\"name\":\"CPU\",\"backend\":\"cpu\"}]}");
}

static const void *runtime_interface(const char *id) {
  if (id && !strcmp(id, "sf.engine/1")) return &ENGINE;
  if (id && !strcmp(id, "sf.inspect/1")) return &INSPECT;
  return NULL;
}

static const sfr_runtime RUNTIME = {sizeof RUNTIME, SFR_ABI_MAJOR, SFR_ABI_MINOR, SFR_ABI_MINOR,
                                    {DESCRIPTOR, sizeof DESCRIPTOR - 1}, init, shut_down, probe, runtime_interface};

SFR_EXPORT const sfr_runtime *SFR_CALL superfluid_runtime_v1(const sfr_query *q) {
  if (!q || q->struct_size < sizeof *q || q->abi_major != SFR_ABI_MAJOR) return NULL;
  /* From 1.0 on: q->abi_minor_min <= SFR_ABI_MINOR && our abi_minor_min_host <= q->abi_minor. */
  return q->abi_minor == SFR_ABI_MINOR ? &RUNTIME : NULL;
}
