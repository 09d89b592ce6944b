/* noop_runtime.c - a runtime that computes nothing: what is left of a step is what the host costs.
 *
 * Every row is the same constant, so that a step touches no memory but its own records. It checks what a host could
 * get wrong in a way that would falsify a measurement (layout, lanes, positions, capacity), and nothing else.
 *
 *   cc -std=c99 -O2 -fPIC -shared -fvisibility=hidden -I abi/include noop_runtime.c -o libnoop.so
 */
#include "superfluid_runtime.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SFR_DESCRIPTOR_SECTION static const char DESCRIPTOR[] =
  "{\"descriptor_version\":1,\"id\":\"noop\",\"version\":\"0.1.0\",\"about\":\"computes nothing; measures the link\","
  "\"abi\":[0,2],\"formats\":[{\"format\":\"noop\",\"extension\":\"noop\"},"
  "{\"format\":\"gguf\",\"versions\":[2,3],\"architectures\":[\"noop\"]}],\"interfaces\":[\"sf.engine/1\"],"
  "\"capabilities\":{\"workload\":{\"completion\":true},\"kv\":{\"fork\":\"it keeps nothing to fork\","
  "\"truncate\":true}}}";

#ifndef VOCAB /* a server needs the size of its model's vocabulary here */
#define VOCAB 256u
#endif
#ifndef LIKELY /* the token that every row prefers */
#define LIKELY 7u
#endif
#define LANES_MAX 512 /* --max-batch 256 and as many idle prefixes */
#define ROWS_MAX 512

struct sfr_model {
  int64_t ctx_max, lanes_max, step_tokens_max, threads;
  uint64_t ids[LANES_MAX + 1]; /* by slot; an id is 257 * generation + slot, slot 0 is unused, 0 is free */
  uint32_t lens[LANES_MAX + 1];
  uint64_t generation, ticket, seq;
  sfr_lane_out outs[LANES_MAX];
  sfr_row rows[ROWS_MAX];
  uint32_t out_count, row_count;
  int in_flight;
  sfr_stats stats;
};

static float logits[ROWS_MAX * VOCAB]; /* written by init, the same ever after */

static sfr_status fail(sfr_error *err, sfr_status code, const char *field, const char *message) {
  if (!err || err->struct_size < sizeof *err) return code;
  err->code = code;
  err->native_code = 0;
  err->scope = SFR_SCOPE_CALL;
  err->message_len = (uint32_t)strlen(message);
  err->field_len = (uint32_t)strlen(field);
  memcpy(err->message, message, err->message_len);
  memcpy(err->field, field, err->field_len);
  return code;
}

static sfr_status put(sfr_buf *out, const char *text) {
  out->needed = strlen(text);
  if (out->cap < out->needed) return SFR_E_SMALL_BUFFER;
  memcpy(out->p, text, out->needed);
  return SFR_OK;
}

/* ------------------------------------------------------------------ open */
static sfr_status read_option(sfr_model *m, sfr_opt *opt, sfr_error *err) {
  const struct { const char *key; int64_t *to, max; } known[] = {
    {"ctx.max", &m->ctx_max, 1 << 30},
    {"lanes.max", &m->lanes_max, LANES_MAX},
    {"step.tokens.max", &m->step_tokens_max, 1 << 20},
    {"threads", &m->threads, 1024},
  };
  size_t k;
  opt->honoured = SFR_HONOURED_IGNORED;
  for (k = 0; k < sizeof known / sizeof *known; k++) {
    if (opt->key.n != strlen(known[k].key) || memcmp(opt->key.p, known[k].key, opt->key.n)) continue;
    if (opt->type != SFR_T_I64 || opt->i < 1 || opt->i > known[k].max) break;
    *known[k].to = opt->i;
    opt->honoured = SFR_HONOURED_EXACTLY;
    return SFR_OK;
  }
  if (!(opt->flags & SFR_OPT_MUST)) return SFR_OK;
  return fail(err, SFR_E_OPTION, k < sizeof known / sizeof *known ? known[k].key : "opts",
              "the no-op runtime has no such option, or not with this value");
}

