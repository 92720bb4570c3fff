/* test_onnx.c - the ONNX reader: every form of tensor and attribute, external data, files that must be refused
 * (damage, failing memory and writing: test_onnx_robust.c). Cases called Bnn are faults that users of other libraries
 * reported; the numbers are those of the public list. */
#define _DEFAULT_SOURCE
#include "loading.h"

static wok_ctx *ctx;
static size_t held;
static char logged[512];

static void keep_log(void *user, wok_log_level level, const char *text) {
    (void)user;
    if (level == WOK_LOG_WARNING) snprintf(logged, sizeof logged, "%s", text);
}

static void setup(void) {
    ctx = wok_ctx_create(&(wok_ctx_options){.size = sizeof(wok_ctx_options), .threads = 1, .log = keep_log});
    held = wok_ctx_memory(ctx, NULL);
    logged[0] = 0;
}

static void teardown(void) {
    size_t now = wok_ctx_memory(ctx, NULL);
    wok_ctx_free(&ctx);
    if (now != held) fprintf(stderr, "Assertion Failed: %zu bytes were not given back\n", now - held);
}
TestSuite(onnx, .init = setup, .fini = teardown);

static wok_model *load_bytes(uint8_t *file, size_t bytes, const wok_load_options *options) {
    wok_model *model = NULL;
    wok_load_options o = options ? *options : (wok_load_options){.size = sizeof o};
    o.copy = true;
    wok_status status = wok_model_load_memory(ctx, file, bytes, &o, &model);
    free(file);
    if (status != WOK_OK) expect_sentence(ctx);
    cr_assert_eq(status == WOK_OK, model != NULL);
    return model;
}

static wok_model *load_make(make *m) {
    size_t bytes;
    uint8_t *file = make_end(m, &bytes);
    return load_bytes(file, bytes, NULL);
}

/* The file must be refused with a sentence that holds `part`. */
static void refuse(make *m, wok_status status, const char *part) {
    size_t bytes;
    uint8_t *file = make_end(m, &bytes);
    wok_model *model = NULL;
    cr_expect_eq(wok_model_load_memory(ctx, file, bytes, NULL, &model), status, "%s: %s", part, wok_ctx_error(ctx));
    cr_expect_null(model);
    expect_sentence(ctx);
    cr_expect(strstr(wok_ctx_error(ctx), part), "'%s' is not in: %s", part, wok_ctx_error(ctx));
    wok_model_free(&model);
    free(file);
}

static void expect_data(const wok_model *model, const char *name, wok_dtype dtype, const void *data, size_t bytes) {
    cr_assert(model, "%s: %s", name, wok_ctx_error(ctx));
    wok_value_view v = wok_graph_value_at(model, value_called(model, name));
    cr_assert_eq(v.dtype, dtype, "%s", name);
    cr_assert_eq(v.bytes, bytes, "%s: %zu", name, v.bytes);
    cr_assert_eq(memcmp(v.data, data, bytes), 0, "%s", name);
}

static const float ramp[4] = {0, 1, 2, 3};
static const int64_t four[1] = {4};

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

Test(onnx, raw_data) {
    make m = make_add(ctx, 8, 17);
    make_raw(&m, "W", WOK_F32, 1, four, ramp, sizeof ramp);
    wok_model *model = load_make(&m);
    expect_data(model, "W", WOK_F32, ramp, sizeof ramp);
    wok_model_free(&model);
}

/* W as a graph of its own type, with the numbers in a typed field, packed or one by one. */
static void typed(wok_dtype dtype, uint32_t field, bool packed, const int64_t *numbers, const void *want) {
    make m = make_start(ctx, 8, 17);
    make_node(&m, "Identity", "W", NULL, "Y");
    make_value(&m, GRAPH_OUTPUT, "Y", dtype, 1, four);
    wok_wire_mark mark = make_tensor(&m, GRAPH_INITIALIZER, "W", dtype, 1, four);
    if (packed)
        wok_wire_put_packed_ints(&m.wire, field, numbers, 4);
    else
        for (int i = 0; i < 4; i++) wok_wire_put_int(&m.wire, field, numbers[i]);
    wok_wire_end(&m.wire, mark);
    wok_model *model = load_make(&m);
    expect_data(model, "W", dtype, want, 4 * wok_dtype_size(dtype));
    wok_model_free(&model);
}

