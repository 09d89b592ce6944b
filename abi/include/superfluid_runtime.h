/* superfluid_runtime.h - the C ABI between a language-model runtime and its host.
 *
 * One shared library, one exported symbol, plain C99 (and C++11). A runtime imports nothing from
 * the host: services arrive in `sfr_host`. Nothing but <stddef.h> and <stdint.h> is included.
 *
 * This is ABI 0.2. While the major is 0 the host and the runtime must agree on both numbers
 * exactly; from 1.0 on, minors only add (see abi/README.md).
 *
 * LAYOUT
 *  L1  Fixed-width integers and floats only: no enum, bool, long, size_t or bit-field, and no
 *      struct is returned or passed by value.
 *  L2  No implicit padding; every struct is a multiple of 8 bytes, aligned to 8.
 *  L3  A struct passed by pointer begins with `uint32_t struct_size`, the WRITER's sizeof. Records in arrays
 *      have no size of their own; the sfr_array that points at them carries the writer's stride.
 *  L4  A reader copies min(writer_size, sizeof mine) bytes into a zeroed local. A size below the
 *      struct's size in the oldest minor of this major is SFR_E_ABI. Bytes that lie past what the
 *      reader knows must be zero, else SFR_E_UNSUPPORTED: a field I cannot see is a request that I
 *      would ignore in silence. Unknown bits in any `flags` word are SFR_E_UNSUPPORTED too. For an
 *      output struct the roles swap: the callee writes at most struct_size bytes and leaves
 *      struct_size alone.
 *  L5  A struct grows only at its tail and only with a minor; zero means "absent, as before". A
 *      changed meaning is a new interface id ("sf.kv/2"), never a changed field. sfr_str, sfr_buf
 *      and sfr_array are embedded by value everywhere: they never grow.
 *  L6  Step records (sfr_feed, sfr_lane_out, sfr_row) hold offsets, never pointers, so that the
 *      same bytes can travel through shared memory. Little-endian, 64-bit machines only.
 *
 * THREADS  Each function below carries a tag.
 *  [any]    from any thread, at the same time as anything else
 *  [model]  the host serialises these per model; the OS thread may change between calls, unless
 *           the descriptor says "thread_affinity": true (then it never changes)
 *  [main]   the host serialises these per process
 *  [probe]  called once, in a process that is thrown away afterwards
 *
 * OWNERSHIP  Nobody frees what the other side allocated. Handles die by their maker's function.
 *  An sfr_str is UTF-8, not NUL-terminated, and borrowed for the call; "static" means valid
 *  until the process ends.
 *
 * UNWINDING  No C++ exception, Rust panic, longjmp or pthread_exit crosses a call, either way.
 *
 * ERRORS  Functions return 0 or a negative SFR_E_ code and describe it in `err`, which may be
 *  NULL. The scope in the record tells the host what is lost: see SFR_SCOPE_.
 */
#ifndef SUPERFLUID_RUNTIME_H
#define SUPERFLUID_RUNTIME_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define SFR_ABI_MAJOR 0u
#define SFR_ABI_MINOR 2u

#if defined(_WIN32)
#define SFR_CALL __cdecl
#define SFR_EXPORT __declspec(dllexport)
#else
#define SFR_CALL
#define SFR_EXPORT __attribute__((visibility("default")))
#endif

/* True when *p is large enough to hold member f of type T and that member is set. */
#define SFR_HAS(p, T, f) ((p) && (p)->struct_size >= offsetof(T, f) + sizeof((p)->f) && (p)->f)