static sfr_status model_open(const sfr_open *req, sfr_model **out, sfr_error *err) {
  sfr_model *m;
  uint32_t i;
  if (!req || req->struct_size < sizeof *req || (req->opts.count && req->opts.stride != sizeof(sfr_opt)))
    return fail(err, SFR_E_ABI, "req", "built for another version of the header");
  if (!(m = calloc(1, sizeof *m))) return fail(err, SFR_E_NOMEM_HOST, "", "no memory for a model");
  m->ctx_max = 1 << 20, m->lanes_max = 8, m->step_tokens_max = 512, m->threads = 1;
  for (i = 0; i < req->opts.count; i++) {
    sfr_status s = read_option(m, (sfr_opt *)(uintptr_t)req->opts.at + i, err);
    if (s) return free(m), s;
  }
  m->stats.struct_size = sizeof m->stats;
  m->stats.kv_cells_total = (uint64_t)(m->ctx_max * m->lanes_max);
  *out = m;
  return SFR_OK;
}

static void model_close(sfr_model *m) { free(m); }

static sfr_status model_describe(sfr_model *m, sfr_buf *json, sfr_error *err) {
  char text[320];
  (void)err;
  snprintf(text, sizeof text,
           "{\"effective\":{\"ctx.max\":%lld,\"lanes.max\":%lld,\"step.tokens.max\":%lld,\"threads\":%lld},"
           "\"model\":{\"architecture\":\"noop\",\"vocab\":%u},\"capabilities\":{}}",
           (long long)m->ctx_max, (long long)m->lanes_max, (long long)m->step_tokens_max, (long long)m->threads, VOCAB);
  return put(json, text);
}

/* ------------------------------------------------------------------ lanes */
static uint32_t slot_of(const sfr_model *m, uint64_t id) {
  const uint32_t slot = (uint32_t)(id % (LANES_MAX + 1));
  return id && m->ids[slot] == id ? slot : 0;
}

static sfr_status lane_create(sfr_model *m, uint64_t *lane, sfr_error *err) {
  uint32_t slot;
  for (slot = 1; slot <= m->lanes_max && m->ids[slot]; slot++) {}
  if (slot > m->lanes_max) return fail(err, SFR_E_CAPACITY, "lanes.max", "all lanes are taken");
  *lane = m->ids[slot] = ++m->generation * (LANES_MAX + 1) + slot;
  m->lens[slot] = 0;
  m->stats.lanes_live++;
  return SFR_OK;
}

static sfr_status lane_free(sfr_model *m, uint64_t lane, sfr_error *err) {
  const uint32_t slot = slot_of(m, lane);
  if (!slot) return fail(err, SFR_E_NOT_FOUND, "lane", "no such lane");
  m->stats.kv_cells_used -= m->lens[slot];
  m->stats.lanes_live--;
  m->ids[slot] = 0;
  return SFR_OK;
}

static sfr_status lane_truncate(sfr_model *m, uint64_t lane, uint32_t want, uint32_t *got, sfr_error *err) {
  const uint32_t slot = slot_of(m, lane);
  if (!slot) return fail(err, SFR_E_NOT_FOUND, "lane", "no such lane");
  if (want < m->lens[slot]) {
    m->stats.kv_cells_used -= m->lens[slot] - want;
    m->lens[slot] = want;
  }
  *got = m->lens[slot];
  return SFR_OK;
}

/* ------------------------------------------------------------------ a step */
static sfr_status feed_one(sfr_model *m, const sfr_feed *f) {
  const uint32_t slot = slot_of(m, f->lane);
  sfr_lane_out *out = &m->outs[m->out_count++];
  uint32_t i;
  memset(out, 0, sizeof *out);
  out->lane = f->lane;
  out->row_off = m->row_count;
  if (!slot) return out->status = SFR_E_NOT_FOUND;
  out->pos = m->lens[slot];
  if (f->pos0 != m->lens[slot]) return out->status = SFR_E_STATE;
  if (f->token_len > m->ctx_max - m->lens[slot]) return out->status = SFR_E_CAPACITY;
  m->lens[slot] += f->token_len;
  out->pos = m->lens[slot];
  out->consumed = f->token_len;
  out->row_len = f->row_len;
  for (i = 0; i < f->row_len; i++) {
    sfr_row *row = &m->rows[m->row_count];
    row->lane = f->lane;
    row->pos = f->pos0 + f->row_off + i;
    row->logits_row = m->row_count++;
    row->token = SFR_NONE;
    row->logprob = 0;
  }
  m->stats.tokens_fed += f->token_len;
  m->stats.kv_cells_used += f->token_len;
  return SFR_OK;
}