Test(onnx, numbers_in_varint_fields) {
    for (int packed = 0; packed < 2; packed++) {
        typed(WOK_I64, TENSOR_INT64_DATA, packed, (int64_t[]){0, -1, INT64_MAX, INT64_MIN},
              (int64_t[]){0, -1, INT64_MAX, INT64_MIN});
        typed(WOK_I32, TENSOR_INT32_DATA, packed, (int64_t[]){0, -1, INT32_MAX, INT32_MIN},
              (int32_t[]){0, -1, INT32_MAX, INT32_MIN});
        typed(WOK_I16, TENSOR_INT32_DATA, packed, (int64_t[]){0, -1, 32767, -32768}, (int16_t[]){0, -1, 32767, -32768});
        typed(WOK_I8, TENSOR_INT32_DATA, packed, (int64_t[]){0, -1, 127, -128}, (int8_t[]){0, -1, 127, -128});
        typed(WOK_U8, TENSOR_INT32_DATA, packed, (int64_t[]){0, 1, 200, 255}, (uint8_t[]){0, 1, 200, 255});
        typed(WOK_U16, TENSOR_INT32_DATA, packed, (int64_t[]){0, 1, 200, 65535}, (uint16_t[]){0, 1, 200, 65535});
        typed(WOK_U32, TENSOR_UINT64_DATA, packed, (int64_t[]){0, 1, 200, UINT32_MAX},
              (uint32_t[]){0, 1, 200, UINT32_MAX});
        typed(WOK_U64, TENSOR_UINT64_DATA, packed, (int64_t[]){0, 1, 200, -1}, (uint64_t[]){0, 1, 200, UINT64_MAX});
        typed(WOK_BOOL, TENSOR_INT32_DATA, packed, (int64_t[]){0, 1, 2, 0}, (uint8_t[]){0, 1, 1, 0});
        typed(WOK_F16, TENSOR_INT32_DATA, packed, (int64_t[]){0, 0x3c00, 0x7c00, 0xfbff},
              (uint16_t[]){0, 0x3c00, 0x7c00, 0xfbff});
        typed(WOK_BF16, TENSOR_INT32_DATA, packed, (int64_t[]){0, 0x3f80, 0x7f80, 0xff7f},
              (uint16_t[]){0, 0x3f80, 0x7f80, 0xff7f});
    }
}

Test(onnx, floats_in_typed_fields) {
    const double wide[4] = {0, -1.5, 1e300, 3};
    for (int form = 0; form < 4; form++) {
        bool packed = form & 1, doubles = form & 2;
        wok_dtype dtype = doubles ? WOK_F64 : WOK_F32;
        make m = make_start(ctx, 8, 17);
        make_node(&m, "Identity", "W", NULL, "Y");
        make_value(&m, GRAPH_OUTPUT, "Y", dtype, 1, four);
        wok_wire_mark mark = make_tensor(&m, GRAPH_INITIALIZER, "W", dtype, 1, four);
        uint32_t field = doubles ? TENSOR_DOUBLE_DATA : TENSOR_FLOAT_DATA;
        if (packed) wok_wire_put_bytes(&m.wire, field, doubles ? (const void *)wide : ramp, doubles ? 32 : 16);
        for (int i = 0; i < 4 && !packed && !doubles; i++) wok_wire_put_float(&m.wire, field, ramp[i]);
        for (int i = 0; i < 4 && !packed && doubles; i++) wok_wire_put_bytes(&m.wire, field, &wide[i], 8);
        wok_wire_end(&m.wire, mark);
        wok_model *model = load_make(&m);
        expect_data(model, "W", dtype, doubles ? (const void *)wide : ramp, doubles ? 32 : 16);
        wok_model_free(&model);
    }
}

Test(onnx, raw_booleans_become_zero_or_one) {
    make m = make_start(ctx, 8, 17);
    make_node(&m, "Identity", "W", NULL, "Y");
    make_value(&m, GRAPH_OUTPUT, "Y", WOK_BOOL, 1, four);
    make_raw(&m, "W", WOK_BOOL, 1, four, (uint8_t[]){0, 1, 2, 255}, 4);
    wok_model *model = load_make(&m);
    expect_data(model, "W", WOK_BOOL, (uint8_t[]){0, 1, 1, 1}, 4);
    wok_model_free(&model);
}

Test(onnx, scalars_and_empty_tensors) {
    make m = make_start(ctx, 8, 17);
    make_node(&m, "Identity", "W", NULL, "Y");
    make_node(&m, "Identity", "E", NULL, "Z");
    make_value(&m, GRAPH_OUTPUT, "Y", WOK_F32, 0, NULL);
    make_value(&m, GRAPH_OUTPUT, "Z", WOK_F32, 2, (int64_t[]){0, 3});
    make_raw(&m, "W", WOK_F32, 0, NULL, ramp + 1, 4);
    wok_wire_end(&m.wire, make_tensor(&m, GRAPH_INITIALIZER, "E", WOK_F32, 2, (int64_t[]){0, 3}));
    wok_model *model = load_make(&m);
    expect_data(model, "W", WOK_F32, ramp + 1, 4);
    expect_data(model, "E", WOK_F32, "", 0);
    wok_model_free(&model);
}