/* ------------------------------------------------------------------ status codes (append-only) */
typedef int32_t sfr_status;
#define SFR_OK 0
#define SFR_E_ABI (-1)          /* a size, stride, alignment, offset or count that breaks the layout rules */
#define SFR_E_ARG (-2)          /* a value out of its range; `field` names it */
#define SFR_E_UNSUPPORTED (-3)  /* this runtime or model can never do that: final, may be cached */
#define SFR_E_OPTION (-4)       /* a MUST option was not honoured exactly; `field` is its key */
#define SFR_E_NOT_FOUND (-5)    /* no such file, lane, adapter, ... */
#define SFR_E_FORMAT (-6)       /* not a model that this runtime reads, or a damaged one */
#define SFR_E_NOMEM_HOST (-7)
#define SFR_E_NOMEM_DEVICE (-8)
#define SFR_E_CAPACITY (-9)     /* would fit if something were freed: the host may shed and retry */
#define SFR_E_BUSY (-10)
#define SFR_E_CANCELLED (-11)   /* abort_seq was raised */
#define SFR_E_DEADLINE (-12)
#define SFR_E_IDENTITY (-13)    /* saved state or an adapter that belongs to another model or build */
#define SFR_E_CHECKSUM (-14)
#define SFR_E_SMALL_BUFFER (-15) /* `needed` holds the size; nothing was written */
#define SFR_E_STATE (-16)       /* a legal call at the wrong moment: wrong position, step in flight, ... */
#define SFR_E_DEVICE_LOST (-17)
#define SFR_E_FATAL (-18)       /* the process must be replaced */
#define SFR_E_INTERNAL (-19)    /* a bug of the runtime, caught by the runtime */

/* What an error costs. The host fails one request, reopens the model, or replaces the process. */
#define SFR_SCOPE_CALL 0u
#define SFR_SCOPE_LANE 1u
#define SFR_SCOPE_MODEL 2u
#define SFR_SCOPE_RUNTIME 3u
#define SFR_SCOPE_PROCESS 4u

/* ------------------------------------------------------------------ frozen leaves (L5) */
typedef struct sfr_str {
  const char *p; /* may be NULL when n is 0 */
  uint64_t n;    /* bytes */
} sfr_str;

/* Variable-size output. The callee always sets `needed`; when cap < needed it writes nothing to p
 * and returns SFR_E_SMALL_BUFFER, else it writes `needed` bytes. */
typedef struct sfr_buf {
  void *p;
  uint64_t cap;    /* bytes at p */
  uint64_t needed; /* OUT, bytes */
} sfr_buf;

/* An array of records. `at` is a byte offset into the arena for step records, else an address. */
typedef struct sfr_array {
  uint64_t at; /* multiple of 8 */
  uint32_t count;
  uint32_t stride; /* the writer's sizeof(record), multiple of 4 */
} sfr_array;

/* ------------------------------------------------------------------ errors */
#define SFR_ERROR_MESSAGE_MAX 400u
#define SFR_ERROR_FIELD_MAX 88u

/* Caller-owned, fixed size: no allocation and no thread-local state on the error path. */
typedef struct sfr_error {
  uint32_t struct_size;
  int32_t code;        /* the same as the returned status */
  int32_t native_code; /* the engine's own number, 0 = none */
  uint32_t scope;      /* SFR_SCOPE_ */
  uint32_t message_len; /* bytes in message; UTF-8, cut at a character border */
  uint32_t field_len;   /* bytes in field */
  char message[SFR_ERROR_MESSAGE_MAX]; /* what happened, to what, and why; lower case, no final dot */
  char field[SFR_ERROR_FIELD_MAX];     /* the option, struct field or file it is about */
} sfr_error;

/* ------------------------------------------------------------------ what the host offers */
#define SFR_LOG_ERROR 1
#define SFR_LOG_WARN 2
#define SFR_LOG_INFO 3
#define SFR_LOG_DEBUG 4
#define SFR_LOG_TRACE 5

