/* test_quantize.c - the quantiser: what it writes, how near that is to the float model, what leaves the float function as it
 * is. Small models of quantnets.h; trained ones are quantized_models.py's. */
#define _GNU_SOURCE
#include "quantnets.h"

/* ---- dynamic --------------------------------------------------------------------------------------------------------------- */

Test(dynamic, products_and_tables_become_integers) {
    bench b = start(17, build_encoder);
    wok_quant_options o = for_encoder(WOK_QUANT_DYNAMIC);
    quantise(&b, &o);
    cr_assert_eq(count_ops(b.small, "MatMulInteger"), 5, "four MatMul and one Gemm");
    cr_assert_eq(count_ops(b.small, "MatMul") + count_ops(b.small, "Gemm"), 0);
    cr_assert_eq(count_ops(b.small, "DynamicQuantizeLinear"), 4, "query and value read the same tensor");
    cr_assert_str_eq(wok_model_metadata(b.small, "wok.dynamic"), "per_row");
    wok_node_view product = named(b.small, "query.product/MatMulInteger");
    wok_value_view codes = wok_graph_value_at(b.small, product.inputs[1]);
    cr_assert(codes.dtype == WOK_I8 && codes.rank == 2 && codes.dims[0] == WIDTH && codes.dims[1] == WIDTH);
    double db = quality(b.ctx, b.small, b.model, sentence);
    cr_assert_gt(db, 30, "%f dB", db);
    const wok_quant_summary *all = wok_quant_report_summary(b.report);
    cr_assert(all->layers == 6 && all->quantised == 6, "%d of %d", all->quantised, all->layers);
    cr_assert_lt(fabs(all->snr_db - db), 0.01, "the report says %f dB, it is %f", all->snr_db, db);
    cr_assert_gt(layer(b.report, "inner.product")->snr_db, 30);
    cr_assert(layer(b.report, "rows")->bytes_before == ROWS * WIDTH * 4 &&
              layer(b.report, "rows")->bytes_after == ROWS * (WIDTH + 4));
    cr_assert_lt(all->bytes_after, all->bytes_before / 3);
    finish(&b);
}

Test(dynamic, needs_no_data) {
    bench b = start(17, build_encoder);
    quantise(&b, NULL);
    cr_assert_gt(quality(b.ctx, b.small, b.model, sentence), 30);
    cr_assert(isnan(wok_quant_report_summary(b.report)->snr_db));
    cr_assert(isnan(layer(b.report, "inner.product")->snr_db));
    finish(&b);
}

static void transposed_products(void) {
    wok_value x = wok_graph_input(m, "ids", WOK_I64, 2, (int64_t[]){BATCH, LENGTH}, NULL);
    x = OP("Cast", "cast", x);
    wok_node_set_int(m, wok_graph_last(m), "to", WOK_F32);
    wok_value w = random_values("w", DIMS(9, LENGTH), 50, 1, 0);
    wok_value y = wok_graph_op(m, "FusedMatMul", "com.microsoft", "fused", (wok_value[]){x, w}, 2, "fused");
    wok_node_set_int(m, wok_graph_last(m), "transB", 1);
    wok_value z = OP("Gemm", "gemm", x, w, random_values("b", DIMS(9), 51, 1, 0));
    wok_node_set_int(m, wok_graph_last(m), "transB", 1);
    wok_graph_output(m, OP("Add", "both", y, z));
}

Test(dynamic, transposed_weights_are_turned_and_shared) {
    bench b = start(17, transposed_products);
    quantise(&b, NULL);
    wok_node_view one = named(b.small, "fused/MatMulInteger"), two = named(b.small, "gemm/MatMulInteger");
    cr_assert_eq(one.inputs[1], two.inputs[1], "equal weights are written once");
    cr_assert_eq(wok_graph_value_at(b.small, one.inputs[1]).dims[0], LENGTH);
    cr_assert_gt(quality(b.ctx, b.small, b.model, sentence), 35);
    wok_quant_options o = for_encoder(WOK_QUANT_STATIC);
    quantise(&b, &o);
    cr_assert_gt(quality(b.ctx, b.small, b.model, sentence), 35);
    finish(&b);
}

