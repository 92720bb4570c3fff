/* test_npy.c - .npy files: versions, byte orders, element orders, types, ranks, damage, the writer. */
#define _DEFAULT_SOURCE
#include "loading.h"
#include "wok_npy.h"

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
TestSuite(npy, .init = setup, .fini = teardown);

/* A file of a version with this header text and data; exactly as large. */
static uint8_t *file_of(int version, const char *header, const void *data, size_t size, size_t *bytes) {
    size_t length = strlen(header), start = version == 1 ? 10 : 12;
    *bytes = start + length + size;
    uint8_t *file = malloc(*bytes);
    memcpy(file, "\x93NUMPY", 6);
    file[6] = (uint8_t)version, file[7] = 0;
    file[8] = (uint8_t)length, file[9] = (uint8_t)(length >> 8);
    if (version > 1) file[10] = file[11] = 0;
    memcpy(file + start, header, length);
    if (size) memcpy(file + start + length, data, size);
    return file;
}

static wok_status parse(const uint8_t *file, size_t bytes, wok_tensor *tensor) {
    wok_status status = wok_npy_parse(ctx, file, bytes, "test.npy", tensor);
    if (status != WOK_OK) {
        expect_sentence(ctx);
        cr_assert_null(tensor->data);
    }
    return status;
}

static void accept(int version, const char *header, const void *data, size_t size, wok_dtype dtype, int rank,
                   const int64_t *dims, const void *want) {
    size_t bytes;
    wok_tensor t;
    uint8_t *file = file_of(version, header, data, size, &bytes);
    cr_assert_eq(parse(file, bytes, &t), WOK_OK, "%s: %s", header, wok_ctx_error(ctx));
    cr_assert(t.dtype == dtype && t.rank == rank && t.bytes == size && t.device == WOK_DEVICE_CPU, "%s", header);
    for (int i = 0; i < rank; i++) cr_assert_eq(t.dims[i], dims[i], "%s", header);
    cr_assert(size == 0 || !memcmp(t.data, want, size), "%s", header);
    cr_assert_eq((uintptr_t)t.data % 64, 0);
    wok_npy_free(ctx, &t);
    cr_assert_null(t.data);
    free(file);
}

static void refuse(const char *header, size_t size, wok_status status, const char *part) {
    size_t bytes;
    wok_tensor t;
    char zeros[64] = {0};
    uint8_t *file = file_of(1, header, zeros, size, &bytes);
    cr_expect_eq(parse(file, bytes, &t), status, "%s: %s", header, wok_ctx_error(ctx));
    cr_expect(strstr(wok_ctx_error(ctx), part), "'%s' is not in: %s", part, wok_ctx_error(ctx));
    free(file);
}

static const float six[6] = {0, 1, 2, 3, 4, 5};
#define HEAD(descr, order, shape) "{'descr': '" descr "', 'fortran_order': " order ", 'shape': " shape ", }   \n"

Test(npy, versions_one_to_three) {
    for (int version = 1; version <= 3; version++)
        accept(version, HEAD("<f4", "False", "(2, 3)"), six, sizeof six, WOK_F32, 2, (int64_t[]){2, 3}, six);
}

Test(npy, ranks_zero_to_eight) {
    accept(1, HEAD("<f4", "False", "()"), six + 1, 4, WOK_F32, 0, NULL, six + 1);
    accept(1, HEAD("<f4", "False", "(6,)"), six, sizeof six, WOK_F32, 1, (int64_t[]){6}, six);
    accept(1, HEAD("<f4", "False", "(1, 2, 1, 3, 1, 1, 1, 1)"), six, sizeof six, WOK_F32, 8,
           (int64_t[]){1, 2, 1, 3, 1, 1, 1, 1}, six);
    accept(1, HEAD("<f4", "False", "(3, 0, 2)"), NULL, 0, WOK_F32, 3, (int64_t[]){3, 0, 2}, NULL);
    accept(1, HEAD("<f4", "True", "(3, 0, 2)"), NULL, 0, WOK_F32, 3, (int64_t[]){3, 0, 2}, NULL);
    refuse(HEAD("<f4", "False", "(1, 1, 1, 1, 1, 1, 1, 1, 1)"), 4, WOK_ERR_UNSUPPORTED, "8 dimensions");
}

