/* test_safetensors.c - the table of tensors: what the format allows, what it does not, damaged files, the writer.
 * B15 is the number of the public bug list. */
#define _DEFAULT_SOURCE
#include "loading.h"
#include "safetensors.h"

static wok_ctx *ctx;
static size_t held;

static void setup(void) {
    ctx = wok_ctx_create(&(wok_ctx_options){.size = sizeof(wok_ctx_options), .threads = 1});
    held = wok_ctx_memory(ctx, NULL);
}

static void teardown(void) {
    size_t now = wok_ctx_memory(ctx, NULL);
    wok_ctx_free(&ctx);
    if (now != held) fprintf(stderr, "Assertion Failed: %zu bytes were not given back\n", now - held);
}
TestSuite(safetensors, .init = setup, .fini = teardown);

/* A file of this header and so many bytes 0, 1, 2, ... of data; exactly as large, so that a read beyond it is seen. */
static uint8_t *file_of(const char *header, size_t data, size_t *bytes) {
    uint64_t length = strlen(header);
    *bytes = 8 + length + data;
    uint8_t *file = malloc(*bytes);
    memcpy(file, &length, 8);
    memcpy(file + 8, header, length);
    for (size_t i = 0; i < data; i++) file[8 + length + i] = (uint8_t)i;
    return file;
}

static wok_status read_bytes(const uint8_t *file, size_t bytes, wok_tensors *tensors) {
    wok_source source = {.data = file, .bytes = bytes, .name = "test"};
    wok_status status = wok_safetensors_read(ctx, &source, tensors);
    if (status != WOK_OK) {
        expect_sentence(ctx);
        cr_assert_null(tensors->entries);
    }
    return status;
}

static void refuse(const char *header, size_t data, const char *part) {
    size_t bytes;
    uint8_t *file = file_of(header, data, &bytes);
    wok_tensors tensors;
    cr_expect_eq(read_bytes(file, bytes, &tensors), WOK_ERR_FORMAT, "%s: %s", header, wok_ctx_error(ctx));
    cr_expect(strstr(wok_ctx_error(ctx), part), "'%s' is not in: %s", part, wok_ctx_error(ctx));
    wok_tensors_free(&tensors);
    free(file);
}

/* Loads, and tensor "a" has this type, rank and number of bytes. */
static void accept(const char *header, size_t data, wok_dtype dtype, int rank, size_t size) {
    size_t bytes;
    uint8_t *file = file_of(header, data, &bytes);
    wok_tensors tensors;
    cr_assert_eq(read_bytes(file, bytes, &tensors), WOK_OK, "%s: %s", header, wok_ctx_error(ctx));
    const wok_tensor_entry *a = wok_tensors_find(&tensors, "a");
    cr_assert(a, "%s", header);
    cr_assert(a->dtype == dtype && a->rank == rank && a->bytes == size && a->data, "%s", header);
    cr_assert_null(wok_tensors_find(&tensors, "z"));
    wok_tensors_free(&tensors);
    free(file);
}

#define A16 "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}"

Test(safetensors, B15_header_is_not_trusted) {
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
           "\"b\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[8,24]}}",
           24, "overlaps");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
           "\"b\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
           16, "overlaps");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
           "\"b\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[20,36]}}",
           36, "gap");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[4,20]}}", 20, "gap");
    refuse(A16 "}", 8, "beyond the file");
    refuse(A16 "}", 20, "belong to none");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1000,1000],\"data_offsets\":[0,16]}}", 16, "does not fit");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[8589934592,8589934592],\"data_offsets\":[0,16]}}", 16, "does not fit");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", 0, "does not fit");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,0]}}", 16, "data_offsets");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[-16,0]}}", 16, "data_offsets");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
           "\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,32]}}",
           32, "twice");
}