Test(onnx, types_that_are_not_supported_are_named) {
    static const struct {
        int64_t type;
        const char *name;
    } types[] = {{8, "string"}, {14, "complex64"}, {17, "float8e4m3fn"}, {21, "uint4"}, {0, "none"}, {99, "unknown"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        make m = make_add(ctx, 8, 17);
        make_raw(&m, "W", types[i].type, 1, four, ramp, sizeof ramp);
        refuse(&m, WOK_ERR_UNSUPPORTED, types[i].name);
    }
}

Test(onnx, sparse_initializers_are_refused_by_name) {
    make m = make_add(ctx, 8, 17);
    wok_wire_mark sparse = wok_wire_begin(&m.wire, GRAPH_SPARSE_INITIALIZER);
    wok_wire_mark values = make_tensor(&m, SPARSE_VALUES, "W", WOK_F32, 1, four);
    wok_wire_end(&m.wire, values);
    wok_wire_end(&m.wire, sparse);
    refuse(&m, WOK_ERR_UNSUPPORTED, "sparse initializer 'W'");
}

/* ---- nodes, attributes, values ----------------------------------------------------------------------------------- */

/* A node with one attribute of every kind survives load, write and load. */
Test(onnx, attributes_of_all_kinds) {
    char *folder = make_temp();
    for (int typed_too = 0; typed_too < 2; typed_too++) {
        make m = make_start(ctx, 8, 17);
        wok_wire_mark node = make_node_start(&m, "Relu", "X", "", "Y");
        for (int kind = TYPE_FLOAT; kind <= TYPE_STRINGS; kind++) {
            if (kind == TYPE_GRAPH) continue;
            wok_wire_mark a = wok_wire_begin(&m.wire, NODE_ATTRIBUTE);
            wok_wire_put_text(&m.wire, ATTRIBUTE_NAME, path_of("a%d", kind));
            if (kind == TYPE_FLOAT) wok_wire_put_float(&m.wire, ATTRIBUTE_F, -0.0f);
            if (kind == TYPE_INT) wok_wire_put_int(&m.wire, ATTRIBUTE_I, INT64_MIN);
            if (kind == TYPE_STRING) wok_wire_put_bytes(&m.wire, ATTRIBUTE_S, "a\0b", 3);
            if (kind == TYPE_TENSOR) {
                wok_wire_mark t = make_tensor(&m, ATTRIBUTE_T, "W", WOK_F32, 1, four);
                wok_wire_put_bytes(&m.wire, TENSOR_RAW_DATA, ramp, sizeof ramp);
                wok_wire_end(&m.wire, t);
            }
            if (kind == TYPE_FLOATS) wok_wire_put_packed_floats(&m.wire, ATTRIBUTE_FLOATS, ramp, 4);
            if (kind == TYPE_INTS) wok_wire_put_packed_ints(&m.wire, ATTRIBUTE_INTS, (int64_t[]){-1, 2, 300}, 3);
            if (kind == TYPE_STRINGS) {
                wok_wire_put_text(&m.wire, ATTRIBUTE_STRINGS, "one");
                wok_wire_put_text(&m.wire, ATTRIBUTE_STRINGS, "");
            }
            if (typed_too) wok_wire_put_int(&m.wire, ATTRIBUTE_TYPE, kind);
            wok_wire_end(&m.wire, a);
        }
        wok_wire_end(&m.wire, node);
        make_value(&m, GRAPH_INPUT, "X", WOK_F32, 1, four);
        make_value(&m, GRAPH_OUTPUT, "Y", WOK_F32, 1, four);
        wok_model *model = load_make(&m), *again = NULL;
        cr_assert(model, "%s", wok_ctx_error(ctx));
        wok_node_view view = wok_graph_node_at(model, 0);
        cr_assert_eq(view.attr_count, 7);
        cr_assert_eq(view.attrs[1].u.i, INT64_MIN);
        cr_assert_eq(view.attrs[2].count, 3);
        cr_assert_eq(view.attrs[5].u.ints[2], 300);
        cr_assert_str_eq(view.attrs[6].u.strings[0], "one");
        char *path = path_of("%s/a.onnx", folder);
        cr_assert_eq(wok_model_save(model, path), WOK_OK, "%s", wok_ctx_error(ctx));
        cr_assert_eq(wok_model_load(ctx, path, NULL, &again), WOK_OK, "%s", wok_ctx_error(ctx));
        same_model(model, again);
        wok_model_free(&again);
        wok_model_free(&model);
    }
    remove_temp(folder);
}

/* A zero that a proto3 writer left out: the type says what it is. */
Test(onnx, attribute_whose_value_is_left_out_is_zero) {
    make m = make_start(ctx, 8, 17);
    wok_wire_mark node = make_node_start(&m, "Softmax", "X", NULL, "Y");
    wok_wire_mark a = wok_wire_begin(&m.wire, NODE_ATTRIBUTE);
    wok_wire_put_text(&m.wire, ATTRIBUTE_NAME, "axis");
    wok_wire_put_int(&m.wire, ATTRIBUTE_TYPE, TYPE_INT);
    wok_wire_end(&m.wire, a);
    wok_wire_end(&m.wire, node);
    make_value(&m, GRAPH_INPUT, "X", WOK_F32, 1, four);
    make_value(&m, GRAPH_OUTPUT, "Y", WOK_F32, 1, four);
    wok_model *model = load_make(&m);
    cr_assert(model, "%s", wok_ctx_error(ctx));
    cr_assert_eq(wok_graph_node_at(model, 0).attrs[0].kind, WOK_ATTR_INT);
    cr_assert_eq(wok_graph_node_at(model, 0).attrs[0].u.i, 0);
    wok_model_free(&model);
}

static make with_subgraph(const char *op) {
    make m = make_start(ctx, 8, 17);
    wok_wire_mark node = make_node_start(&m, op, "X", NULL, "Y");
    wok_wire_mark a = wok_wire_begin(&m.wire, NODE_ATTRIBUTE);
    wok_wire_put_text(&m.wire, ATTRIBUTE_NAME, "body");
    wok_wire_end(&m.wire, wok_wire_begin(&m.wire, ATTRIBUTE_G));
    wok_wire_put_int(&m.wire, ATTRIBUTE_TYPE, TYPE_GRAPH);
    wok_wire_end(&m.wire, a);
    wok_wire_end(&m.wire, node);
    make_value(&m, GRAPH_INPUT, "X", WOK_F32, 1, four);
    make_value(&m, GRAPH_OUTPUT, "Y", WOK_F32, 1, four);
    return m;
}

Test(onnx, subgraphs_are_refused_by_name_and_never_written_back) {
    make m = with_subgraph("Loop");
    refuse(&m, WOK_ERR_UNSUPPORTED, "Loop");
    m = with_subgraph("Relu");
    refuse(&m, WOK_ERR_UNSUPPORTED, "body");
    m = with_subgraph("Loop");
    size_t bytes;
    uint8_t *file = make_end(&m, &bytes);
    wok_model *model =
        load_bytes(file, bytes, &(wok_load_options){.size = sizeof(wok_load_options), .allow_unsupported = true});
    cr_assert(model, "%s", wok_ctx_error(ctx));
    char *folder = make_temp();
    cr_assert_eq(wok_model_save(model, path_of("%s/x.onnx", folder)), WOK_ERR_UNSUPPORTED);
    cr_assert_eq(count_files(folder), 0);
    remove_temp(folder);
    wok_model_free(&model);
}

/* A function of the file that has the name of a known operator is not taken for it. */
Test(onnx, functions_of_the_file_are_refused) {
    make m = make_start(ctx, 8, 17);
    make_node(&m, "Relu", "X", NULL, "Y");
    make_value(&m, GRAPH_INPUT, "X", WOK_F32, 1, four);
    make_value(&m, GRAPH_OUTPUT, "Y", WOK_F32, 1, four);
    wok_wire_end(&m.wire, m.graph);
    wok_wire_mark function = wok_wire_begin(&m.wire, MODEL_FUNCTION);
    wok_wire_put_text(&m.wire, FUNCTION_NAME, "Relu");
    wok_wire_end(&m.wire, function);
    size_t bytes;
    uint8_t *file = make_bytes(&m.wire, &bytes);
    cr_assert_null(load_bytes(file, bytes, NULL));
    cr_assert(strstr(wok_ctx_error(ctx), "Relu"), "%s", wok_ctx_error(ctx));
}

Test(onnx, all_unsupported_operators_are_listed) {
    make m = make_start(ctx, 8, 17);
    make_node(&m, "NoSuchThing", "X", NULL, "A");
    make_node(&m, "NorThis", "A", NULL, "B");
    make_node(&m, "Relu", "B", NULL, "Y");
    make_value(&m, GRAPH_INPUT, "X", WOK_F32, 1, four);
    make_value(&m, GRAPH_OUTPUT, "Y", WOK_F32, 1, four);
    refuse(&m, WOK_ERR_UNSUPPORTED, "NoSuchThing");
    cr_assert(strstr(wok_ctx_error(ctx), "NorThis"), "%s", wok_ctx_error(ctx));
}

Test(onnx, domains_that_no_node_uses_are_ignored) {
    make m = make_add(ctx, 8, 17);
    make_raw(&m, "W", WOK_F32, 1, four, ramp, sizeof ramp);
    wok_wire_end(&m.wire, m.graph);
    wok_wire_mark opset = wok_wire_begin(&m.wire, MODEL_OPSET_IMPORT);
    wok_wire_put_text(&m.wire, OPSET_DOMAIN, "ai.onnx.ml");
    wok_wire_put_int(&m.wire, OPSET_VERSION, 77);
    wok_wire_end(&m.wire, opset);
    size_t bytes;
    uint8_t *file = make_bytes(&m.wire, &bytes);
    wok_model *model = load_bytes(file, bytes, NULL);
    cr_assert(model, "%s", wok_ctx_error(ctx));
    wok_model_free(&model);
}

Test(onnx, names_with_zero_bytes_are_refused) {
    make m = make_add(ctx, 8, 17);
    make_raw(&m, "W", WOK_F32, 1, four, ramp, sizeof ramp);
    wok_wire_mark node = wok_wire_begin(&m.wire, GRAPH_NODE);
    wok_wire_put_bytes(&m.wire, NODE_INPUT, "X\0X", 3);
    wok_wire_put_text(&m.wire, NODE_OUTPUT, "Q");
    wok_wire_put_text(&m.wire, NODE_OP_TYPE, "Relu");
    wok_wire_end(&m.wire, node);
    refuse(&m, WOK_ERR_FORMAT, "zero byte");
}

Test(onnx, free_and_named_dimensions) {
    make m = make_start(ctx, 8, 17);
    make_node(&m, "Relu", "X", NULL, "Y");
    wok_wire_mark info = wok_wire_begin(&m.wire, GRAPH_INPUT);
    wok_wire_put_text(&m.wire, VALUE_NAME, "X");
    wok_wire_mark type = wok_wire_begin(&m.wire, VALUE_TYPE), tensor = wok_wire_begin(&m.wire, TYPE_TENSOR_TYPE);
    wok_wire_put_int(&m.wire, TENSOR_TYPE_ELEM, WOK_F32);
    wok_wire_mark shape = wok_wire_begin(&m.wire, TENSOR_TYPE_SHAPE), dim = wok_wire_begin(&m.wire, SHAPE_DIM);
    wok_wire_put_text(&m.wire, DIM_PARAM, "batch");
    wok_wire_end(&m.wire, dim);
    dim = wok_wire_begin(&m.wire, SHAPE_DIM);
    wok_wire_put_int(&m.wire, DIM_VALUE, 3);
    wok_wire_end(&m.wire, dim);
    dim = wok_wire_begin(&m.wire, SHAPE_DIM);
    wok_wire_put_int(&m.wire, DIM_VALUE, -1);
    wok_wire_end(&m.wire, dim);
    wok_wire_end(&m.wire, wok_wire_begin(&m.wire, SHAPE_DIM));
    wok_wire_end(&m.wire, shape);
    wok_wire_end(&m.wire, tensor);
    wok_wire_end(&m.wire, type);
    wok_wire_end(&m.wire, info);
    make_value(&m, GRAPH_OUTPUT, "Y", WOK_F32, 4, (int64_t[]){-1, 3, -1, -1});
    wok_model *model = load_make(&m);
    cr_assert(model, "%s", wok_ctx_error(ctx));
    const wok_value_info *x = wok_model_input(model, 0);
    cr_assert_eq(x->rank, 4);
    cr_assert_eq(x->dims[0], -1);
    cr_assert_eq(x->dims[1], 3);
    cr_assert_eq(x->dims[2], -1);
    cr_assert_eq(x->dims[3], -1);
    cr_assert_str_eq(x->dim_names[0], "batch");
    cr_assert_null(x->dim_names[1]);
    cr_assert_null(x->dim_names[2]);
    wok_model_free(&model);
}

/* ---- external data ----------------------------------------------------------------------------------------------- */

/* Puts the model of the external cases into FOLDER/m/model.onnx; w.bin is 16 zero bytes, then the ramp. */
typedef struct outside {
    char *folder;
    const char *location, *offset, *length;
} outside;

static void put_pair(make *m, const char *key, const char *value) {
    if (!value) return;
    wok_wire_mark mark = wok_wire_begin(&m->wire, TENSOR_EXTERNAL_DATA);
    wok_wire_put_text(&m->wire, ENTRY_KEY, key);
    wok_wire_put_text(&m->wire, ENTRY_VALUE, value);
    wok_wire_end(&m->wire, mark);
}

static uint8_t *external_file(const outside *o, size_t *bytes) {
    make m = make_add(ctx, 8, 17);
    wok_wire_mark mark = make_tensor(&m, GRAPH_INITIALIZER, "W", WOK_F32, 1, four);
    put_pair(&m, "location", o->location);
    put_pair(&m, "offset", o->offset);
    put_pair(&m, "length", o->length);
    wok_wire_put_int(&m.wire, TENSOR_DATA_LOCATION, 1);
    wok_wire_end(&m.wire, mark);
    return make_end(&m, bytes);
}

static char *external_folder(void) {
    char *folder = make_temp();
    float data[8] = {0, 0, 0, 0, 0, 1, 2, 3};
    cr_assert_eq(mkdir(path_of("%s/m", folder), 0777), 0);
    write_file(path_of("%s/m/w.bin", folder), data, sizeof data);
    write_file(path_of("%s/secret.bin", folder), data, sizeof data);
    cr_assert_eq(symlink("../secret.bin", path_of("%s/m/l.bin", folder)), 0);
    cr_assert_eq(symlink("w.bin", path_of("%s/m/inside.bin", folder)), 0);
    return folder;
}

static wok_status load_external(const outside *o, wok_model **model) {
    size_t bytes;
    uint8_t *file = external_file(o, &bytes);
    char *path = path_of("%s/m/model.onnx", o->folder);
    write_file(path, file, bytes);
    free(file);
    wok_status status = wok_model_load(ctx, path, NULL, model);
    if (status != WOK_OK) {
        cr_expect_null(*model);
        expect_sentence(ctx);
        cr_expect(strstr(wok_ctx_error(ctx), "'W'"), "does not name the tensor: %s", wok_ctx_error(ctx));
    }
    return status;
}

static void external_loads(const outside *o) {
    wok_model *model = NULL;
    cr_assert_eq(load_external(o, &model), WOK_OK, "%s: %s", o->location, wok_ctx_error(ctx));
    expect_data(model, "W", WOK_F32, ramp, sizeof ramp);
    wok_model_free(&model);
}

Test(onnx, B01_external_data_stays_in_the_models_folder) {
    char *folder = external_folder();
    const char *leaving[] = {"../secret.bin",
                             "sub/../../secret.bin",
                             path_of("%s/secret.bin", folder),
                             "l.bin",
                             "/etc/passwd",
                             "./../m/../secret.bin",
                             "..",
                             "",
                             "."};
    for (size_t i = 0; i < sizeof leaving / sizeof *leaving; i++) {
        wok_model *model = NULL;
        cr_expect_eq(load_external(&(outside){folder, leaving[i], "16", "16"}, &model), WOK_ERR_FORMAT, "'%s': %s",
                     leaving[i], wok_ctx_error(ctx));
        cr_expect(strstr(wok_ctx_error(ctx), "leads out"), "%s", wok_ctx_error(ctx));
    }
    const char *staying[] = {"w.bin", "sub/../w.bin", "./w.bin", ".//w.bin", "inside.bin"};
    for (size_t i = 0; i < sizeof staying / sizeof *staying; i++)
        external_loads(&(outside){folder, staying[i], "16", "16"});
    remove_temp(folder);
}

/* Download caches hold a model and its data under other names, linked into a folder: the data lies where the model
 * does. */
Test(onnx, B01_model_that_is_itself_a_link) {
    char *folder = external_folder();
    size_t bytes;
    uint8_t *file = external_file(&(outside){folder, "data.bin", "16", "16"}, &bytes);
    cr_assert_eq(mkdir(path_of("%s/snapshot", folder), 0777), 0);
    write_file(path_of("%s/m/1234", folder), file, bytes);
    free(file);
    cr_assert_eq(symlink("../m/1234", path_of("%s/snapshot/model.onnx", folder)), 0);
    cr_assert_eq(symlink("../m/w.bin", path_of("%s/snapshot/data.bin", folder)), 0);
    wok_model *model = NULL;
    cr_assert_eq(wok_model_load(ctx, path_of("%s/snapshot/model.onnx", folder), NULL, &model), WOK_OK, "%s",
                 wok_ctx_error(ctx));
    expect_data(model, "W", WOK_F32, ramp, sizeof ramp);
    wok_model_free(&model);
    remove_temp(folder);
}

Test(onnx, B02_external_data_of_a_model_in_memory) {
    char *folder = external_folder();
    size_t bytes;
    uint8_t *file = external_file(&(outside){folder, "w.bin", "16", "16"}, &bytes);
    wok_model *model = NULL;
    cr_assert_eq(chdir(path_of("%s/m", folder)), 0); /* never the current folder */
    cr_assert_eq(wok_model_load_memory(ctx, file, bytes, NULL, &model), WOK_ERR_IO);
    cr_assert(strstr(wok_ctx_error(ctx), "no base folder"), "%s", wok_ctx_error(ctx));
    cr_assert_eq(chdir("/"), 0);
    wok_load_options options = {.size = sizeof options, .base_dir = path_of("%s/m", folder)};
    cr_assert_eq(wok_model_load_memory(ctx, file, bytes, &options, &model), WOK_OK, "%s", wok_ctx_error(ctx));
    expect_data(model, "W", WOK_F32, ramp, sizeof ramp);
    wok_model_free(&model);
    free(file);
    file = external_file(&(outside){folder, "../secret.bin", "16", "16"}, &bytes);
    cr_assert_eq(wok_model_load_memory(ctx, file, bytes, &options, &model), WOK_ERR_FORMAT);
    free(file);
    remove_temp(folder);
}

Test(onnx, B03_offset_and_length_of_external_data) {
    char *folder = external_folder();
    const outside wrong[] = {{folder, "w.bin", "24", "16"},
                             {folder, "w.bin", "18446744073709551608", "16"},
                             {folder, "w.bin", "0", "8"},
                             {folder, "w.bin", "abc", "16"},
                             {folder, "w.bin", "-16", "16"},
                             {folder, "w.bin", "16", "-16"},
                             {folder, "w.bin", " 16", "16"},
                             {folder, "w.bin", "", "16"},
                             {folder, "w.bin", "20", NULL},
                             {folder, "w.bin", "99999999999999999999", "16"},
                             {folder, "missing.bin", "0", "16"},
                             {folder, NULL, "0", "16"},
                             {folder, "w.bin", "16", "18446744073709551615"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        wok_model *model = NULL;
        cr_expect_neq(load_external(&wrong[i], &model), WOK_OK, "case %zu", i);
    }
    external_loads(&(outside){folder, "w.bin", "16", NULL}); /* the length may be left out */
    external_loads(&(outside){folder, "w.bin", "16", "16"});
    remove_temp(folder);
}

/* Offsets beyond 2 and 4 GiB: a file with holes costs nothing. */
Test(onnx, external_data_beyond_four_gibibytes) {
    char *folder = external_folder();
    char *path = path_of("%s/m/large.bin", folder);
    FILE *file = fopen(path, "wb");
    cr_assert_eq(fseeko(file, (off_t)5 << 30, SEEK_SET), 0);
    cr_assert_eq(fwrite(ramp, 1, sizeof ramp, file), sizeof ramp);
    cr_assert_eq(fclose(file), 0);
    external_loads(&(outside){folder, "large.bin", "5368709120", "16"});
    remove_temp(folder);
}

/* ---- inputs, versions -------------------------------------------------------------------------------------------- */

Test(onnx, B08_initializer_that_is_also_an_input) {
    for (int64_t ir = 3; ir <= 8; ir += 5) {
        make m = make_add(ctx, ir, 7);
        make_value(&m, GRAPH_INPUT, "W", WOK_F32, 1, four);
        make_raw(&m, "W", WOK_F32, 1, four, ramp, sizeof ramp);
        wok_model *model = load_make(&m);
        cr_assert(model, "%s", wok_ctx_error(ctx));
        int index = wok_model_input_index(model, "W");
        if (ir == 3) {
            cr_assert_eq(index, -1, "before IR 4 it is a constant");
            cr_assert_eq(wok_model_input_count(model), 1);
        } else {
            cr_assert_eq(index, 1, "from IR 4 on it is a default");
            cr_assert(wok_model_input(model, index)->optional);
            cr_assert_not(wok_model_input(model, 0)->optional);
        }
        wok_model_free(&model);
    }
}

Test(onnx, B11_newer_ir_versions_load_with_a_warning) {
    const int64_t versions[] = {3, 9, 10, 11, 12, 13, 14, 15, 99};
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        make m = make_add(ctx, versions[i], 17);
        make_raw(&m, "W", WOK_F32, 1, four, ramp, sizeof ramp);
        logged[0] = 0;
        wok_model *model = load_make(&m);
        cr_assert(model, "IR %d: %s", (int)versions[i], wok_ctx_error(ctx));
        cr_assert_eq(logged[0] != 0, versions[i] > 14, "IR %d: '%s'", (int)versions[i], logged);
        if (versions[i] == 99) cr_assert(strstr(logged, "99") && strstr(logged, "14"), "%s", logged);
        wok_model_free(&model);
    }
    make m = make_add(ctx, 2, 17);
    make_raw(&m, "W", WOK_F32, 1, four, ramp, sizeof ramp);
    refuse(&m, WOK_ERR_UNSUPPORTED, "IR 2 / oldest known 3");
}

Test(onnx, B11_newer_operator_sets_load_where_the_operators_did_not_change) {
    const int64_t versions[] = {7, 13, 22, 23, 24, 25, 28};
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        make m = make_add(ctx, 10, versions[i]);
        make_raw(&m, "W", WOK_F32, 1, four, ramp, sizeof ramp);
        wok_model *model = load_make(&m);
        cr_assert(model, "opset %d: %s", (int)versions[i], wok_ctx_error(ctx));
        wok_model_free(&model);
    }
    make m = make_start(ctx, 10, 99);
    make_node(&m, "NotYetInvented", "X", NULL, "Y");
    make_value(&m, GRAPH_INPUT, "X", WOK_F32, 1, four);
    make_value(&m, GRAPH_OUTPUT, "Y", WOK_F32, 1, four);
    refuse(&m, WOK_ERR_UNSUPPORTED, "NotYetInvented");
}