Test(npy, fortran_order) {
    /* element (i,j,k) of shape (2,3,4) is 100 i + 10 j + k */
    int32_t columns[24], rows[24];
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 4; k++) {
                rows[(i * 3 + j) * 4 + k] = 100 * i + 10 * j + k;
                columns[i + 2 * (j + 3 * k)] = 100 * i + 10 * j + k;
            }
    accept(1, HEAD("<i4", "True", "(2, 3, 4)"), columns, sizeof columns, WOK_I32, 3, (int64_t[]){2, 3, 4}, rows);
    accept(1, HEAD("<f4", "True", "(6,)"), six, sizeof six, WOK_F32, 1, (int64_t[]){6}, six);
}

Test(npy, both_byte_orders) {
    accept(1, HEAD(">u2", "False", "(2,)"), "\x01\x02\x03\x04", 4, WOK_U16, 1, (int64_t[]){2},
           (uint16_t[]){0x0102, 0x0304});
    accept(1, HEAD(">i4", "False", "()"), "\xff\xff\xff\xfe", 4, WOK_I32, 0, NULL, (int32_t[]){-2});
    accept(1, HEAD(">f8", "False", "()"), "\x3f\xf8\0\0\0\0\0\0", 8, WOK_F64, 0, NULL, (double[]){1.5});
    accept(1, HEAD(">i1", "False", "(2,)"), "\x01\x02", 2, WOK_I8, 1, (int64_t[]){2}, "\x01\x02");
    accept(1, HEAD(">i2", "True", "(2, 2)"), "\0\1\0\2\0\3\0\4", 8, WOK_I16, 2, (int64_t[]){2, 2},
           (int16_t[]){1, 3, 2, 4});
    accept(1, HEAD("=i2", "False", "(2,)"), "\1\0\2\0", 4, WOK_I16, 1, (int64_t[]){2}, (int16_t[]){1, 2});
}

Test(npy, all_types) {
    static const struct {
        const char *descr;
        wok_dtype dtype;
    } types[] = {{"|b1", WOK_BOOL}, {"?", WOK_BOOL},  {"|u1", WOK_U8},  {"|i1", WOK_I8},  {"<u2", WOK_U16},
                 {"<i2", WOK_I16},  {"<u4", WOK_U32}, {"<i4", WOK_I32}, {"<u8", WOK_U64}, {"<i8", WOK_I64},
                 {"<f2", WOK_F16},  {"<f4", WOK_F32}, {"<f8", WOK_F64}};
    uint8_t data[16] = {1, 0, 1, 0, 1, 1, 1, 0, 1, 0, 0, 0, 1, 1, 1, 1};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char *header = path_of("{'descr': '%s', 'fortran_order': False, 'shape': (2,), }\n", types[i].descr);
        accept(1, header, data, 2 * wok_dtype_size(types[i].dtype), types[i].dtype, 1, (int64_t[]){2}, data);
    }
    accept(1, HEAD("|b1", "False", "(3,)"), "\0\2\xff", 3, WOK_BOOL, 1, (int64_t[]){3}, "\0\1\1");
    static const char *const others[] = {"<c8", "|O", "<U5", "|S3", "<M8[ns]", "<f16", "|V2", "", "<i3"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char *header = path_of("{'descr': '%s', 'fortran_order': False, 'shape': (1,), }\n", others[i]);
        refuse(header, 8, WOK_ERR_UNSUPPORTED, path_of("'%s'", others[i]));
    }
}

