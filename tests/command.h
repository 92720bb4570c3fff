/* command.h - for tests that drive the `wok` command from outside. Every test runs in a fresh folder; what the command writes to
 * stdout and stderr is in `out` and `err`. A test's source defines _XOPEN_SOURCE 700 before all. */
#ifndef TEST_COMMAND_H
#define TEST_COMMAND_H

#include "json.h"
#include "loading.h"
#include "support.h"
#include "wok_npy.h"

#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <signal.h>
#include <sys/wait.h>

static wok_ctx *ctx;
static char work[64], captured[64]; /* the command's folder; where its stdout and stderr go */
static char *out, *err;             /* what it wrote there */
static char *bert, *distil;         /* Hugging Face folders */
static char *onnx;                  /* the same BERT by TorchScript */

static inline void setup(void) {
    if (WOK_COMMAND[0] == 0) cr_skip_test("the wok command is not built");
    ctx = wok_ctx_create(&(wok_ctx_options){.size = sizeof(wok_ctx_options), .threads = 1});
    strcpy(work, "/tmp/wok-command-XXXXXX");
    strcpy(captured, "/tmp/wok-captured-XXXXXX");
    cr_assert(mkdtemp(work) && mkdtemp(captured) && chdir(work) == 0);
    bert = realpath(MODELS "bert-h64", NULL);
    distil = realpath(MODELS "distilbert-h64-cls", NULL);
    onnx = realpath(MODELS "bert-h64/ts13.onnx", NULL);
    cr_assert(bert && distil && onnx);
}

static inline void teardown(void) {
    cr_assert_eq(chdir("/"), 0);
    if (work[0]) remove_temp(work), remove_temp(captured);
    free(out), free(err), free(bert), free(distil), free(onnx);
    wok_ctx_free(&ctx);
}
TestSuite(command, .init = setup, .fini = teardown, .timeout = 300);

/* ---- running it ----------------------------------------------------------------------------------------------------------- */

typedef enum sink { TO_FILE, TO_FULL, TO_NOTHING, TO_BROKEN_PIPE } sink;

static inline void redirect(int fd, const char *name, sink kind) {
    int to = -1, ends[2];
    if (kind == TO_NOTHING) {
        close(fd);
        return;
    }
    if (kind == TO_FILE) to = open(path_of("%s/%s", captured, name), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (kind == TO_FULL) to = open("/dev/full", O_WRONLY);
    if (kind == TO_BROKEN_PIPE && pipe(ends) == 0) close(ends[0]), to = ends[1];
    if (to < 0 || dup2(to, fd) < 0) _exit(99);
    close(to);
}

static inline int run_into(sink kind, const char *const *arguments) {
    free(out), free(err);
    write_file(path_of("%s/out", captured), "", 0);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGPIPE, SIG_DFL); /* as a shell leaves it */
        redirect(2, "err", TO_FILE);
        redirect(1, "out", kind);
        execv(WOK_COMMAND, (char *const *)(uintptr_t)arguments);
        _exit(98);
    }
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    size_t bytes;
    out = (char *)read_file(path_of("%s/out", captured), &bytes), out[bytes] = 0;
    err = (char *)read_file(path_of("%s/err", captured), &bytes), err[bytes] = 0;
    cr_assert(WIFEXITED(status), "%s: ended by a signal: %s", arguments[1], err);
    return WEXITSTATUS(status);
}

#define WOK(...) run_into(TO_FILE, (const char *const[]){"wok", __VA_ARGS__, NULL})
#define WOK_INTO(kind, ...) run_into(kind, (const char *const[]){"wok", __VA_ARGS__, NULL})

static int seen;

static inline int count_one(const char *path, const struct stat *info, int type, struct FTW *where) {
    (void)path, (void)info, (void)type, (void)where;
    seen++;
    return 0;
}

/* Everything below the folder in which the command ran, folders included. */
static inline int things(void) {
    seen = 0;
    cr_assert_eq(nftw(work, count_one, 16, FTW_PHYS), 0);
    return seen;
}

static inline void expect_failure(const char *label, int status, int want, const char *part, int before) {
    size_t length = strlen(err);
    cr_assert_eq(status, want, "%s: status %d, stderr: %s", label, status, err);
    cr_assert(length > 6 && !strncmp(err, "wok: ", 5) && strchr(err, '\n') == err + length - 1,
              "%s: not one line that starts with 'wok: ': <%s>", label, err);
    cr_assert(strstr(err, part), "%s: '%s' is not in: %s", label, part, err);
    cr_assert_str_empty(out, "%s: stdout: %s", label, out);
    cr_assert_eq(things(), before, "%s left something behind", label);
}