Test(safetensors, B15_what_the_format_allows) {
    accept(A16 "}   ", 16, WOK_F32, 1, 16);
    accept("  " A16 "}", 16, WOK_F32, 1, 16);
    accept("{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16,
           WOK_F32, 1, 16);
    accept("{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, WOK_F32, 0, 4);
    accept("{\"a\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[0,0]}}", 0, WOK_F32, 2, 0);
    accept("{\"b\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[4,9]},\"a\":{\"dtype\":\"F16\",\"shape\":[2],"
           "\"data_offsets\":[0,4]}}",
           9, WOK_F16, 1, 4);
}

Test(safetensors, B15_header_length) {
    size_t bytes;
    wok_tensors tensors;
    uint8_t *file = file_of(A16 "}", 16, &bytes);
    const uint64_t lengths[] = {UINT64_MAX, 200000000, 100000001, bytes - 7, bytes, 0, 1, 10};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        memcpy(file, &lengths[i], 8);
        cr_expect_eq(read_bytes(file, bytes, &tensors), WOK_ERR_FORMAT, "length %zu", (size_t)lengths[i]);
    }
    for (size_t n = 0; n < 8; n++) cr_expect_eq(read_bytes(file, n, &tensors), WOK_ERR_FORMAT);
    free(file);
}

Test(safetensors, every_field_must_be_there_and_of_its_kind) {
    refuse("[]", 0, "no JSON object");
    refuse("{\"a\":1}", 0, "dtype");
    refuse("{\"a\":{\"shape\":[4],\"data_offsets\":[0,16]}}", 16, "dtype");
    refuse("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,16]}}", 16, "shape");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,16]}}", 16, "shape");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[-4],\"data_offsets\":[0,16]}}", 16, "dimension");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[\"4\"],\"data_offsets\":[0,16]}}", 16, "dimension");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,16]}}", 16, "dimension");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,4],\"data_offsets\":[0,16]}}", 16, "8 dimensions");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4]}}", 16, "data_offsets");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0]}}", 16, "data_offsets");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16,32]}}", 16, "data_offsets");
    refuse("{\"a\\u0000b\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16, "zero byte");
}

Test(safetensors, all_types) {
    static const struct {
        const char *name;
        wok_dtype dtype;
    } types[] = {{"F64", WOK_F64}, {"F32", WOK_F32}, {"F16", WOK_F16},  {"BF16", WOK_BF16}, {"I64", WOK_I64},
                 {"I32", WOK_I32}, {"I16", WOK_I16}, {"I8", WOK_I8},    {"U64", WOK_U64},   {"U32", WOK_U32},
                 {"U16", WOK_U16}, {"U8", WOK_U8},   {"BOOL", WOK_BOOL}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        size_t bytes = 4 * wok_dtype_size(types[i].dtype);
        char *header =
            path_of("{\"a\":{\"dtype\":\"%s\",\"shape\":[2,2],\"data_offsets\":[0,%zu]}}", types[i].name, bytes);
        accept(header, bytes, types[i].dtype, 2, bytes);
    }
    accept("{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,2],\"data_offsets\":[0,4]}}", 4, WOK_NONE, 2, 4);
}

/* ---- damaged files ----------------------------------------------------------------------------------------------- */

static bool try_bytes(const uint8_t *file, size_t bytes) {
    uint8_t *exact = malloc(bytes ? bytes : 1);
    memcpy(exact, file, bytes);
    wok_tensors tensors;
    wok_status status = read_bytes(exact, bytes, &tensors);
    volatile uint8_t sum = 0;
    (void)sum;
    for (size_t i = 0; i < tensors.count; i++) {
        const uint8_t *at = tensors.entries[i].data;
        for (size_t k = 0; k < tensors.entries[i].bytes; k++) sum = (uint8_t)(sum + at[k]);
    }
    wok_tensors_free(&tensors);
    free(exact);
    return status == WOK_OK;
}

static const char two[] =
    "{\"__metadata__\":{\"k\":\"v\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
    "\"b\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[16,22]}}";

Test(safetensors, truncated_at_every_byte) {
    size_t bytes;
    uint8_t *file = file_of(two, 22, &bytes);
    for (size_t cut = 0; cut < bytes; cut++) cr_assert_not(try_bytes(file, cut), "cut at %zu", cut);
    cr_assert(try_bytes(file, bytes));
    free(file);
}