static void table_only(void) {
    wok_value ids = wok_graph_input(m, "ids", WOK_I64, 2, (int64_t[]){-1, -1}, NULL);
    wok_graph_output(m, OP("Gather", "rows", random_values("table", DIMS(ROWS, WIDTH), 31, 1, 0), ids));
}

Test(dynamic, tables_in_8_and_4_bits) {
    bench b = start(11, table_only);
    static float want[MOST_ANSWERS], got[MOST_ANSWERS];
    size_t count = answers(b.ctx, b.model, sentence, want);
    quantise(&b, NULL);
    answers(b.ctx, b.small, sentence, got);
    for (size_t i = 0; i < count; i++)
        cr_assert_lt(fabsf(want[i] - got[i]), 0.501f / 127, "half a step of a row below 1");
    wok_quant_options o = {.size = sizeof o, .tables = WOK_QUANT_TABLE_INT4};
    quantise(&b, &o);
    answers(b.ctx, b.small, sentence, got);
    for (size_t i = 0; i < count; i++) cr_assert_lt(fabsf(want[i] - got[i]), 0.25f);
    cr_assert_gt(decibels(want, got, count), 19, "%f", decibels(want, got, count));
    cr_assert_eq(layer(b.report, "rows")->bytes_after, ROWS * (WIDTH / 2 + 4));
    o.tables = WOK_QUANT_TABLE_KEEP;
    wok_model *none = NULL;
    cr_assert_eq(wok_quantize(b.model, &o, &none, NULL), WOK_ERR_UNSUPPORTED);
    finish(&b);
}

/* ---- static ---------------------------------------------------------------------------------------------------------------- */

Test(form, pairs_stand_where_kernels_read) {
    bench b = start(17, build_cnn);
    wok_quant_options o = for_cnn();
    quantise(&b, &o);
    cr_assert_eq(count_ops(b.small, "BatchNormalization"), 0);
    cr_assert_eq(wok_quant_report_summary(b.report)->folded, 2);
    /* behind the activation only, and not between the convolution and the sum */
    cr_assert_str_eq(producer(b.small, named(b.small, "r1").inputs[0]).op_type, "Conv");
    cr_assert_str_eq(producer(b.small, named(b.small, "r2").inputs[0]).op_type, "Conv");
    cr_assert_str_eq(producer(b.small, named(b.small, "sum").inputs[0]).op_type, "Conv");
    cr_assert_eq(quantiser(b.small, "sum", 1).inputs[0], quantiser(b.small, "c2", 0).inputs[0]);
    cr_assert_str_eq(producer(b.small, named(b.small, "r3").inputs[0]).op_type, "Add");
    /* what moves codes keeps their scale */
    cr_assert_eq(quantiser(b.small, "pool", 0).inputs[1], quantiser(b.small, "c4", 0).inputs[1]);
    cr_assert_eq(quantiser(b.small, "flat", 0).inputs[1], quantiser(b.small, "fc", 0).inputs[1]);
    cr_assert_eq(zero_of(b.small, "c2", 0), 0, "Relu has no negative half");
    cr_assert_leq(scale_of(b.small, "c3", 0), 6.0f / 255 * 1.0001f, "Clip ends at 6");
    cr_assert_eq(count_ops(b.small, "QuantizeLinear"), 8);
    double db = quality(b.ctx, b.small, b.model, picture);
    cr_assert_gt(db, 30, "%f dB", db);
    cr_assert_lt(fabs(wok_quant_report_summary(b.report)->snr_db - db), 0.01);
    for (int i = 0; i < 5; i++) cr_assert_gt(wok_quant_report_layer(b.report, i)->snr_db, 30);
    cr_assert_null(wok_quant_report_layer(b.report, 5));
    cr_assert_null(wok_quant_report_layer(b.report, -1));
    finish(&b);
}