/* ---- damaged files ----------------------------------------------------------------------------------------------- */

static void refuse_shape(int rank, const int64_t *dims, size_t bytes, const char *part) {
    char zeros[64] = {0};
    make m = make_start(ctx, 8, 17);
    make_node(&m, "Identity", "W", NULL, "Y");
    make_value(&m, GRAPH_OUTPUT, "Y", WOK_F32, 1, (int64_t[]){-1});
    make_raw(&m, "W", WOK_F32, rank, dims, zeros, bytes);
    refuse(&m, WOK_ERR_FORMAT, part);
}

Test(onnx, B14_impossible_shapes) {
    refuse_shape(1, (int64_t[]){-4}, 16, "[-4] is impossible");
    refuse_shape(2, (int64_t[]){(int64_t)1 << 32, (int64_t)1 << 32}, 16, "impossible");
    refuse_shape(3, (int64_t[]){INT64_MAX, INT64_MAX, INT64_MAX}, 16, "impossible");
    refuse_shape(2, (int64_t[]){(int64_t)1 << 40, 1}, 16, "needs 4398046511104 bytes, it holds 16");
    refuse_shape(1, (int64_t[]){5}, 16, "needs 20 bytes, it holds 16");
    refuse_shape(1, (int64_t[]){3}, 16, "needs 12 bytes, it holds 16");
    make m = make_add(ctx, 8, 17);
    wok_wire_mark mark = make_tensor(&m, GRAPH_INITIALIZER, "W", WOK_F32, 1, (int64_t[]){5});
    wok_wire_put_packed_floats(&m.wire, TENSOR_FLOAT_DATA, ramp, 4);
    wok_wire_end(&m.wire, mark);
    refuse(&m, WOK_ERR_FORMAT, "needs 5 elements, it holds 4");
}