Test(safetensors, random_bytes_never_crash) {
    size_t bytes;
    uint8_t *file = file_of(two, 22, &bytes), *copy = malloc(bytes);
    uint64_t state = 3;
    for (int i = 0; i < 20000; i++) {
        memcpy(copy, file, bytes);
        for (int n = 0; n <= i % 4; n++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            copy[state % bytes] = (uint8_t)(state >> 40);
        }
        try_bytes(copy, bytes);
    }
    free(copy);
    free(file);
}

Test(safetensors, failing_allocations_leak_nothing) {
    bool done = false;
    for (long n = 0; !done; n++) {
        failing f = {.fail_at = n};
        wok_ctx *weak = failing_ctx(&f);
        if (!weak) continue;
        wok_model *model = NULL;
        wok_load_options options = {.size = sizeof options, .arch = "resnet18"};
        wok_status status = wok_model_load(weak, MODELS "resnet18-w8/model.safetensors", &options, &model);
        done = f.calls <= n;
        cr_assert_eq(status, done ? WOK_OK : WOK_ERR_MEMORY, "allocation %ld: %s", n, wok_ctx_error(weak));
        wok_model_free(&model);
        wok_ctx_free(&weak);
        cr_assert_eq(f.live, 0, "allocation %ld", n);
    }
}

/* ---- whole models ------------------------------------------------------------------------------------------------ */

static wok_model *load(const char *path, const char *arch) {
    wok_model *model = NULL;
    wok_load_options options = {.size = sizeof options, .arch = arch};
    wok_status status = wok_model_load(ctx, path, &options, &model);
    cr_assert_eq(status == WOK_OK, model != NULL);
    if (status != WOK_OK) expect_sentence(ctx);
    return model;
}

Test(safetensors, convolutional_networks) {
    static const struct {
        const char *file, *arch;
        int nodes;
    } nets[] = {{"resnet18-w8", "resnet18", 69}, {"mobilenetv2-w025", "mobilenet_v2", 155}};
    for (int i = 0; i < 2; i++) {
        wok_model *model = load(path_of(MODELS "%s/model.safetensors", nets[i].file), nets[i].arch);
        cr_assert(model, "%s", wok_ctx_error(ctx));
        cr_assert_str_eq(wok_model_describe(model)->format, nets[i].arch);
        cr_assert_eq(wok_model_describe(model)->nodes, nets[i].nodes, "%d", wok_model_describe(model)->nodes);
        const wok_value_info *in = wok_model_input(model, 0), *out = wok_model_output(model, 0);
        cr_assert_str_eq(in->name, "input");
        cr_assert(in->rank == 4 && in->dims[0] == -1 && in->dims[1] == 3 && in->dims[2] == -1);
        cr_assert_str_eq(out->name, "logits");
        cr_assert(out->rank == 2 && out->dims[0] == -1 && out->dims[1] == 10);
        wok_model_free(&model);
    }
}

Test(safetensors, architecture_must_be_named_and_fit) {
    const char *path = MODELS "resnet18-w8/model.safetensors";
    cr_assert_null(load(path, NULL));
    cr_assert(strstr(wok_ctx_error(ctx), "name an architecture"), "%s", wok_ctx_error(ctx));
    cr_assert_null(load(path, "vgg16"));
    cr_assert(strstr(wok_ctx_error(ctx), "vgg16"), "%s", wok_ctx_error(ctx));
    cr_assert_null(load(path, "mobilenet_v2"));
    cr_assert(strstr(wok_ctx_error(ctx), "features.0.0.weight"), "%s", wok_ctx_error(ctx));
    cr_assert_null(load(MODELS "bert-h64/ts13.onnx", "resnet18"));
}

Test(safetensors, from_memory) {
    size_t bytes;
    uint8_t *file = read_file(MODELS "resnet18-w8/model.safetensors", &bytes);
    wok_model *model = NULL, *mapped = load(MODELS "resnet18-w8/model.safetensors", "resnet18");
    for (int copy = 0; copy < 2; copy++) {
        wok_load_options options = {.size = sizeof options, .arch = "resnet18", .copy = copy};
        cr_assert_eq(wok_model_load_memory(ctx, file, bytes, &options, &model), WOK_OK, "%s", wok_ctx_error(ctx));
        if (copy) memset(file, 0, bytes);
        same_model(mapped, model);
        wok_model_free(&model);
    }
    wok_model_free(&mapped);
    free(file);
}

