/* request.c - an encode call written in JSON. */
#include "json.h"
#include "tokenizer.h"

#include <string.h>

struct request {
    const char *text, *pair;
    size_t length, pair_length;
    wok_encode_options options;
    bool truncate; /* asked for without a length of its own */
};

static bool read_truncation(const wok_json *doc, wok_json_at at, struct request *r) {
    static const char *const names[] = {[WOK_LONGEST_FIRST] = "longest_first",
                                        [WOK_ONLY_FIRST] = "only_first",
                                        [WOK_ONLY_SECOND] = "only_second",
                                        [WOK_DO_NOT_TRUNCATE] = "do_not_truncate"};
    bool wanted;
    if (wok_json_kind_of(doc, at) == WOK_JSON_NULL) return true;
    if (wok_json_bool(doc, at, &wanted)) {
        r->options.truncation = wanted ? WOK_LONGEST_FIRST : WOK_DO_NOT_TRUNCATE;
        r->truncate = wanted;
        return true;
    }
    for (int i = WOK_LONGEST_FIRST; i <= WOK_DO_NOT_TRUNCATE; i++)
        if (wok_json_is(doc, at, names[i])) {
            r->options.truncation = (wok_truncation)i;
            r->truncate = i != WOK_DO_NOT_TRUNCATE;
            return true;
        }
    return false;
}

static bool read_member(const wok_json *doc, wok_json_at key, wok_json_at value, struct request *r) {
    bool null = wok_json_kind_of(doc, value) == WOK_JSON_NULL, flag = true;
    int64_t number = 0;
    if (wok_json_is(doc, key, "text")) return (r->text = wok_json_string(doc, value, &r->length)) != NULL;
    if (wok_json_is(doc, key, "pair")) return (r->pair = wok_json_string(doc, value, &r->pair_length)) != NULL || null;
    if (wok_json_is(doc, key, "truncation")) return read_truncation(doc, value, r);
    if (wok_json_is(doc, key, "max_length")) {
        if (!null && (!wok_json_int(doc, value, &number) || number < 1 || number > INT32_MAX)) return false;
        r->options.max_length = (int32_t)number;
        return true;
    }
    if (!wok_json_is(doc, key, "add_special_tokens") && !wok_json_is(doc, key, "offsets")) return false;
    if (!wok_json_bool(doc, value, &flag)) return false;
    if (wok_json_is(doc, key, "offsets"))
        r->options.offsets = flag;
    else
        r->options.no_special_tokens = !flag;
    return true;
}

static wok_status encode_request(const wok_tokenizer *t, const wok_json *doc, wok_encoding *e) {
    struct request r = {.options = {.size = sizeof r.options}};
    wok_json_each(doc, key, wok_json_root(doc)) {
        const char *name = wok_json_string(doc, key, NULL);
        if (!read_member(doc, key, wok_json_value(doc, key), &r))
            return wok_encoding_fail(e, WOK_ERR_FORMAT, "the request's member %.40s is unknown or of a wrong type",
                                     name ? name : "(none)");
    }
    if (!r.text) return wok_encoding_fail(e, WOK_ERR_FORMAT, "a request is an object with a member text");
    if (r.truncate && r.options.max_length == 0) r.options.max_length = t->max_length;
    return wok_tokenizer_encode(t, &r.options, r.text, r.length, r.pair, r.pair_length, e);
}

wok_status wok_tokenizer_encode_json(const wok_tokenizer *t, const char *json, size_t bytes, wok_encoding *e) {
    wok_json *doc = NULL;
    wok_status status = wok_json_parse(t->ctx, json, bytes, "request", &doc);
    if (status != WOK_OK) return wok_encoding_fail(e, status, "%s", wok_ctx_error(t->ctx));
    status = encode_request(t, doc, e);
    wok_json_free(&doc);
    return status;
}