typedef struct sfr_host {
  uint32_t struct_size;
  uint32_t abi_minor;
  void *ctx;              /* passed back to the functions below; static */
  sfr_str host_name;      /* static */
  sfr_str host_version;   /* static */
  void(SFR_CALL *log)(void *ctx, int32_t level, sfr_str target, sfr_str message); /* [any] never blocks */
  int32_t(SFR_CALL *log_enabled)(void *ctx, int32_t level, sfr_str target);       /* [any] */
  uint64_t(SFR_CALL *now_ns)(void *ctx);                                          /* [any] monotonic */
  const void *(SFR_CALL *get_interface)(void *ctx, const char *id); /* [any] host services by id, or NULL */
} sfr_host;

/* Shared words that a runtime polls with acquire loads between layers or chunks. The host bumps
 * them; a runtime remembers the value it saw when the call began and reacts to a change. */
typedef struct sfr_control {
  uint32_t struct_size;
  uint32_t yield_seq; /* end the step at the next chunk; what was consumed counts */
  uint32_t abort_seq; /* give up the load or the step: SFR_E_CANCELLED, lanes as before the step */
  uint32_t reserved0;
  uint64_t reserved[6];
} sfr_control;

/* ------------------------------------------------------------------ options: fail-closed */
#define SFR_T_BOOL 1u /* i is 0 or 1 */
#define SFR_T_I64 2u
#define SFR_T_F64 3u
#define SFR_T_STR 4u

#define SFR_OPT_MUST 1u /* flag: refuse with SFR_E_OPTION rather than ignore or approximate */

#define SFR_HONOURED_UNSEEN 0u
#define SFR_HONOURED_EXACTLY 1u
#define SFR_HONOURED_APPROXIMATELY 2u
#define SFR_HONOURED_IGNORED 3u

/* Keys every runtime should read: "ctx.max" (i64, positions a lane may hold), "lanes.max" (i64),
 * "kv.cells" (i64, positions that all lanes together may hold; a host that keeps idle lanes asks for fewer than
 * lanes.max windows), "step.tokens.max" (i64, fed tokens in one step), "threads" (i64), "kv.type_k" and "kv.type_v"
 * (str, "f16", "q8_0", "q4_0", ...). A runtime's own options are declared in its descriptor. */
typedef struct sfr_opt {
  sfr_str key;
  sfr_str s;         /* value when type is SFR_T_STR */
  int64_t i;         /* value when type is SFR_T_BOOL or SFR_T_I64 */
  double f;          /* value when type is SFR_T_F64 */
  uint32_t type;     /* SFR_T_ */
  uint32_t flags;    /* SFR_OPT_ */
  uint32_t honoured; /* OUT, SFR_HONOURED_ */
  uint32_t reserved0;
} sfr_opt;

/* ------------------------------------------------------------------ opening a model */
typedef struct sfr_open {
  uint32_t struct_size;
  uint32_t flags;          /* none defined */
  sfr_array paths;         /* of sfr_str: absolute paths of the model's files, the main one first; read only */
  sfr_array opts;          /* of sfr_opt; the runtime fills `honoured` in place */
  sfr_array devices;       /* of sfr_str: device ids from probe; empty = the runtime's own order */
  sfr_str scratch_dir;     /* the two directories that a runtime may write to; empty = none */
  sfr_str cache_dir;
  void(SFR_CALL *progress)(void *ctx, float fraction); /* may be NULL; called from the opening thread */
  void *progress_ctx;
  const sfr_control *control; /* may be NULL; outlives the call */
} sfr_open;

typedef struct sfr_model sfr_model; /* opaque */

/* ------------------------------------------------------------------ a step */
#define SFR_NONE 0xFFFFFFFFu