Test(form, weights_and_biases) {
    bench b = start(17, build_cnn);
    wok_quant_options o = for_cnn();
    quantise(&b, &o);
    wok_node_view c3 = named(b.small, "c3"), w = producer(b.small, c3.inputs[1]),
                  bias = producer(b.small, c3.inputs[2]);
    cr_assert_str_eq(w.op_type, "DequantizeLinear");
    cr_assert_eq(wok_graph_value_at(b.small, w.inputs[0]).dtype, WOK_I8);
    cr_assert_eq(wok_graph_value_at(b.small, bias.inputs[0]).dtype, WOK_I32);
    wok_value_view ws = wok_graph_value_at(b.small, w.inputs[1]), bs = wok_graph_value_at(b.small, bias.inputs[1]);
    cr_assert(ws.rank == 1 && ws.dims[0] == 8);
    for (int c = 0; c < 8; c++)
        cr_assert_eq(((const float *)bs.data)[c], scale_of(b.small, "c3", 0) * ((const float *)ws.data)[c]);
    finish(&b);
}

Test(form, options_change_what_they_say) {
    bench b = start(17, build_cnn);
    wok_quant_options o = for_cnn();
    quantise(&b, &o);
    float asymmetric = scale_of(b.small, "c1", 0);
    o.signed_activations = true;
    quantise(&b, &o);
    cr_assert_eq(zero_of(b.small, "c2", 0), -128);
    cr_assert_eq(wok_graph_value_at(b.small, quantiser(b.small, "c2", 0).inputs[2]).dtype, WOK_I8);
    o.symmetric_activations = true;
    quantise(&b, &o);
    cr_assert_eq(zero_of(b.small, "c1", 0), 0);
    cr_assert_geq(scale_of(b.small, "c1", 0), asymmetric);
    o.signed_activations = false;
    o.per_tensor = true;
    o.narrow_weights = true;
    quantise(&b, &o);
    cr_assert_eq(zero_of(b.small, "c1", 0), 128);
    wok_node_view w = producer(b.small, named(b.small, "c4").inputs[1]);
    cr_assert_eq(wok_graph_value_at(b.small, w.inputs[1]).rank, 0);
    wok_value_view codes = wok_graph_value_at(b.small, w.inputs[0]);
    int most = 0;
    for (size_t i = 0; i < codes.bytes; i++)
        most = abs(((const int8_t *)codes.data)[i]) > most ? abs(((const int8_t *)codes.data)[i]) : most;
    cr_assert_eq(most, 63);
    cr_assert_gt(quality(b.ctx, b.small, b.model, picture), 20);
    finish(&b);
}

Test(form, encoders_keep_their_residual_path) {
    bench b = start(17, build_encoder);
    wok_quant_options o = for_encoder(WOK_QUANT_STATIC);
    quantise(&b, &o);
    cr_assert_eq(count_ops(b.small, "QuantizeLinear"), 4, "the inputs of the linear layers");
    cr_assert_str_eq(producer(b.small, named(b.small, "residual").inputs[1]).op_type, "LayerNormalization");
    cr_assert_null(wok_model_metadata(b.small, "wok.dynamic"));
    double db = quality(b.ctx, b.small, b.model, sentence);
    cr_assert_gt(db, 30, "%f dB", db);
    finish(&b);
}

Test(form, kept_nodes_stay_float) {
    bench b = start(17, build_cnn);
    wok_quant_options o = for_cnn();
    o.keep = (const char *const[]){"c2", "fc"};
    o.keep_count = 2;
    quantise(&b, &o);
    cr_assert_str_eq(producer(b.small, named(b.small, "c2").inputs[0]).op_type, "Relu");
    cr_assert_str_eq(layer(b.report, "c2")->reason, "the caller keeps it");
    cr_assert(!layer(b.report, "fc")->quantised && layer(b.report, "c1")->quantised);
    cr_assert_eq(layer(b.report, "c2")->bytes_after, layer(b.report, "c2")->bytes_before);
    cr_assert_gt(quality(b.ctx, b.small, b.model, picture), 30);
    finish(&b);
}

/* A channel whose weights are nearly nothing: its bias does not fit 32 bits of its own scale. */
static void dead_channel(void) {
    wok_value x = wok_graph_input(m, "x", WOK_F32, 4, (int64_t[]){-1, 3, SIDE, SIDE}, NULL);
    float w[2 * 3] = {0.5f, -0.25f, 0.75f, 1e-12f, 0, -1e-12f}, b[2] = {0.5f, 3};
    wok_value y = conv("c", x, values("w", DIMS(2, 3, 1, 1), w), values("b", DIMS(2), b), 1, 1);
    wok_graph_output(m, y);
}