static sfr_status step_begin(sfr_model *m, const sfr_plan *plan, uint64_t *ticket, sfr_error *err) {
  const sfr_feed *feeds;
  uint64_t rows = 0, tokens = 0;
  uint32_t i;
  if (!plan || plan->struct_size < sizeof *plan || (plan->feeds.count && plan->feeds.stride != sizeof(sfr_feed)))
    return fail(err, SFR_E_ABI, "plan", "built for another version of the header");
  if (m->in_flight) return fail(err, SFR_E_STATE, "", "a step is in flight");
  feeds = (const sfr_feed *)((const char *)plan->arena + plan->feeds.at);
  for (i = 0; i < plan->feeds.count; i++) rows += feeds[i].row_len, tokens += feeds[i].token_len;
  if (plan->feeds.count > LANES_MAX || rows > ROWS_MAX || tokens > (uint64_t)m->step_tokens_max)
    return fail(err, SFR_E_ARG, "feeds", "more feeds, rows or tokens than a step takes");
#ifdef NOOP_DIES_AFTER /* tests: the process is killed in the step that follows so many */
  if (m->stats.steps == NOOP_DIES_AFTER) raise(9);
#endif
  m->out_count = m->row_count = 0;
  for (i = 0; i < plan->feeds.count; i++) feed_one(m, &feeds[i]);
  m->seq = plan->seq;
  m->in_flight = 1;
  m->stats.steps++;
  *ticket = ++m->ticket;
  return SFR_OK;
}

static sfr_status step_end(sfr_model *m, uint64_t ticket, sfr_result *r, sfr_error *err) {
  const uint64_t lane_bytes = m->out_count * sizeof(sfr_lane_out), row_bytes = m->row_count * sizeof(sfr_row);
  if (!r || r->struct_size < sizeof *r) return fail(err, SFR_E_ABI, "result", "built for another version of the header");
  if (!m->in_flight || ticket != m->ticket) return fail(err, SFR_E_STATE, "ticket", "no such step is in flight");
  r->arena_used = lane_bytes + row_bytes;
  if (r->arena_used > r->arena_len) return SFR_E_SMALL_BUFFER;
  if (lane_bytes) memcpy(r->arena, m->outs, lane_bytes);
  if (row_bytes) memcpy((char *)r->arena + lane_bytes, m->rows, row_bytes);
  r->lanes.at = 0, r->lanes.count = m->out_count, r->lanes.stride = sizeof(sfr_lane_out);
  r->rows.at = lane_bytes, r->rows.count = m->row_count, r->rows.stride = sizeof(sfr_row);
  r->flags = 0;
  r->seq = m->seq;
  r->logits = logits;
  r->logits_rows = m->row_count;
  r->logits_stride = VOCAB * sizeof(float);
  r->logits_dtype = SFR_DTYPE_F32;
  r->vocab = VOCAB;
  r->reserved0 = 0;
  r->device_ns = 0;
  m->in_flight = 0;
  return SFR_OK;
}

static sfr_status model_stats(sfr_model *m, sfr_stats *out) {
  const uint32_t size = out->struct_size;
  if (size < sizeof *out) return SFR_E_ABI;
  *out = m->stats;
  out->struct_size = size;
  return SFR_OK;
}

static const void *model_interface(sfr_model *m, const char *id) {
  (void)m;
  (void)id;
  return NULL;
}

/* ------------------------------------------------------------------ the runtime */
static const sfr_engine_vt ENGINE = {
  sizeof(sfr_engine_vt), 0, model_open, model_close, model_describe, lane_create, lane_free,
  lane_truncate, step_begin, step_end, model_stats, model_interface,
};

static sfr_status init(const sfr_host *host, sfr_error *err) {
  uint32_t row;
  (void)host;
  (void)err;
  for (row = 0; row < ROWS_MAX; row++) logits[row * VOCAB + LIKELY] = 1.0f;
  return SFR_OK;
}

static void shut(void) {}

static sfr_status probe(const sfr_probe *req, sfr_buf *json, sfr_error *err) {
  (void)req;
  (void)err;
  return put(json, "{\"available\":true,\"devices\":[{\"id\":\"cpu:0\",\"backend\":\"cpu\"}]}");
}

static const void *get_interface(const char *id) { return strcmp(id, "sf.engine/1") ? NULL : &ENGINE; }

static const sfr_runtime RUNTIME = {
  sizeof(sfr_runtime), SFR_ABI_MAJOR, SFR_ABI_MINOR, SFR_ABI_MINOR, {DESCRIPTOR, sizeof DESCRIPTOR - 1},
  init, shut, probe, get_interface,
};

SFR_EXPORT const sfr_runtime *SFR_CALL superfluid_runtime_v1(const sfr_query *q) {
  if (!q || q->struct_size < sizeof *q || q->abi_major != SFR_ABI_MAJOR) return NULL;
  return q->abi_minor >= SFR_ABI_MINOR && q->abi_minor_min <= SFR_ABI_MINOR ? &RUNTIME : NULL;
}