/* One lane's share of a ragged batch. A lane appears at most once in a plan. */
typedef struct sfr_feed {
  uint64_t lane;      /* from lane_create or fork */
  uint32_t token_off; /* first token of the run, an index into plan.tokens */
  uint32_t token_len; /* length of the run: 1 for a decode, more for a prefill chunk or a draft; never 0 */
  uint32_t pos0;      /* the lane's length before this run as the host knows it; a mismatch is this lane's SFR_E_STATE */
  uint32_t flags;     /* none defined */
  uint32_t row_off;   /* first position within the run that wants a row */
  uint32_t row_len;   /* how many do; 0 = none. row_off + row_len <= token_len */
  uint32_t sampler;   /* index into plan.samplers ("sf.sampler/1"), SFR_NONE = logits */
  uint32_t adapter;   /* index into plan.adapters ("sf.lora/1"), SFR_NONE = none */
  uint32_t media_off; /* into plan.media ("sf.media/1") */
  uint32_t media_len;
  uint32_t tree; /* index into plan.trees ("sf.spec/1"), SFR_NONE = a plain run */
  uint32_t reserved0;
} sfr_feed;

typedef struct sfr_plan {
  uint32_t struct_size;
  uint32_t flags;       /* none defined */
  uint64_t seq;         /* grows by one per step; echoed in the result */
  uint64_t deadline_ns; /* in the host's now_ns, soft; 0 = none */
  const void *arena;    /* aligned to 8; what the arrays below point into */
  uint64_t arena_len;
  sfr_array feeds;  /* of sfr_feed */
  sfr_array tokens; /* of uint32_t, stride 4 */
  sfr_array samplers; /* empty unless the runtime offers the interface that defines the record */
  sfr_array adapters;
  sfr_array media;
  sfr_array trees;
  const sfr_control *control; /* may be NULL; outlives the step */
} sfr_plan;

/* What became of one feed; one per feed, in the plan's order. */
typedef struct sfr_lane_out {
  uint64_t lane;
  int32_t status;       /* SFR_OK, or this lane's own fault; its neighbours are not touched by it */
  uint32_t native_code;
  uint32_t pos;         /* the lane's length after the step */
  uint32_t consumed;    /* tokens of the run now in the lane; less than token_len only after a yield or a fault */
  uint32_t row_off;     /* this lane's rows in result.rows */
  uint32_t row_len;
} sfr_lane_out;

/* One wanted position. Its logits stand at result.logits + logits_row * result.logits_stride. */
typedef struct sfr_row {
  uint64_t lane;
  uint32_t pos;        /* position of the token whose successor these logits predict */
  uint32_t logits_row; /* row number, SFR_NONE when the runtime sampled on its device */
  uint32_t token;      /* "sf.sampler/1" only, else SFR_NONE */
  float logprob;
} sfr_row;

#define SFR_DTYPE_F32 1u
#define SFR_DTYPE_F16 2u
#define SFR_DTYPE_BF16 3u

#define SFR_RESULT_YIELDED 1u /* flag: the step ended early; see lane_out.consumed */

/* The host owns the struct and the arena; the runtime fills them. */
typedef struct sfr_result {
  uint32_t struct_size;
  uint32_t flags;      /* OUT, SFR_RESULT_ */
  uint64_t seq;        /* OUT */
  void *arena;         /* IN, aligned to 8: room for the two arrays below */
  uint64_t arena_len;  /* IN, bytes */
  uint64_t arena_used; /* OUT; on SFR_E_SMALL_BUFFER the bytes needed: call step_end again with more */
  sfr_array lanes;     /* OUT, of sfr_lane_out, offset into arena */
  sfr_array rows;      /* OUT, of sfr_row, offset into arena */
  const void *logits;  /* OUT: [rows, vocab] row-major in the runtime's memory, valid until the next step_begin or close */
  uint64_t logits_rows;   /* OUT */
  uint32_t logits_stride; /* OUT, bytes from one row to the next */
  uint32_t logits_dtype;  /* OUT, SFR_DTYPE_ */
  uint32_t vocab;         /* OUT, logits in a row */
  uint32_t reserved0;
  uint64_t device_ns; /* OUT, time on the device or in kernels; 0 = not measured */
} sfr_result;