/* Many numbers for dims in few bytes each: nothing of that size is allocated. */
Test(onnx, B14_a_million_dimensions) {
    int64_t *ones = malloc(1000000 * sizeof *ones);
    for (int i = 0; i < 1000000; i++) ones[i] = 1;
    make m = make_add(ctx, 8, 17);
    wok_wire_mark mark = wok_wire_begin(&m.wire, GRAPH_INITIALIZER);
    wok_wire_put_packed_ints(&m.wire, TENSOR_DIMS, ones, 1000000);
    wok_wire_put_int(&m.wire, TENSOR_DATA_TYPE, WOK_F32);
    wok_wire_put_text(&m.wire, TENSOR_NAME, "W");
    wok_wire_end(&m.wire, mark);
    refuse(&m, WOK_ERR_UNSUPPORTED, "more than 8 dimensions");
    free(ones);
}

Test(onnx, B14_graphs_that_cannot_run) {
    make m = make_start(ctx, 8, 17);
    make_node(&m, "Add", "X", "Z", "Y");
    make_node(&m, "Relu", "Y", NULL, "Z");
    make_value(&m, GRAPH_INPUT, "X", WOK_F32, 1, four);
    make_value(&m, GRAPH_OUTPUT, "Z", WOK_F32, 1, four);
    refuse(&m, WOK_ERR_FORMAT, "Y");
    m = make_add(ctx, 8, 17); /* W comes from nowhere */
    refuse(&m, WOK_ERR_FORMAT, "W");
    m = make_start(ctx, 8, 17); /* no outputs */
    make_node(&m, "Relu", "X", NULL, "Y");
    make_value(&m, GRAPH_INPUT, "X", WOK_F32, 1, four);
    refuse(&m, WOK_ERR_FORMAT, "output");
    m = make_add(ctx, 8, 17); /* two constants of one name */
    make_raw(&m, "W", WOK_F32, 1, four, ramp, sizeof ramp);
    make_raw(&m, "W", WOK_F32, 1, four, ramp, sizeof ramp);
    refuse(&m, WOK_ERR_FORMAT, "'W'");
    m = make_add(ctx, 8, 17); /* two producers of one value */
    make_raw(&m, "W", WOK_F32, 1, four, ramp, sizeof ramp);
    make_node(&m, "Relu", "X", NULL, "Y");
    refuse(&m, WOK_ERR_FORMAT, "Y");
}

