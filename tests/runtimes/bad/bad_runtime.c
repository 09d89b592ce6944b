/* bad_runtime.c - the sample runtime with one fault built in, to show that hosts and the verifier notice it.
 *
 * Compile with -DBAD_MODE=<name below>. A mode that strikes after open can also be chosen per load by the
 * option x.bad.mode=<name>, which overrides the compiled one. Without a mode it behaves like the sample.
 */
#define _POSIX_C_SOURCE 200112L /* as the sample */
#include "superfluid_runtime.h"

#define BAD_MODES(X) \
  X(none)                                                                                                     \
  /* entry and static */                                                                                      \
  X(null_entry) X(wrong_major) X(short_struct) X(exit_before_hello) X(descriptor_mismatch)                    \
  X(descriptor_not_json) X(extra_export) X(no_engine) X(null_member)                                          \
  /* init and probe */                                                                                        \
  X(hang_init) X(crash_init) X(hang_probe) X(crash_probe) X(probe_unavailable) X(probe_not_json)              \
  /* open */                                                                                                  \
  X(hang_open) X(crash_open) X(exit_open) X(error_without_message) X(long_message) X(ignore_must)             \
  X(lying_effective) X(writes_stdout)                                                                         \
  /* step */                                                                                                  \
  X(hang_step) X(crash_step) X(abort_step) X(exit_step) X(error_step) X(fatal_step) X(wrong_vocab)            \
  X(wrong_lane_row) X(row_out_of_range) X(token_out_of_range) X(nan_logits) X(null_logits) X(wrong_seq)       \
  X(wild_offset) X(missing_lane_out)                                                                          \
  /* semantics */                                                                                             \
  X(chunk_dependent) X(batch_dependent) X(fork_leak) X(truncate_lie) X(position_blind) X(neighbour_damage)

enum mode {
#define X(name) MODE_##name,
  BAD_MODES(X)
#undef X
  MODE_COUNT
};
#define MODE_(name) MODE_##name
#define MODE(name) MODE_(name)
#ifndef BAD_MODE
#define BAD_MODE none
#endif
#define COMPILED MODE(BAD_MODE)

/* The sample, with its descriptor kept out of the section and its entry kept private. */
#pragma push_macro("SFR_DESCRIPTOR_SECTION")
#pragma push_macro("SFR_EXPORT")
#undef SFR_DESCRIPTOR_SECTION
#define SFR_DESCRIPTOR_SECTION
#undef SFR_EXPORT
#define SFR_EXPORT static
#define superfluid_runtime_v1 sample_entry
#include "../sample/sample_runtime.c"
#undef superfluid_runtime_v1
#pragma pop_macro("SFR_EXPORT")
#pragma pop_macro("SFR_DESCRIPTOR_SECTION")
#include <math.h>

#define BAD_DESCRIPTOR(version) \
  "{\"descriptor_version\":1,\"id\":\"bad\",\"version\":\"" version "\",\"about\":\"misbehaves on request\"," \
  "\"abi\":[0,2],\"formats\":[{\"format\":\"gguf\",\"versions\":[2,3],\"architectures\":[\"toy\"]}]," \
  "\"interfaces\":[\"sf.engine/1\",\"sf.inspect/1\",\"sf.kv/1\"],\"capabilities\":{\"workload\":{\"chat\":true," \
  "\"completion\":true},\"kv\":{\"fork\":true,\"truncate\":true,\"export\":\"not in the bad runtime\"," \
  "\"import\":\"not in the bad runtime\"}},\"options\":[{\"key\":\"mode\",\"type\":\"str\",\"default\":\"none\"," \
  "\"help\":\"the misbehaviour\"}]}"
#if defined(BAD_NOT_JSON) /* set by tests for descriptor_not_json */
SFR_DESCRIPTOR_SECTION static const char BAD_SECTION[] = "{\"descriptor_version\":1,\"id\":";
#else
SFR_DESCRIPTOR_SECTION static const char BAD_SECTION[] = BAD_DESCRIPTOR("0.1.0");
#endif
static const char BAD_OTHER[] = BAD_DESCRIPTOR("0.1.1");