/* ------------------------------------------------------------------ statistics */
typedef struct sfr_stats {
  uint32_t struct_size;
  uint32_t lanes_live;
  uint64_t steps;
  uint64_t tokens_fed;
  uint64_t bytes_weights;
  uint64_t bytes_kv;      /* reserved for KV */
  uint64_t bytes_compute; /* scratch buffers */
  uint64_t bytes_mapped;  /* of bytes_weights: file-backed pages the system may drop */
  uint64_t device_free;   /* bytes, 0 = unknown */
  uint64_t kv_cells_total; /* positions all lanes together may hold */
  uint64_t kv_cells_used;
} sfr_stats;

/* ------------------------------------------------------------------ "sf.engine/1": mandatory */
typedef struct sfr_engine_vt {
  uint32_t struct_size;
  uint32_t reserved0;
  /* [main] Reads the header first and refuses a foreign or damaged file before touching weights. */
  sfr_status(SFR_CALL *open)(const sfr_open *req, sfr_model **out, sfr_error *err);
  /* [main] Frees the model and joins every thread it started. */
  void(SFR_CALL *close)(sfr_model *model);
  /* [any] JSON: {"effective":{option: value, ...},"model":{facts},"capabilities":{...}}; see abi/README.md. */
  sfr_status(SFR_CALL *describe)(sfr_model *model, sfr_buf *json, sfr_error *err);
  /* [model] A lane is one sequence with its KV, empty at first. Ids are never reused. SFR_E_CAPACITY when full. */
  sfr_status(SFR_CALL *lane_create)(sfr_model *model, uint64_t *lane, sfr_error *err);
  /* [model] */
  sfr_status(SFR_CALL *lane_free)(sfr_model *model, uint64_t lane, sfr_error *err);
  /* [model] Cuts the lane to at most `want` positions; *got <= want tells how many are left. 0 is always legal. */
  sfr_status(SFR_CALL *lane_truncate)(sfr_model *model, uint64_t lane, uint32_t want, uint32_t *got,
                                      sfr_error *err);
  /* [model] Takes the plan; it may die when this returns. A simple engine does all its work here. An error here
   * means that no lane changed. One step is in flight at a time. */
  sfr_status(SFR_CALL *step_begin)(sfr_model *model, const sfr_plan *plan, uint64_t *ticket, sfr_error *err);
  /* [model] Waits for the step. A fault of one lane is that lane's status, not an error of the call. */
  sfr_status(SFR_CALL *step_end)(sfr_model *model, uint64_t ticket, sfr_result *result, sfr_error *err);
  /* [any] Never touches the device. */
  sfr_status(SFR_CALL *stats)(sfr_model *model, sfr_stats *out);
  /* [any] Optional per-model interfaces: the tables below by id, NULL for what this model cannot do. */
  const void *(SFR_CALL *get_interface)(sfr_model *model, const char *id);
} sfr_engine_vt;

/* ------------------------------------------------------------------ "sf.inspect/1": optional */
typedef struct sfr_estimate {
  uint32_t struct_size;
  uint32_t confidence; /* 0 none, 1 from the header, 2 measured */
  uint64_t bytes_weights;
  uint64_t bytes_kv_per_token; /* one position of one lane, at the options given */
  uint64_t bytes_fixed_per_lane;
  uint64_t bytes_compute;
  uint32_t ctx_trained; /* positions the model was trained for */
  uint32_t lanes_max;   /* 0 = no limit of its own */
} sfr_estimate;

/* Reads the header of the model's files: no weights, no device. From the runtime's get_interface. */
typedef struct sfr_inspect_vt {
  uint32_t struct_size;
  uint32_t reserved0;
  /* [any] JSON: {"architecture":..,"quantization":..,"ctx_trained":..,"vocab":..,...} */
  sfr_status(SFR_CALL *inspect)(const sfr_open *req, sfr_buf *json, sfr_error *err);
  /* [any] */
  sfr_status(SFR_CALL *estimate)(const sfr_open *req, sfr_estimate *out, sfr_error *err);
} sfr_inspect_vt;