Test(form, a_bias_fits_its_32_bits) {
    bench b = start(17, dead_channel);
    static float got[1 << 13];
    wok_quant_options o = for_cnn();
    quantise(&b, &o);
    wok_session *session = NULL;
    cr_assert_eq(wok_session_create(b.small, NULL, &session), WOK_OK);
    cr_assert_eq(wok_session_set_input(session, 0, WOK_F32, (int64_t[]){1, 3, SIDE, SIDE}, 4, pictures[0], PIXELS * 4),
                 WOK_OK);
    cr_assert_eq(wok_session_run(session), WOK_OK);
    memcpy(got, wok_session_output(session, 0)->data, 2 * SIDE * SIDE * sizeof *got);
    for (int i = 0; i < SIDE * SIDE; i++) cr_assert_lt(fabsf(got[SIDE * SIDE + i] - 3), 1e-5f);
    wok_session_free(&session);
    finish(&b);
}

static void padded(void) {
    wok_value x = wok_graph_input(m, "x", WOK_F32, 4, (int64_t[]){-1, 3, SIDE, SIDE}, NULL);
    int64_t pads[8] = {0, 0, 0, 1, 0, 0, 2, 0};
    wok_value p = OP("Pad", "pad", x,
                     wok_graph_constant(m, "pads", WOK_I64, 1, (int64_t[]){8}, pads, sizeof pads, WOK_DATA_COPY));
    wok_value y = conv("c", p, random_values("w", DIMS(4, 3, 3, 3), 1, 1, 0), WOK_ABSENT, 3, 1);
    y = OP("Mul", "times", y, random_values("factor", DIMS(4, 1, 1), 2, 1, 0));
    wok_graph_output(m, OP("Add", "plus", y, random_values("term", DIMS(1, 4, 1, 1), 3, 1, 0)));
}

Test(form, pads_and_factors_go_into_the_convolution) {
    bench b = start(13, padded);
    wok_quant_options o = for_cnn();
    quantise(&b, &o);
    cr_assert_eq(count_ops(b.small, "Pad") + count_ops(b.small, "Mul") + count_ops(b.small, "Add"), 0);
    cr_assert_eq(wok_graph_node_count(b.small), 5, "QuantizeLinear, three DequantizeLinear, Conv");
    double db = quality(b.ctx, b.small, b.model, picture);
    cr_assert_gt(db, 35, "%f dB", db);
    finish(&b);
}

static int64_t softmax_axis;
static void old_set(void) {
    wok_value x = wok_graph_input(m, "x", WOK_F32, 4, (int64_t[]){BATCH, 3, SIDE, SIDE}, NULL);
    wok_value y = conv("c", x, random_values("w", DIMS(4, 3, 1, 1), 1, 1, 0), WOK_ABSENT, 1, 1);
    y = OP("Unsqueeze", "wide", y);
    wok_node_set_ints(m, wok_graph_last(m), "axes", (int64_t[]){1}, 1);
    y = OP("Squeeze", "narrow", y);
    wok_node_set_ints(m, wok_graph_last(m), "axes", (int64_t[]){1}, 1);
    y = OP("Softmax", "shares", y);
    wok_node_set_int(m, wok_graph_last(m), "axis", softmax_axis);
    wok_graph_output(m, y);
}

Test(form, old_operator_sets_are_brought_up) {
    softmax_axis = -1;
    bench b = start(11, old_set);
    wok_quant_options o = for_cnn();
    quantise(&b, &o);
    cr_assert_eq(wok_model_describe(b.small)->opset, 13);
    double db = quality(b.ctx, b.small, b.model, picture);
    cr_assert_gt(db, 30, "%f dB", db);
    finish(&b);
    softmax_axis = 3; /* the last one, which only a run can tell */
    b = start(11, old_set);
    quantise(&b, &o);
    cr_assert_gt(quality(b.ctx, b.small, b.model, picture), 30);
    finish(&b);
    softmax_axis = 1;
    b = start(11, old_set);
    wok_model *none = NULL;
    cr_assert_eq(wok_quantize(b.model, &o, &none, NULL), WOK_ERR_UNSUPPORTED);
    cr_assert(strstr(wok_ctx_error(b.ctx), "shares"), "%s", wok_ctx_error(b.ctx));
    finish(&b);
}