static enum mode mode = COMPILED; /* of the model opened last: one model per process is enough for a bad runtime */
static uint64_t leak_from, leak_to;

static void hang(void) {
  struct timespec nap = {1, 0};
  for (;;) nanosleep(&nap, NULL);
}

static void crash(void) {
  static int *volatile nowhere;
  *nowhere = 1;
}

#define STRIKE(hang_mode, crash_mode) \
  do { \
    if (mode == (hang_mode)) hang(); \
    if (mode == (crash_mode)) crash(); \
  } while (0)

/* ------------------------------------------------------------------ open and options */
static const char *const names[] = {
#define X(name) #name,
    BAD_MODES(X)
#undef X
};

static enum mode mode_named(sfr_str name) {
  int i;
  for (i = 0; i < MODE_COUNT; i++)
    if (is(name, names[i])) return (enum mode)i;
  return MODE_COUNT;
}

/* The request without what the sample would refuse: x.bad.mode, and in mode ignore_must every option. */
typedef struct stripped {
  sfr_open req;
  sfr_opt kept[64];
  char *records[64]; /* where each kept option stands in the host's array */
} stripped;

static sfr_status strip(const sfr_open *theirs, stripped *out, sfr_error *err) {
  const uint32_t exactly = SFR_HONOURED_EXACTLY, ignored = SFR_HONOURED_IGNORED;
  sfr_open *req = &out->req;
  uint32_t i, n = 0;
  sfr_opt opt;
  sfr_status s;
  if ((s = TAKE(*req, theirs, err))) return s;
  if ((s = check_array(req->opts, UINT64_MAX, sizeof opt, "opts", err))) return s;
  if (req->opts.count > 64) return fail(err, SFR_E_ARG, "opts", "the bad runtime reads 64 options at most");
  mode = COMPILED;
  for (i = 0; i < req->opts.count; i++) {
    char *record = (char *)(uintptr_t)req->opts.at + (size_t)i * req->opts.stride;
    if ((s = take(&opt, sizeof opt, record, req->opts.stride, "opts", err))) return s;
    if (is(opt.key, "x.bad.mode") && opt.type == SFR_T_STR && mode_named(opt.s) != MODE_COUNT) {
      mode = mode_named(opt.s);
      memcpy(record + offsetof(sfr_opt, honoured), &exactly, sizeof exactly);
    } else if (COMPILED == MODE_ignore_must) {
      memcpy(record + offsetof(sfr_opt, honoured), &ignored, sizeof ignored);
    } else {
      out->records[n] = record, out->kept[n++] = opt;
    }
  }
  req->struct_size = sizeof *req;
  req->opts.at = (uint64_t)(uintptr_t)out->kept, req->opts.count = n, req->opts.stride = sizeof opt;
  return SFR_OK;
}

static void tell_honoured(const stripped *in) {
  uint32_t i;
  for (i = 0; i < in->req.opts.count; i++)
    memcpy(in->records[i] + offsetof(sfr_opt, honoured), &in->kept[i].honoured, sizeof in->kept[i].honoured);
}

static sfr_status bad_open(const sfr_open *theirs, sfr_model **out, sfr_error *err) {
  stripped in;
  sfr_status s = strip(theirs, &in, err);
  if (s) return s;
  STRIKE(MODE_hang_open, MODE_crash_open);
  if (mode == MODE_exit_open) exit(3);
  if (mode == MODE_error_without_message) return SFR_E_INTERNAL;
  if (mode == MODE_long_message && err) return err->message_len = 100000, err->code = SFR_E_INTERNAL;
  if (mode == MODE_writes_stdout) puts("the bad runtime was here"), fflush(stdout);
  s = model_open(&in.req, out, err);
  tell_honoured(&in);
  if (!s && mode == MODE_lying_effective) (*out)->knobs.ctx_max /= 2;
  return s;
}

static sfr_status bad_inspect(const sfr_open *theirs, sfr_buf *json, sfr_error *err) {
  stripped in;
  sfr_status s = strip(theirs, &in, err);
  if (s) return s;
  s = inspect(&in.req, json, err);
  tell_honoured(&in);
  return s;
}

