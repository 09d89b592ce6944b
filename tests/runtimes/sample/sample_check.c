/* sample_check.c - a host in plain C that tries to hurt the sample runtime; compiled with sanitizers by the tests.
 *
 *   sample_check toy.gguf scratch.gguf
 *
 * It includes the runtime's source so that the sanitizers see both sides. Exit 0 = nothing was out of bounds, every
 * damaged file was refused or read safely, and every broken plan was refused without touching a lane.
 */
#include "sample_runtime.c"

#define CHECK(what) \
  do { \
    if (!(what)) fprintf(stderr, "line %d: %s\n", __LINE__, #what), exit(1); \
  } while (0)

static uint64_t plan_words[1024], result_words[8192];
static sfr_error err;
static uint64_t chance = 42;

static uint32_t roll(uint32_t below) {
  chance = mix(chance, 7);
  return (uint32_t)(chance >> 33) % below;
}

static sfr_status open_file(const char *path, sfr_opt *opts, uint32_t count, sfr_model **out) {
  sfr_str name;
  sfr_open req;
  name.p = path, name.n = strlen(path);
  memset(&req, 0, sizeof req);
  req.struct_size = sizeof req;
  req.paths.at = (uint64_t)(uintptr_t)&name, req.paths.count = 1, req.paths.stride = sizeof name;
  req.opts.at = (uint64_t)(uintptr_t)opts, req.opts.count = count, req.opts.stride = sizeof *opts;
  memset(&err, 0, sizeof err);
  err.struct_size = sizeof err;
  return ENGINE.open(&req, out, &err);
}

/* ------------------------------------------------------------------ files: every prefix, and random damage */
static void damage(const char *whole, const char *scratch) {
  static char bytes[1 << 16];
  FILE *f = fopen(whole, "rb");
  size_t size = f ? fread(bytes, 1, sizeof bytes, f) : 0, n;
  int round;
  sfr_model *m = NULL;
  CHECK(size > 100 && !fclose(f));
  for (n = 0; n < size; n += n < 400 ? 1 : 37) {
    CHECK((f = fopen(scratch, "wb")) && fwrite(bytes, 1, n, f) == n && !fclose(f));
    sfr_status s = open_file(scratch, NULL, 0, &m);
    if (!s) model_close(m); /* the cut was behind the metadata, which is all that the sample reads */
    CHECK(s == SFR_OK || (s == SFR_E_FORMAT && err.message_len > 0));
    CHECK(n > 400 || s == SFR_E_FORMAT);
  }
  for (round = 0; round < 600; round++) {
    uint32_t at = roll(round % 2 ? 300 : (uint32_t)size - 9), k;
    char kept[8];
    memcpy(kept, bytes + at, 8);
    for (k = 0; k < 8; k++) bytes[at + k] = round % 3 ? (char)roll(256) : (char)-1;
    CHECK((f = fopen(scratch, "wb")) && fwrite(bytes, 1, size, f) == size && !fclose(f));
    if (!open_file(scratch, NULL, 0, &m)) model_close(m);
    else CHECK(err.message_len > 0 && err.message_len <= SFR_ERROR_MESSAGE_MAX);
    memcpy(bytes + at, kept, 8);
  }
}

/* ------------------------------------------------------------------ steps */
static sfr_feed feed(uint64_t lane, uint32_t off, uint32_t len, uint32_t pos0) {
  sfr_feed f;
  memset(&f, 0, sizeof f);
  f.lane = lane, f.token_off = off, f.token_len = len, f.pos0 = pos0, f.row_off = len - 1, f.row_len = 1;
  f.sampler = f.adapter = f.tree = SFR_NONE;
  return f;
}

/* 2 KiB of feeds, then tokens. */
static sfr_plan plan_of(const sfr_feed *feeds, uint32_t count, const uint32_t *tokens, uint32_t token_count) {
  sfr_plan p;
  memset(&p, 0, sizeof p);
  p.struct_size = sizeof p, p.seq = 9, p.arena = plan_words, p.arena_len = sizeof plan_words;
  memcpy(plan_words, feeds, count * sizeof *feeds);
  memcpy((char *)plan_words + 2048, tokens, token_count * 4);
  p.feeds.count = count, p.feeds.stride = sizeof *feeds;
  p.tokens.at = 2048, p.tokens.count = token_count, p.tokens.stride = 4;
  return p;
}

static sfr_status finish(sfr_model *m, uint64_t ticket, sfr_result *r) {
  memset(r, 0, sizeof *r);
  r->struct_size = sizeof *r, r->arena = result_words, r->arena_len = sizeof result_words;
  return ENGINE.step_end(m, ticket, r, &err);
}

/* Feeds a run to one lane and returns a number that stands for its last row. */
static uint64_t run(sfr_model *m, uint64_t lane, const uint32_t *tokens, uint32_t len, uint32_t pos0) {
  sfr_feed f = feed(lane, 0, len, pos0);
  sfr_plan p = plan_of(&f, 1, tokens, len);
  sfr_result r;
  uint64_t ticket, sum = 0;
  uint32_t i, word;
  CHECK(!ENGINE.step_begin(m, &p, &ticket, &err) && !finish(m, ticket, &r));
  CHECK(((sfr_lane_out *)result_words)->status == SFR_OK && r.logits_rows == 1 && r.seq == 9);
  for (i = 0; i < r.vocab; i++) memcpy(&word, (const char *)r.logits + i * 4, 4), sum = mix(sum, word);
  return sum;
}

static void semantics(sfr_model *m) {
  const uint32_t text[6] = {1, 2, 3, 4, 5, 6};
  uint64_t a, b, c, whole;
  uint32_t got;
  CHECK(!ENGINE.lane_create(m, &a, &err) && !ENGINE.lane_create(m, &b, &err) && a != b);
  whole = run(m, a, text, 6, 0);
  run(m, b, text, 2, 0);
  CHECK(run(m, b, text + 2, 4, 2) == whole); /* chunked = whole */
  CHECK(!ENGINE.lane_truncate(m, a, 3, &got, &err) && got == 3);
  CHECK(run(m, a, text + 3, 3, 3) == whole); /* truncated and refed = fresh */
  CHECK(!KV.fork(m, a, 4, &c, &err));
  run(m, a, text, 1, 6);
  CHECK(run(m, c, text + 4, 2, 4) == whole); /* forks are independent */
  CHECK(KV.fork(m, a, 8, &c, &err) == SFR_E_ARG && ENGINE.lane_truncate(m, 99, 0, &got, &err) == SFR_E_NOT_FOUND);
  CHECK(!ENGINE.lane_free(m, b, &err) && ENGINE.lane_free(m, b, &err) == SFR_E_NOT_FOUND);
}

/* A lane goes on from its copy as if it had stayed; a copy that is short or damaged anywhere makes no lane. */
static void copies(sfr_model *m) {
  const uint32_t text[6] = {6, 5, 4, 3, 2, 1};
  static char state[1024];
  uint64_t lane, back, size, whole;
  uint32_t at, live;
  sfr_buf out;
  CHECK(!ENGINE.lane_create(m, &lane, &err));
  whole = run(m, lane, text, 6, 0);
  CHECK(KV.export_size(m, lane, 7, &size, &err) == SFR_E_ARG);
  CHECK(!KV.export_size(m, lane, 5, &size, &err) && size < sizeof state);
  out.p = state, out.cap = size - 1;
  CHECK(KV.export_state(m, lane, 5, &out, &err) == SFR_E_SMALL_BUFFER && out.needed == size && !state[0]);
  out.cap = size;
  CHECK(!KV.export_state(m, lane, 5, &out, &err) && out.needed == size);
  CHECK(!ENGINE.lane_free(m, lane, &err));
  CHECK(!KV.import_state(m, state, size, &back, &err) && run(m, back, text + 5, 1, 5) == whole);
  live = m->stats.lanes_live;
  for (at = 0; at < size; at++) {
    CHECK(KV.import_state(m, state, at, &lane, &err));
    state[at] ^= 0x10;
    CHECK(KV.import_state(m, state, size, &lane, &err));
    state[at] ^= 0x10;
  }
  CHECK(m->stats.lanes_live == live && !ENGINE.lane_free(m, back, &err));
}

/* Random words in a good plan: whatever happens, the call or a lane says so and nothing is read out of bounds. */
static void broken_plans(sfr_model *m) {
  uint64_t lanes[3], ticket;
  uint32_t tokens[16], i;
  int round, refused = 0;
  for (i = 0; i < 3; i++) CHECK(!ENGINE.lane_create(m, &lanes[i], &err));
  for (round = 0; round < 20000; round++) {
    sfr_feed feeds[3];
    sfr_plan p;
    sfr_result r;
    uint64_t used = m->stats.kv_cells_used;
    uint32_t extreme[6], value;
    for (i = 0; i < 16; i++) tokens[i] = roll(300);
    for (i = 0; i < 3; i++) feeds[i] = feed(lanes[i], i * 4, 1 + roll(4), find(m, lanes[i])->len);
    p = plan_of(feeds, 3, tokens, 16);
    extreme[0] = 0, extreme[1] = 1, extreme[2] = 0x7FFFFFFFu, extreme[3] = SFR_NONE, extreme[4] = 8;
    extreme[5] = roll(99);
    value = extreme[roll(6)];
    if (round % 2) memcpy((char *)&p + 4 + 4 * roll(sizeof p / 4 - 1), &value, 4);
    else memcpy((char *)plan_words + 4 * roll(3 * sizeof *feeds / 4), &value, 4);
    if (p.arena != plan_words) p.arena = roll(2) ? plan_words : NULL; /* a wild pointer is no contract at all */
    if (p.arena_len > sizeof plan_words) p.arena_len = sizeof plan_words;
    p.control = NULL;
    if (ENGINE.step_begin(m, &p, &ticket, &err)) {
      CHECK(m->stats.kv_cells_used == used);
      refused++;
      continue;
    }
    CHECK(!finish(m, ticket, &r));
    CHECK(ENGINE.step_end(m, ticket, &r, &err) == SFR_E_STATE);
    for (i = 0; i < 3; i++)
      if (find(m, lanes[i])->len > 40) CHECK(!ENGINE.lane_truncate(m, lanes[i], 0, &value, &err));
  }
  CHECK(refused > 1000 && refused < 19000);
}

int main(int argc, char **argv) {
  sfr_opt opt;
  sfr_model *m;
  sfr_result r;
  sfr_feed f;
  sfr_plan p;
  uint64_t lane, ticket;
  const uint32_t token = 1;
  CHECK(argc == 3);
  damage(argv[1], argv[2]);
  memset(&opt, 0, sizeof opt);
  opt.key.p = "ctx.max", opt.key.n = 7, opt.type = SFR_T_I64, opt.i = 64, opt.flags = SFR_OPT_MUST;
  CHECK(!open_file(argv[1], &opt, 1, &m) && opt.honoured == SFR_HONOURED_EXACTLY);
  semantics(m);
  copies(m);
  broken_plans(m);
  CHECK(!ENGINE.lane_create(m, &lane, &err));
  f = feed(lane, 0, 1, 0), p = plan_of(&f, 1, &token, 1);
  CHECK(!ENGINE.step_begin(m, &p, &ticket, &err));
  memset(&r, 0, sizeof r);
  r.struct_size = sizeof r, r.arena = result_words, r.arena_len = 8;
  CHECK(ENGINE.step_end(m, ticket, &r, &err) == SFR_E_SMALL_BUFFER);
  CHECK(r.arena_used == sizeof(sfr_lane_out) + sizeof(sfr_row));
  CHECK(ENGINE.lane_free(m, lane, &err) == SFR_E_STATE); /* in flight */
  CHECK(!finish(m, ticket, &r));
  ENGINE.close(m);
  opt.i = 0;
  CHECK(open_file(argv[1], &opt, 1, &m) == SFR_E_OPTION && err.field_len == 7 && !memcmp(err.field, "ctx.max", 7));
  opt.key.p = "kv.bits";
  CHECK(open_file(argv[1], &opt, 1, &m) == SFR_E_OPTION && !memcmp(err.field, "kv.bits", 7));
  opt.flags = 0;
  CHECK(!open_file(argv[1], &opt, 1, &m) && opt.honoured == SFR_HONOURED_IGNORED);
  ENGINE.close(m);
  return 0;
}