Test(safetensors, written_files_hold_the_same_tensors) {
    char *folder = make_temp(), *path = path_of("%s/x.safetensors", folder);
    static const char *const nets[2][2] = {{"resnet18-w8", "resnet18"}, {"mobilenetv2-w025", "mobilenet_v2"}};
    for (int i = 0; i < 2; i++) {
        wok_model *model = load(path_of(MODELS "%s/model.safetensors", nets[i][0]), nets[i][1]);
        cr_assert_eq(wok_model_save(model, path), WOK_OK, "%s", wok_ctx_error(ctx));
        wok_model *again = load(path, nets[i][1]);
        same_model(model, again);
        wok_model_free(&again);
        wok_model_free(&model);
    }
    cr_assert_eq(count_files(folder), 1);
    remove_temp(folder);
}

Test(safetensors, names_are_escaped_when_written) {
    char *folder = make_temp(), *path = path_of("%s/x.safetensors", folder);
    wok_model *model = NULL;
    wok_tensors tensors;
    static const char name[] = "a\"b\\c\n\xc3\xa9";
    cr_assert_eq(wok_model_new(ctx, "test", &model), WOK_OK);
    wok_model_set_opset(model, "", 17);
    wok_value w = wok_graph_constant(model, name, WOK_I16, 1, (int64_t[]){3}, (int16_t[]){1, 2, 3}, 6, WOK_DATA_COPY);
    wok_graph_output(model, wok_graph_op(model, "Identity", "", "i", &w, 1, "y"));
    cr_assert_eq(wok_model_finish(model, NULL), WOK_OK, "%s", wok_ctx_error(ctx));
    cr_assert_eq(wok_model_save(model, path), WOK_OK, "%s", wok_ctx_error(ctx));
    size_t bytes;
    uint8_t *file = read_file(path, &bytes);
    cr_assert_eq(read_bytes(file, bytes, &tensors), WOK_OK, "%s", wok_ctx_error(ctx));
    const wok_tensor_entry *entry = wok_tensors_find(&tensors, name);
    cr_assert(entry && entry->dtype == WOK_I16 && entry->bytes == 6);
    wok_tensors_free(&tensors);
    free(file);
    wok_model_free(&model);
    remove_temp(folder);
}

/* ---- synthetic models -------------------------------------------------------------------------------------------- */

Test(safetensors, synthetic_models) {
    static const struct {
        const char *arch;
        int64_t parameters; /* of the published architectures; batch statistics counted */
    } all[] = {{"resnet18", 11699112}, {"mobilenet_v2", 3538984}};
    for (int i = 0; i < 2; i++) {
        wok_model *a = NULL, *b = NULL;
        cr_assert_eq(wok_model_synthetic(ctx, all[i].arch, 1, &a), WOK_OK, "%s", wok_ctx_error(ctx));
        cr_assert_eq(wok_model_synthetic(ctx, all[i].arch, 1, &b), WOK_OK);
        cr_assert_eq(wok_model_describe(a)->parameters, all[i].parameters, "%lld",
                     (long long)wok_model_describe(a)->parameters);
        same_model(a, b);
        wok_model_free(&b);
        cr_assert_eq(wok_model_synthetic(ctx, all[i].arch, 2, &b), WOK_OK);
        bool differs = false;
        for (int v = 0; v < wok_graph_value_count(a) && !differs; v++) {
            wok_value_view x = wok_graph_value_at(a, v), y = wok_graph_value_at(b, v);
            differs = x.data && memcmp(x.data, y.data, x.bytes);
        }
        cr_assert(differs, "the seed makes no difference");
        wok_model_free(&b);
        wok_model_free(&a);
    }
    wok_model *none = NULL;
    cr_assert_eq(wok_model_synthetic(ctx, "vgg16", 1, &none), WOK_ERR_ARGUMENT);
    expect_sentence(ctx);
}