static sfr_status bad_estimate(const sfr_open *theirs, sfr_estimate *out, sfr_error *err) {
  stripped in;
  sfr_status s = strip(theirs, &in, err);
  if (s) return s;
  s = estimate(&in.req, out, err);
  tell_honoured(&in);
  return s;
}

static sfr_status bad_describe(sfr_model *m, sfr_buf *json, sfr_error *err) {
  char text[600], own[800];
  sfr_buf inner;
  sfr_status s;
  char *cut, *rest;
  inner.p = text, inner.cap = sizeof text - 1, inner.needed = 0;
  if ((s = model_describe(m, &inner, err))) return s;
  text[inner.needed] = 0;
  /* In "effective" our own option stands where the sample's x.sample.delay-us does. */
  cut = strstr(text, ",\"x.sample.delay-us\"");
  rest = cut ? strchr(cut, '}') : NULL;
  if (!rest) return put(json, text);
  *cut = 0;
  snprintf(own, sizeof own, "%s,\"x.bad.mode\":\"%s\"%s", text, names[mode], rest);
  return put(json, own);
}

/* ------------------------------------------------------------------ lanes */
static sfr_status bad_truncate(sfr_model *m, uint64_t id, uint32_t want, uint32_t *got, sfr_error *err) {
  const lane *l = find(m, id);
  uint64_t last = l && l->len ? l->kv[l->len - 1] : 0;
  sfr_status s = lane_truncate(m, id, want, got, err);
  if (!s && mode == MODE_truncate_lie && want) l->kv[want - 1] = last; /* the cut tokens still count */
  return s;
}

static sfr_status bad_fork(sfr_model *m, uint64_t parent, uint32_t upto, uint64_t *child, sfr_error *err) {
  sfr_status s = lane_fork(m, parent, upto, child, err);
  if (!s) leak_from = parent, leak_to = *child;
  return s;
}

/* ------------------------------------------------------------------ steps */
static sfr_status bad_step_begin(sfr_model *m, const sfr_plan *plan, uint64_t *ticket, sfr_error *err) {
  uint32_t i, k;
  sfr_status s;
  STRIKE(MODE_hang_step, MODE_crash_step);
  if (mode == MODE_abort_step) abort();
  if (mode == MODE_exit_step) exit(3);
  if (mode == MODE_error_step) return fail(err, SFR_E_INTERNAL, "", "the bad runtime was asked to fail");
  if (mode == MODE_fatal_step) {
    fail(err, SFR_E_FATAL, "", "the bad runtime wants a new process");
    if (err) err->scope = SFR_SCOPE_PROCESS;
    return SFR_E_FATAL;
  }
  if (mode == MODE_writes_stdout) puts("the bad runtime stepped"), fflush(stdout);
  if ((s = step_begin(m, plan, ticket, err))) return s;
  for (i = 0; i < m->out_count; i++) {
    const sfr_lane_out *o = &m->outs[i];
    lane *a = find(m, leak_from), *b = find(m, leak_to);
    for (k = 0; k < o->row_len; k++) {
      float *row = m->logits + (size_t)(o->row_off + k) * m->facts.vocab;
      if (mode == MODE_chunk_dependent) row[o->consumed % m->facts.vocab] += 8.0f;
      if (mode == MODE_batch_dependent) row[m->out_count % m->facts.vocab] += 8.0f;
      if (mode == MODE_position_blind) fill_logits(m, m->facts.seed, row);
      if (mode == MODE_nan_logits) row[k % m->facts.vocab] = (float)NAN;
    }
    if (mode == MODE_fork_leak && a && b && a->len && b->len && (o->lane == leak_from || o->lane == leak_to)) {
      lane *other = o->lane == leak_from ? b : a;
      other->kv[other->len - 1] = mix(other->kv[other->len - 1], 1);
    }
    if (mode == MODE_neighbour_damage && o->status) /* one lane's fault hits all others */
      for (k = 0; k < (uint32_t)m->knobs.lanes_max; k++)
        if (m->lanes[k].id && m->lanes[k].len) m->lanes[k].kv[m->lanes[k].len - 1] ^= 1;
  }
  return SFR_OK;
}