/* ------------------------------------------------------------------ "sf.tokenizer/1": optional */
typedef struct sfr_tokenizer sfr_tokenizer; /* opaque, immutable */

#define SFR_ENCODE_SPECIAL 1u /* flag: control tokens written in the text become control tokens */
#define SFR_ENCODE_ADD_BOS 2u /* flag: add BOS and EOS as the model's metadata asks */

/* Opens without weights. From the runtime's get_interface. */
typedef struct sfr_tokenizer_vt {
  uint32_t struct_size;
  uint32_t reserved0;
  sfr_status(SFR_CALL *open)(const sfr_open *req, sfr_tokenizer **out, sfr_error *err); /* [any] */
  void(SFR_CALL *close)(sfr_tokenizer *tokenizer);                                      /* [any] */
  /* [any] out holds uint32_t tokens: cap and needed are bytes. */
  sfr_status(SFR_CALL *encode)(sfr_tokenizer *tokenizer, sfr_str text, uint32_t flags, sfr_buf *out, sfr_error *err);
  /* [any] The raw bytes of `count` tokens from `first` on, concatenated; ends[i] is where the i-th ends. */
  sfr_status(SFR_CALL *token_bytes)(sfr_tokenizer *tokenizer, uint32_t first, uint32_t count, uint32_t *ends,
                                    sfr_buf *bytes, sfr_error *err);
  /* [any] JSON: {"vocab":..,"bos":..,"eos":..,"eog":[..],"add_bos":..,"kind":..} */
  sfr_status(SFR_CALL *facts)(sfr_tokenizer *tokenizer, sfr_buf *json, sfr_error *err);
} sfr_tokenizer_vt;

/* ------------------------------------------------------------------ "sf.kv/1": optional */
/* From the model's get_interface. A member may be NULL: the descriptor then gives the reason. */
typedef struct sfr_kv_vt {
  uint32_t struct_size;
  uint32_t reserved0;
  /* [model] A new lane that holds the first `upto` positions of parent; the two are independent from then on. */
  sfr_status(SFR_CALL *fork)(sfr_model *model, uint64_t parent, uint32_t upto, uint64_t *child, sfr_error *err);
  /* [model] Bytes that exporting positions [0, upto) takes. */
  sfr_status(SFR_CALL *export_size)(sfr_model *model, uint64_t lane, uint32_t upto, uint64_t *bytes, sfr_error *err);
  /* [model] Writes an envelope of identity, checksum and state. */
  sfr_status(SFR_CALL *export_state)(sfr_model *model, uint64_t lane, uint32_t upto, sfr_buf *out, sfr_error *err);
  /* [model] A new lane from an envelope. SFR_E_IDENTITY for a foreign one, SFR_E_CHECKSUM for a damaged one. */
  sfr_status(SFR_CALL *import_state)(sfr_model *model, const void *bytes, uint64_t len, uint64_t *lane, sfr_error *err);
} sfr_kv_vt;

/* ------------------------------------------------------------------ "sf.embed/1": optional */
#define SFR_POOLING_MODEL 0u /* as the model's own files say */
#define SFR_POOLING_MEAN 1u  /* of all tokens */
#define SFR_POOLING_FIRST 2u /* the first token's vector */
#define SFR_POOLING_LAST 3u  /* the last token's */

#define SFR_NORMALIZE_MODEL 0u /* as the model's own files say */
#define SFR_NORMALIZE_YES 1u   /* to a length of one */
#define SFR_NORMALIZE_NO 2u