/* ---- ranges ---------------------------------------------------------------------------------------------------------------- */

Test(ranges, methods_cut_an_outlier) {
    bench b = start(17, build_cnn);
    pictures[2][17] = 40; /* all others are in [-1, 1) */
    wok_quant_options o = for_cnn();
    quantise(&b, &o);
    float all = scale_of(b.small, "c1", 0);
    cr_assert_gt(all, 40.0f / 255);
    o.percentile = 99.9;
    for (int method = WOK_QUANT_PERCENTILE; method <= WOK_QUANT_ENTROPY; method++) {
        o.method = (wok_quant_method)method;
        quantise(&b, &o);
        float cut = scale_of(b.small, "c1", 0);
        cr_assert(cut < all / 3 && cut > 0.5f / 255, "method %d: %g of %g", method, (double)cut, (double)all);
    }
    finish(&b);
}

Test(ranges, a_histogram_is_cut_where_its_method_says) {
    static double bins[WOK_QUANT_BINS];
    wok_quant_options o = {.method = WOK_QUANT_PERCENTILE, .percentile = 90};
    for (int i = 0; i < WOK_QUANT_BINS; i++) bins[i] = 1; /* even in [-1, 3] */
    double lo = -1, hi = 3;
    wok_quant_clip(&o, bins, &lo, &hi);
    cr_assert(fabs(lo + 0.6) < 0.01 && fabs(hi - 2.6) < 0.01, "%f %f", lo, hi);
    o.method = WOK_QUANT_MSE;
    lo = -1, hi = 3;
    wok_quant_clip(&o, bins, &lo, &hi);
    cr_assert(fabs(lo + 1) < 0.05 && fabs(hi - 3) < 0.05, "even distributions lose by clipping: %f %f", lo, hi);
    memset(bins, 0, sizeof bins);
    for (int i = 0; i < 200; i++) bins[i] = 1e6; /* a tenth of [0, 1], and one element at its end */
    bins[WOK_QUANT_BINS - 1] = 1;
    lo = 0, hi = 1;
    wok_quant_clip(&o, bins, &lo, &hi);
    cr_assert(lo == 0 && hi < 0.3 && hi > 0.09, "%f %f", lo, hi);
    for (int method = 0; method <= WOK_QUANT_MSE; method++) { /* nothing but zeros */
        memset(bins, 0, sizeof bins);
        o.method = (wok_quant_method)method;
        lo = hi = 0;
        wok_quant_clip(&o, bins, &lo, &hi);
        cr_assert(lo == 0 && hi == 0);
    }
}

Test(ranges, weights_with_the_least_square_error) {
    float w[64];
    support_random(w, 64, 5);
    w[7] = 9;
    double errors[2];
    for (int mse = 0; mse < 2; mse++) {
        float scale = wok_quant_weight_scale(w, 64, 7, mse);
        errors[mse] = 0;
        for (int i = 0; i < 64; i++) {
            double r = fmin(7, fmax(-7, nearbyint((double)(w[i] / scale)))) * (double)scale - (double)w[i];
            errors[mse] += r * r;
        }
    }
    cr_assert_lt(errors[1], errors[0]);
    cr_assert_eq(wok_quant_weight_scale((float[]){0, 0}, 2, 127, true), 1.0f);
    cr_assert_eq(wok_quant_weight_scale((float[]){-2.54f, 1}, 2, 127, false), 2.54f / 127);
}

/* ---- what must leave the function as it is ----------------------------------------------------------------------------------- */

/* The float model after `change`. */
static wok_model *changed(bench *b, wok_quant *q, const wok_quant_options *o, wok_status (*change)(wok_quant *)) {
    wok_model *after = NULL;
    *q = (wok_quant){.ctx = b->ctx, .model = b->model, .o = *o, .pool = {.ctx = b->ctx}};
    cr_assert_eq(wok_qgraph_read(&q->graph, b->model, &q->pool), WOK_OK);
    cr_assert_eq(wok_quant_fold_constants(&q->graph), WOK_OK);
    cr_assert_eq(wok_quant_fold_batchnorm(&q->graph, &q->summary.folded), WOK_OK);
    if (change) cr_assert_eq(change(q), WOK_OK, "%s", wok_ctx_error(b->ctx));
    cr_assert_eq(wok_quant_write_float(q, &after), WOK_OK, "%s", wok_ctx_error(b->ctx));
    return after;
}