static sfr_status bad_step_end(sfr_model *m, uint64_t ticket, sfr_result *r, sfr_error *err) {
  sfr_status s = step_end(m, ticket, r, err);
  sfr_row *rows;
  uint32_t i;
  if (s) return s;
  rows = (sfr_row *)(void *)((char *)r->arena + r->rows.at);
  for (i = 0; i < r->rows.count; i++) {
    if (mode == MODE_wrong_lane_row) rows[i].lane += 1000;
    if (mode == MODE_row_out_of_range) rows[i].logits_row = r->rows.count + 7;
    if (mode == MODE_token_out_of_range) rows[i].logits_row = SFR_NONE, rows[i].token = m->facts.vocab + 7;
  }
  if (mode == MODE_wrong_vocab) r->vocab += 7, r->logits_stride += 28;
  if (mode == MODE_null_logits) r->logits = NULL;
  if (mode == MODE_wrong_seq) r->seq += 1;
  if (mode == MODE_wild_offset) r->lanes.at = 1u << 30;
  if (mode == MODE_missing_lane_out && r->lanes.count) r->lanes.count--;
  return SFR_OK;
}

/* ------------------------------------------------------------------ the runtime */
static const sfr_inspect_vt BAD_INSPECT = {sizeof BAD_INSPECT, 0, bad_inspect, bad_estimate};
static const sfr_kv_vt BAD_KV = {sizeof BAD_KV, 0, bad_fork, NULL, NULL, NULL};

static const void *bad_model_interface(sfr_model *m, const char *id) {
  (void)m;
  return id && !strcmp(id, "sf.kv/1") ? &BAD_KV : NULL;
}

static const sfr_engine_vt BAD_ENGINE = {
  sizeof BAD_ENGINE, 0, bad_open, model_close, bad_describe, lane_create, lane_free, bad_truncate,
  COMPILED == MODE_null_member ? NULL : bad_step_begin, bad_step_end, model_stats, bad_model_interface};

static sfr_status bad_init(const sfr_host *h, sfr_error *err) {
  STRIKE(MODE_hang_init, MODE_crash_init);
  return init(h, err);
}

static sfr_status bad_probe(const sfr_probe *req, sfr_buf *json, sfr_error *err) {
  STRIKE(MODE_hang_probe, MODE_crash_probe);
  if (mode == MODE_probe_unavailable) return put(json, "{\"available\":false,\"reason\":\"it is a bad day\"}");
  if (mode == MODE_probe_not_json) return put(json, "all is well");
  return probe(req, json, err);
}

static const void *bad_interface(const char *id) {
  if (id && !strcmp(id, "sf.engine/1")) return COMPILED == MODE_no_engine ? NULL : &BAD_ENGINE;
  if (id && !strcmp(id, "sf.inspect/1")) return &BAD_INSPECT;
  return runtime_interface(id);
}

static const sfr_runtime BAD_RUNTIME = {
  COMPILED == MODE_short_struct ? 24 : sizeof BAD_RUNTIME, COMPILED == MODE_wrong_major ? 7 : SFR_ABI_MAJOR,
  SFR_ABI_MINOR, SFR_ABI_MINOR,
  {COMPILED == MODE_descriptor_mismatch ? BAD_OTHER : BAD_SECTION,
   COMPILED == MODE_descriptor_mismatch ? sizeof BAD_OTHER - 1 : sizeof BAD_SECTION - 1},
  bad_init, shut_down, bad_probe, bad_interface};

__attribute__((constructor)) static void before_hello(void) {
  if (COMPILED == MODE_exit_before_hello) exit(3);
}

#if defined(BAD_EXTRA_EXPORT) /* set by tests for extra_export */
SFR_EXPORT int bad_extra_export(void);
int bad_extra_export(void) { return 1; }
#endif

SFR_EXPORT const sfr_runtime *SFR_CALL superfluid_runtime_v1(const sfr_query *q) {
  if (COMPILED == MODE_null_entry || !sample_entry(q)) return NULL;
  return &BAD_RUNTIME;
}