Test(npy, headers_as_others_write_them) {
    accept(1, "{\"shape\": (2L, 3L), \"fortran_order\": False, \"descr\": \"<f4\"}", six, sizeof six, WOK_F32, 2,
           (int64_t[]){2, 3}, six);
    accept(1, "{'descr':'<f4','fortran_order':False,'shape':(2,3,)}", six, sizeof six, WOK_F32, 2, (int64_t[]){2, 3},
           six);
    static const char *const bad[] = {"",
                                      "{",
                                      "{}",
                                      "{'descr': '<f4'}",
                                      "{'descr': '<f4', 'fortran_order': False}",
                                      HEAD("<f4", "Maybe", "(6,)"),
                                      HEAD("<f4", "False", "(6"),
                                      HEAD("<f4", "False", "6"),
                                      HEAD("<f4", "False", "(-6,)"),
                                      HEAD("<f4", "False", "(a,)"),
                                      HEAD("<f4", "False", "(99999999999999999999,)"),
                                      HEAD("<f4", "False", "(1,,2)"),
                                      "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,), }",
                                      "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), 'more': 1, }",
                                      "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), } x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) refuse(bad[i], 24, WOK_ERR_FORMAT, "header");
}

Test(npy, sizes_must_fit) {
    refuse(HEAD("<f4", "False", "(6,)"), 20, WOK_ERR_FORMAT, "needs 24 bytes, 20 are there");
    refuse(HEAD("<f4", "False", "(6,)"), 28, WOK_ERR_FORMAT, "needs 24 bytes, 28 are there");
    refuse(HEAD("<f4", "False", "(4294967296, 4294967296)"), 0, WOK_ERR_FORMAT, "impossible");
    refuse(HEAD("<f4", "False", "(1099511627776,)"), 0, WOK_ERR_FORMAT, "needs 4398046511104 bytes");
}

Test(npy, damaged_files) {
    size_t bytes;
    wok_tensor t;
    uint8_t *file = file_of(2, HEAD("<f4", "False", "(2, 3)"), six, sizeof six, &bytes);
    for (size_t cut = 0; cut < bytes; cut++) {
        uint8_t *exact = malloc(cut ? cut : 1);
        memcpy(exact, file, cut);
        cr_assert_neq(parse(exact, cut, &t), WOK_OK, "cut at %zu", cut);
        free(exact);
    }
    uint64_t state = 5;
    for (int i = 0; i < 20000; i++) {
        uint8_t *exact = malloc(bytes);
        memcpy(exact, file, bytes);
        for (int n = 0; n <= i % 3; n++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            exact[state % (bytes - sizeof six)] = (uint8_t)(state >> 40);
        }
        parse(exact, bytes, &t);
        wok_npy_free(ctx, &t);
        free(exact);
    }
    free(file);
    cr_assert_eq(wok_npy_load(ctx, "/none.npy", &t), WOK_ERR_IO);
    cr_assert_eq(wok_npy_load(ctx, "/", &t), WOK_ERR_IO);
}

Test(npy, written_files_read_back) {
    char *folder = make_temp();
    static const wok_dtype types[] = {WOK_BOOL, WOK_U8,  WOK_I8,  WOK_U16, WOK_I16, WOK_U32,
                                      WOK_I32,  WOK_U64, WOK_I64, WOK_F16, WOK_F32, WOK_F64};
    static const int64_t shapes[][9] = {{0}, {1, 3}, {2, 2, 5}, {3, 0, 4, 4}, {8, 1, 2, 1, 2, 1, 1, 2, 1}};
    uint8_t data[128];
    for (size_t i = 0; i < sizeof data; i++) data[i] = i % 3 == 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            wok_tensor out = {.size = sizeof out, .dtype = types[i], .rank = (int)shapes[s][0], .data = data}, in;
            size_t count = 1;
            for (int d = 0; d < out.rank; d++) count *= (size_t)(out.dims[d] = shapes[s][d + 1]);
            out.bytes = count * wok_dtype_size(types[i]);
            char *path = path_of("%s/a.npy", folder);
            cr_assert_eq(wok_npy_save(ctx, path, &out), WOK_OK, "%s", wok_ctx_error(ctx));
            cr_assert_eq(wok_npy_load(ctx, path, &in), WOK_OK, "%s", wok_ctx_error(ctx));
            cr_assert(in.dtype == out.dtype && in.rank == out.rank && in.bytes == out.bytes);
            cr_assert_eq(memcmp(in.dims, out.dims, sizeof(int64_t) * (size_t)out.rank), 0);
            cr_assert_eq(memcmp(in.data, data, in.bytes), 0);
            wok_npy_free(ctx, &in);
            struct stat info;
            cr_assert_eq(stat(path, &info), 0);
            cr_assert_eq((size_t)(info.st_size - (off_t)out.bytes) % 64, 0, "elements start aligned");
        }
    cr_assert_eq(count_files(folder), 1);
    remove_temp(folder);
}