Test(same_function, folding) {
    bench b = start(17, build_cnn);
    wok_quant q;
    wok_quant_options o = for_cnn();
    wok_model *after = changed(&b, &q, &o, NULL);
    cr_assert_gt(quality(b.ctx, after, b.model, picture), 110);
    wok_model_free(&after);
    wok_qpool_free(&q.pool);
    finish(&b);
}

Test(same_function, equalisation) {
    bench b = start(17, build_cnn);
    for (int per_tensor = 0; per_tensor < 2; per_tensor++) {
        wok_quant q;
        wok_quant_options o = for_cnn();
        o.per_tensor = per_tensor;
        wok_model *after = changed(&b, &q, &o, wok_quant_equalize);
        cr_assert_eq(q.summary.equalised, 1, "c2 and c3; c1's output is read twice");
        const float *w = wok_graph_value_at(after, named(after, "c3").inputs[1]).data;
        cr_assert_neq(w[0], ((const float *)wok_graph_value_at(b.model, named(b.model, "c3").inputs[1]).data)[0]);
        cr_assert_gt(quality(b.ctx, after, b.model, picture), 110);
        wok_model_free(&after);
        wok_qpool_free(&q.pool);
    }
    finish(&b);
}

static void long_normalisation(void) {
    wok_value ids = wok_graph_input(m, "ids", WOK_I64, 2, (int64_t[]){-1, -1}, (const char *[]){"n", "s"});
    wok_value x = OP("Gather", "rows", random_values("table", DIMS(ROWS, WIDTH), 31, 1, 0), ids);
    wok_value mean = OP("ReduceMean", "mean", x);
    wok_node_set_ints(m, wok_graph_last(m), "axes", (int64_t[]){-1}, 1);
    wok_value centred = OP("Sub", "centred", x, mean), square = OP("Mul", "square", centred, centred);
    wok_value variance = OP("ReduceMean", "variance", square);
    wok_node_set_ints(m, wok_graph_last(m), "axes", (int64_t[]){-1}, 1);
    wok_value normal = OP("Div", "normal", centred, OP("Sqrt", "deviation", variance));
    wok_value scaled = OP("Mul", "scaled", normal, random_values("gains", DIMS(WIDTH), 3, 1, 2));
    wok_value y = OP("Add", "shifted", scaled, random_values("shifts", DIMS(WIDTH), 4, 1, 0));
    wok_graph_output(m, linear("product", y, WIDTH, 8, 5));
}

Test(same_function, smoothing_of_the_long_form) {
    bench b = start(13, long_normalisation);
    wok_quant q;
    wok_quant_options o = for_encoder(WOK_QUANT_DYNAMIC);
    o.smooth = 0.5f;
    wok_model *after = changed(&b, &q, &o, wok_quant_smooth);
    cr_assert_eq(q.summary.smoothed, 1);
    cr_assert_gt(quality(b.ctx, after, b.model, sentence), 110);
    wok_model_free(&after);
    wok_qpool_free(&q.pool);
    finish(&b);
}

Test(same_function, smoothing) {
    bench b = start(17, build_encoder);
    wok_quant q;
    wok_quant_options o = for_encoder(WOK_QUANT_DYNAMIC);
    o.smooth = 0.5f;
    wok_model *after = changed(&b, &q, &o, wok_quant_smooth);
    cr_assert_eq(q.summary.smoothed, 2);
    cr_assert_eq(count_ops(after, "Mul"), 2, "norm1 has another reader and needs a Mul, norm2 takes the factors");
    cr_assert_gt(quality(b.ctx, after, b.model, sentence), 110);
    wok_model_free(&after);
    wok_qpool_free(&q.pool);
    finish(&b);
}