/* Texts to be turned into vectors. Lanes have no part in it. A text's vector does not depend on the others. */
typedef struct sfr_embed {
  uint32_t struct_size;
  uint32_t flags;     /* none defined */
  sfr_array tokens;   /* of uint32_t, stride 4, an address: the tokens of all texts back to back */
  sfr_array lengths;  /* of uint32_t, stride 4, an address: tokens of each text, 1 or more; their sum is tokens.count */
  uint32_t pooling;   /* SFR_POOLING_ */
  uint32_t normalize; /* SFR_NORMALIZE_ */
  const sfr_control *control; /* may be NULL; outlives the call */
} sfr_embed;

/* From the model's get_interface. Its describe() says "embedding":{"dims":..,"pooling":..,"normalized":..,
 * "tokens_max":..}: a text of more tokens is SFR_E_ARG. A model that makes vectors only refuses lane_create with
 * SFR_E_UNSUPPORTED. */
typedef struct sfr_embed_vt {
  uint32_t struct_size;
  uint32_t reserved0;
  /* [model] out gets lengths.count * dims floats of 32 bits, a text's vector after the other; `needed` follows from the
   * request alone, so a small buffer costs no work. SFR_E_CANCELLED when abort_seq was raised. */
  sfr_status(SFR_CALL *embed)(sfr_model *model, const sfr_embed *req, sfr_buf *out, sfr_error *err);
} sfr_embed_vt;

/* Reserved ids whose tables a later minor declares; every get_interface answers NULL for them until then:
 * "sf.sampler/1" "sf.lora/1" "sf.media/1" "sf.transcribe/1" "sf.spec/1" "sf.stage/1", and of the host
 * "sfh.mem/1" "sfh.threads/1" "sfh.trace/1". */

/* ------------------------------------------------------------------ the runtime */
typedef struct sfr_probe {
  uint32_t struct_size;
  uint32_t depth; /* 0 no driver library is touched, 1 devices are listed, 2 a context is made and dropped */
  uint64_t budget_ns;
} sfr_probe;

typedef struct sfr_runtime {
  uint32_t struct_size;
  uint32_t abi_major;
  uint32_t abi_minor;
  uint32_t abi_minor_min_host; /* the oldest host minor it can live with */
  sfr_str descriptor_json;     /* static; the same bytes as the section and the manifest's descriptor */
  sfr_status(SFR_CALL *init)(const sfr_host *host, sfr_error *err); /* [main] once; no device, no threads. host is static */
  void(SFR_CALL *shutdown)(void);                                   /* [main] joins all threads; the library stays mapped */
  sfr_status(SFR_CALL *probe)(const sfr_probe *req, sfr_buf *json, sfr_error *err); /* [probe] */
  const void *(SFR_CALL *get_interface)(const char *id); /* [any] after init: "sf.engine/1", ...; NULL for unknown ids */
} sfr_runtime;

typedef struct sfr_query {
  uint32_t struct_size;
  uint32_t abi_major;     /* of the host */
  uint32_t abi_minor;     /* of the host */
  uint32_t abi_minor_min; /* the oldest runtime minor it can live with */
} sfr_query;

/* The only exported symbol. Pure: no allocation, no I/O, no threads. NULL when the versions do not overlap. */
#define SFR_ENTRY_NAME "superfluid_runtime_v1"
typedef const sfr_runtime *(SFR_CALL *sfr_entry_fn)(const sfr_query *query);
SFR_EXPORT const sfr_runtime *SFR_CALL superfluid_runtime_v1(const sfr_query *query);

/* The descriptor also stands in a section of its own, so that it can be read without running anything:
 *   SFR_DESCRIPTOR_SECTION static const char descriptor[] = "{...}";
 * The section holds exactly the descriptor's bytes; trailing NULs do not count. */
#if defined(__APPLE__)
#define SFR_DESCRIPTOR_SECTION __attribute__((used, section("__DATA,__sfr_desc")))
#elif defined(_WIN32)
#define SFR_DESCRIPTOR_SECTION
#else
#define SFR_DESCRIPTOR_SECTION __attribute__((used, section(".sfr_desc")))
#endif

#ifdef __cplusplus
}
#endif
#endif