/* The command fails with this status and one sentence that holds `part`; nothing on stdout, no file left. */
#define FAILS(want, part, ...)                                                                                         \
    do {                                                                                                               \
        int before_ = things(), status_ = WOK(__VA_ARGS__);                                                            \
        expect_failure(#__VA_ARGS__, status_, want, part, before_);                                                    \
    } while (0)
#define WORKS(...)                                                                                                     \
    do {                                                                                                               \
        int status_ = WOK(__VA_ARGS__);                                                                                \
        cr_assert_eq(status_, 0, "%s: status %d, stderr: %s", #__VA_ARGS__, status_, err);                             \
    } while (0)

/* stdout as the one JSON object that it must be. Free with wok_json_free. */
static inline wok_json *json_of(void) {
    wok_json *doc = NULL;
    size_t length = strlen(out);
    cr_assert(length > 0 && strchr(out, '\n') == out + length - 1, "not one line: %s", out);
    cr_assert_eq(wok_json_parse(ctx, out, length, "stdout", &doc), WOK_OK, "%s: %s", wok_ctx_error(ctx), out);
    cr_assert_eq(wok_json_kind_of(doc, 0), WOK_JSON_OBJECT);
    return doc;
}

static inline double number(const wok_json *doc, wok_json_at object, const char *key) {
    double value = NAN;
    cr_assert(wok_json_double(doc, wok_json_get(doc, object, key), &value), "%s is no number: %s", key, out);
    return value;
}

static inline wok_json_at item(const wok_json *doc, wok_json_at list, int index) {
    wok_json_at at = wok_json_first(doc, list);
    while (index-- > 0) at = wok_json_next(doc, at);
    return at;
}

static inline void expect_shape(const wok_json *doc, wok_json_at shape, int rank, const int64_t *dims) {
    cr_assert_eq(wok_json_kind_of(doc, shape), WOK_JSON_ARRAY);
    cr_assert_eq(wok_json_count(doc, shape), rank, "%s", out);
    for (int i = 0; i < rank; i++) {
        int64_t value = -1;
        cr_assert(wok_json_int(doc, item(doc, shape, i), &value) && value == dims[i], "dimension %d is %lld", i,
                  (long long)value);
    }
}

/* ---- things to run on ------------------------------------------------------------------------------------------------------- */

static inline void save_npy(const char *name, wok_dtype dtype, int rank, const int64_t *dims, const void *data) {
    wok_tensor t = {.size = sizeof t, .dtype = dtype, .rank = rank, .data = (void *)(uintptr_t)data};
    t.bytes = wok_dtype_size(dtype);
    for (int i = 0; i < rank; i++) t.bytes *= (size_t)dims[i], t.dims[i] = dims[i];
    cr_assert_eq(wok_npy_save(ctx, name, &t), WOK_OK, "%s", wok_ctx_error(ctx));
}

/* NAME.npy: token ids [1,length], all `id` but the last, which is `last`. */
static inline void save_ids(const char *name, int64_t length, int64_t id, int64_t last) {
    int64_t ids[256];
    for (int64_t i = 0; i < length; i++) ids[i] = i + 1 < length ? id : last;
    save_npy(name, WOK_I64, 2, (int64_t[]){1, length}, ids);
}

/* x [n,2] -> one output of each name, 2x, 3x, ... */
static inline void save_model(const char *path, int count, const char *const *names) {
    wok_model *model = NULL;
    cr_assert_eq(wok_model_new(ctx, "onnx", &model), WOK_OK);
    wok_model_set_opset(model, "", 17);
    wok_value x = wok_graph_input(model, "x", WOK_F32, 2, (int64_t[]){-1, 2}, (const char *[]){"n", NULL});
    for (int i = 0; i < count; i++) {
        float factor = (float)(i + 2);
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        wok_value w = wok_graph_constant(model, name, WOK_F32, 0, NULL, &factor, sizeof factor, WOK_DATA_COPY);
        wok_graph_output(model, wok_graph_op(model, "Mul", "", NULL, (wok_value[]){x, w}, 2, names[i]));
    }
    cr_assert_eq(wok_model_finish(model, NULL), WOK_OK, "%s", wok_ctx_error(ctx));
    cr_assert_eq(wok_model_save(model, path), WOK_OK, "%s", wok_ctx_error(ctx));
    wok_model_free(&model);
}

static inline void save_x(void) {
    save_npy("x.npy", WOK_F32, 2, (int64_t[]){1, 2}, (float[]){1, -2});
}

/* A copy of a Hugging Face folder, for damage. */
static inline void copy_bert(void) {
    size_t bytes;
    uint8_t *data = read_file(path_of("%s/config.json", bert), &bytes);
    mkdir("hf", 0777);
    write_file("hf/config.json", data, bytes);
    free(data);
    data = read_file(path_of("%s/model.safetensors", bert), &bytes);
    write_file("hf/model.safetensors", data, bytes);
    free(data);
}

#endif