/* NumPy's own bytes, from the format's documentation. */
Test(npy, written_bytes_are_numpys) {
    char *folder = make_temp(), *path = path_of("%s/a.npy", folder);
    wok_tensor out = {
        .size = sizeof out, .dtype = WOK_F32, .rank = 2, .dims = {2, 3}, .data = (void *)six, .bytes = 24};
    cr_assert_eq(wok_npy_save(ctx, path, &out), WOK_OK);
    size_t bytes;
    uint8_t *file = read_file(path, &bytes);
    static const char head[] = "\x93NUMPY\1\0\x76\0{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
    cr_assert_eq(bytes, 128 + 24);
    cr_assert_eq(memcmp(file, head, sizeof head - 1), 0);
    cr_assert_eq(file[127], '\n');
    cr_assert_eq(memcmp(file + 128, six, 24), 0);
    free(file);
    remove_temp(folder);
}

Test(npy, failing_writes_leave_nothing) {
    char *folder = make_temp();
    wok_tensor out = {.size = sizeof out, .dtype = WOK_F32, .rank = 1, .dims = {6}, .data = (void *)six, .bytes = 24};
    cr_assert_eq(wok_npy_save(ctx, path_of("%s/none/a.npy", folder), &out), WOK_ERR_IO);
    expect_sentence(ctx);
    out.bytes = 20;
    cr_assert_eq(wok_npy_save(ctx, path_of("%s/a.npy", folder), &out), WOK_ERR_ARGUMENT);
    out.bytes = 24;
    cr_assert_eq(count_files(folder), 0);
    bool done = false;
    for (long n = 0; !done; n++) {
        failing f = {.fail_at = n};
        wok_ctx *weak = failing_ctx(&f);
        if (!weak) continue;
        wok_tensor in = {.size = 0};
        wok_status status = wok_npy_save(weak, path_of("%s/a.npy", folder), &out);
        if (status == WOK_OK) status = wok_npy_load(weak, path_of("%s/a.npy", folder), &in);
        done = f.calls <= n;
        cr_assert_eq(status, done ? WOK_OK : WOK_ERR_MEMORY, "allocation %ld: %s", n, wok_ctx_error(weak));
        wok_npy_free(weak, &in);
        wok_ctx_free(&weak);
        cr_assert_eq(f.live, 0);
        cr_assert_leq(count_files(folder), 1);
    }
    remove_temp(folder);
}

Test(npy, fixtures) {
    wok_tensor t;
    cr_assert_eq(wok_npy_load(ctx, MODELS "bert-h64/float.in.input_ids.npy", &t), WOK_OK, "%s", wok_ctx_error(ctx));
    cr_assert(t.dtype == WOK_I64 && t.rank == 2 && t.dims[0] == 2 && t.dims[1] == 24);
    wok_npy_free(ctx, &t);
    cr_assert_eq(wok_npy_load(ctx, MODELS "bert-h64/float.out.last_hidden_state.npy", &t), WOK_OK);
    cr_assert(t.dtype == WOK_F32 && t.rank == 3 && t.dims[2] == 64);
    wok_npy_free(ctx, &t);
}