Test(onnx, B14_inputs_without_a_type) {
    make m = make_start(ctx, 8, 17);
    make_node(&m, "Relu", "X", NULL, "Y");
    wok_wire_mark info = wok_wire_begin(&m.wire, GRAPH_INPUT);
    wok_wire_put_text(&m.wire, VALUE_NAME, "X");
    wok_wire_end(&m.wire, info);
    make_value(&m, GRAPH_OUTPUT, "Y", WOK_F32, 1, four);
    refuse(&m, WOK_ERR_UNSUPPORTED, "'X'");
}

static void refuse_bytes(const char *bytes, size_t count, const char *part) {
    wok_model *model = NULL;
    cr_expect_neq(wok_model_load_memory(ctx, bytes, count, NULL, &model), WOK_OK, "%s", part);
    cr_expect_null(model);
    expect_sentence(ctx);
    cr_expect(strstr(wok_ctx_error(ctx), part), "'%s' is not in: %s", part, wok_ctx_error(ctx));
}

Test(onnx, B14_files_that_are_no_models) {
    refuse_bytes("", 0, "empty");
    refuse_bytes("\x08", 1, "cut off");
    refuse_bytes("hello, this is no model", 23, "not an ONNX file");
    refuse_bytes("version https://git-lfs.github.com/spec/v1\n", 43, "Git LFS");
    refuse_bytes("PK\003\004............", 16, "zip archive");
    refuse_bytes("\x08\x08", 2, "no graph");
    refuse_bytes("\x3a\x00", 2, "no IR version");
    refuse_bytes("\x0b\x0c", 2, "wire type"); /* a group */
    refuse_bytes("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12, "cut off");
    refuse_bytes("\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, "longer than what is left");
}

/* Messages in messages in messages: the reader never descends further than its format has levels. */
Test(onnx, B14_deep_nesting) {
    make m = make_add(ctx, 8, 17);
    make_raw(&m, "W", WOK_F32, 1, four, ramp, sizeof ramp);
    wok_wire_mark marks[2000];
    wok_wire_mark node = make_node_start(&m, "If", "X", NULL, "Q");
    for (int i = 0; i < 2000; i += 2) {
        marks[i] = wok_wire_begin(&m.wire, i ? GRAPH_NODE : NODE_ATTRIBUTE);
        marks[i + 1] = wok_wire_begin(&m.wire, i ? NODE_ATTRIBUTE : ATTRIBUTE_G);
    }
    for (int i = 2000; i-- > 0;) wok_wire_end(&m.wire, marks[i]);
    wok_wire_end(&m.wire, node);
    refuse(&m, WOK_ERR_UNSUPPORTED, "If");
}

Test(onnx, missing_files_and_folders_are_told_apart) {
    wok_model *model = NULL;
    char *folder = make_temp();
    cr_assert_eq(wok_model_load(ctx, path_of("%s/none.onnx", folder), NULL, &model), WOK_ERR_IO);
    cr_assert(strstr(wok_ctx_error(ctx), "No such file"), "%s", wok_ctx_error(ctx));
    cr_assert_eq(wok_model_load(ctx, folder, NULL, &model), WOK_ERR_IO);
    cr_assert(strstr(wok_ctx_error(ctx), "config.json"), "%s", wok_ctx_error(ctx));
    write_file(path_of("%s/empty.onnx", folder), "", 0);
    cr_assert_eq(wok_model_load(ctx, path_of("%s/empty.onnx", folder), NULL, &model), WOK_ERR_FORMAT);
    cr_assert(strstr(wok_ctx_error(ctx), "empty"), "%s", wok_ctx_error(ctx));
    cr_assert_eq(wok_model_load(ctx, "", NULL, &model), WOK_ERR_ARGUMENT);
    cr_assert_eq(mkfifo(path_of("%s/pipe.onnx", folder), 0600), 0);
    cr_assert_eq(wok_model_load(ctx, path_of("%s/pipe.onnx", folder), NULL, &model), WOK_ERR_IO);
    cr_assert(strstr(wok_ctx_error(ctx), "not a regular file"), "%s", wok_ctx_error(ctx));
    remove_temp(folder);
}