/* Channels of very different size: one scale for the activation between leaves most of them a few steps. */
static void uneven(void) {
    wok_value x = wok_graph_input(m, "x", WOK_F32, 4, (int64_t[]){-1, 3, SIDE, SIDE}, NULL);
    float w1[8 * 3], w2[8 * 9], w3[4 * 8];
    support_random(w1, 24, 61);
    support_random(w2, 72, 62);
    support_random(w3, 32, 63);
    for (int c = 0; c < 8; c++) {
        float factor = ldexpf(1, -c);
        for (int i = 0; i < 3; i++) w1[c * 3 + i] *= factor;
        for (int o = 0; o < 4; o++) w3[o * 8 + c] /= factor;
    }
    wok_value y = clip("a", conv("c1", x, values("w1", DIMS(8, 3, 1, 1), w1), WOK_ABSENT, 1, 1), 6);
    y = OP("Relu", "b", conv("c2", y, values("w2", DIMS(8, 1, 3, 3), w2), WOK_ABSENT, 3, 8));
    wok_graph_output(
        m, OP("GlobalAveragePool", "mean", conv("c3", y, values("w3", DIMS(4, 8, 1, 1), w3), WOK_ABSENT, 1, 1)));
}

Test(better, equalisation_helps_uneven_channels) {
    bench b = start(17, uneven);
    wok_quant_options o = for_cnn();
    quantise(&b, &o);
    double before = quality(b.ctx, b.small, b.model, picture);
    o.equalize = true;
    quantise(&b, &o);
    double after = quality(b.ctx, b.small, b.model, picture);
    cr_assert_eq(wok_quant_report_summary(b.report)->equalised, 2);
    cr_assert_gt(after, before + 6, "%f dB, with equalisation %f dB", before, after);
    finish(&b);
}

Test(better, bias_correction_takes_the_mean_error_out) {
    bench b = start(17, build_cnn);
    static float want[MOST_ANSWERS], got[MOST_ANSWERS];
    double means[2];
    wok_quant_options o = for_cnn();
    o.method = WOK_QUANT_PERCENTILE;
    o.percentile = 98; /* clips, which moves means */
    for (int corrected = 0; corrected < 2; corrected++) {
        o.bias_correction = corrected;
        quantise(&b, &o);
        size_t count = answers(b.ctx, b.model, picture, want);
        answers(b.ctx, b.small, picture, got);
        double sums[CLASSES] = {0};
        for (size_t i = 0; i < count; i++) sums[i % CLASSES] += (double)(got[i] - want[i]) / (double)count * CLASSES;
        means[corrected] = 0;
        for (int c = 0; c < CLASSES; c++) means[corrected] += fabs(sums[c]);
        cr_assert_eq(wok_quant_report_summary(b.report)->corrected, corrected ? 5 : 0);
    }
    cr_assert_lt(means[1], means[0] / 2, "%g, corrected %g", means[0], means[1]);
    finish(&b);
}

static void with_outliers(void) {
    wok_value ids = wok_graph_input(m, "ids", WOK_I64, 2, (int64_t[]){-1, -1}, NULL);
    float gains[WIDTH];
    for (int j = 0; j < WIDTH; j++) gains[j] = j == 5 ? 60 : 1;
    wok_value x = OP("Gather", "rows", random_values("table", DIMS(ROWS, WIDTH), 31, 1, 0), ids);
    x = OP("LayerNormalization", "norm", x, values("gains", DIMS(WIDTH), gains),
           random_values("shifts", DIMS(WIDTH), 3, 0.1f, 0));
    float w[WIDTH * 8];
    support_random(w, WIDTH * 8, 4);
    for (int i = 0; i < 8; i++) w[5 * 8 + i] /= 60;
    wok_graph_output(m, OP("MatMul", "product", x, values("w", DIMS(WIDTH, 8), w)));
}

Test(better, smoothing_helps_against_outliers) {
    bench b = start(17, with_outliers);
    for (int mode = 0; mode < 2; mode++) {
        wok_quant_options o = for_encoder((wok_quant_mode)mode);
        quantise(&b, &o);
        double before = quality(b.ctx, b.small, b.model, sentence);
        o.smooth = 0.5f;
        quantise(&b, &o);
        double after = quality(b.ctx, b.small, b.model, sentence);
        cr_assert_gt(after, before + 6, "%f dB, smoothed %f dB", before, after);
        cr_assert_eq(wok_quant_report_summary(b.report)->smoothed, 1);
    }
    finish(&b);
}
