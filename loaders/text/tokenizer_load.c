/* tokenizer_load.c - tokenizer.json, vocab.txt and the configuration beside them. */
#include "json.h"
#include "tokenizer.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_FILE ((size_t)128 << 20)
#define MAX_IDS (1 << 22)
#define MAX_PATH_BYTES 4096

/* One load: what is read, until finish() has packed it. Texts point into the documents or the file. */
struct load {
    wok_ctx *ctx;
    wok_tokenizer *t;
    const char *what; /* for error sentences */
    struct wok_trie_key *keys;
    size_t keys_bytes, count;
    struct wok_added *added;
    size_t added_bytes, added_count;
    const char *unk, *prefix;
    size_t unk_length, prefix_length;
    wok_json *config, *map; /* tokenizer_config.json, special_tokens_map.json; NULL if absent */
    wok_switch strip;       /* AS_FILE: null, as lowercase */
};

static wok_status refuse(struct load *l, const char *what) {
    return wok_ctx_fail(l->ctx, WOK_ERR_UNSUPPORTED, "%s: %s", l->what, what);
}

static wok_status damaged(struct load *l, const char *what) {
    return wok_ctx_fail(l->ctx, WOK_ERR_FORMAT, "%s: %s", l->what, what);
}

static wok_status add_key(struct load *l, const char *text, size_t length, int64_t id) {
    if (id < 0 || id >= MAX_IDS)
        return wok_ctx_fail(l->ctx, WOK_ERR_FORMAT, "%s: token id %lld is not in 0..%d", l->what, (long long)id,
                            MAX_IDS - 1);
    wok_status status = wok_ctx_grow(l->ctx, (void **)&l->keys, &l->keys_bytes, (l->count + 1) * sizeof *l->keys);
    if (status != WOK_OK) return status;
    l->keys[l->count++] = (struct wok_trie_key){text, (uint32_t)length, (int32_t)id};
    return WOK_OK;
}

static wok_status add_added(struct load *l, struct wok_added added) {
    if (added.length == 0) return WOK_OK;
    wok_status status =
        wok_ctx_grow(l->ctx, (void **)&l->added, &l->added_bytes, (l->added_count + 1) * sizeof *l->added);
    if (status != WOK_OK) return status;
    l->added[l->added_count++] = added;
    return WOK_OK;
}

/* ---- frames ------------------------------------------------------------------------------------------------------------ */

static wok_status frame_put(struct load *l, struct wok_frame *frame, int64_t id, int64_t type) {
    if (frame->count == WOK_FRAME_MAX) return refuse(l, "post_processor is longer than 64 items");
    if (type < 0 || type > INT32_MAX || id < WOK_FRAME_B || id >= MAX_IDS)
        return damaged(l, "post_processor: an id is out of range");
    frame->items[frame->count].id = (int32_t)id;
    frame->items[frame->count++].type = (int32_t)type;
    frame->specials += id >= 0;
    return WOK_OK;
}

static void frame_plain(wok_tokenizer *t) {
    t->single = (struct wok_frame){.items = {{WOK_FRAME_A, 0}}, .count = 1};
    t->pair = (struct wok_frame){.items = {{WOK_FRAME_A, 0}, {WOK_FRAME_B, 1}}, .count = 2};
}

static void frame_bert(wok_tokenizer *t, int32_t cls, int32_t sep) {
    t->single = (struct wok_frame){.items = {{cls, 0}, {WOK_FRAME_A, 0}, {sep, 0}}, .count = 3, .specials = 2};
    t->pair = (struct wok_frame){
        .items = {{cls, 0}, {WOK_FRAME_A, 0}, {sep, 0}, {WOK_FRAME_B, 1}, {sep, 1}}, .count = 5, .specials = 3};
}

/* One item of a TemplateProcessing list: {"SpecialToken":{"id","type_id"}} or {"Sequence":{"id":"A"|"B","type_id"}}. */
static wok_status frame_item(struct load *l, const wok_json *doc, wok_json_at item, wok_json_at specials,
                             struct wok_frame *frame) {
    wok_json_at sequence = wok_json_get(doc, item, "Sequence"), special = wok_json_get(doc, item, "SpecialToken");
    wok_json_at body = sequence >= 0 ? sequence : special, id = wok_json_get(doc, body, "id");
    int64_t type = 0, token = 0;
    if (!wok_json_string(doc, id, NULL) || !wok_json_int(doc, wok_json_get(doc, body, "type_id"), &type))
        return damaged(l, "post_processor: an item without id and type_id");
    if (sequence >= 0) {
        bool a = wok_json_is(doc, id, "A");
        if (!a && !wok_json_is(doc, id, "B")) return damaged(l, "post_processor: a sequence that is neither A nor B");
        return frame_put(l, frame, a ? WOK_FRAME_A : WOK_FRAME_B, type);
    }
    wok_json_at entry = wok_json_get(doc, specials, wok_json_string(doc, id, NULL));
    wok_json_at ids = wok_json_get(doc, entry, "ids");
    if (wok_json_kind_of(doc, ids) != WOK_JSON_ARRAY) return damaged(l, "post_processor: a special token without ids");
    wok_json_each(doc, each, ids) {
        if (!wok_json_int(doc, each, &token) || token < 0) return damaged(l, "post_processor: a special id is no id");
        wok_status status = frame_put(l, frame, token, type);
        if (status != WOK_OK) return status;
    }
    return WOK_OK;
}

static wok_status frame_template(struct load *l, const wok_json *doc, wok_json_at post, const char *name,
                                 struct wok_frame *frame) {
    wok_json_at list = wok_json_get(doc, post, name), specials = wok_json_get(doc, post, "special_tokens");
    if (wok_json_kind_of(doc, list) != WOK_JSON_ARRAY) return damaged(l, "post_processor: single or pair is no list");
    *frame = (struct wok_frame){0};
    wok_json_each(doc, item, list) {
        wok_status status = frame_item(l, doc, item, specials, frame);
        if (status != WOK_OK) return status;
    }
    bool has[2] = {false, false}, pair = !strcmp(name, "pair");
    for (int i = 0; i < frame->count; i++)
        if (frame->items[i].id < 0) has[frame->items[i].id == WOK_FRAME_B] = true;
    return has[0] && has[1] == pair ? WOK_OK
                                    : damaged(l, "post_processor: the template lacks a text or names one too many");
}

/* "cls": ["[CLS]", 101] */
static bool read_named_id(const wok_json *doc, wok_json_at pair, int64_t *id) {
    return wok_json_count(doc, pair) == 2 && wok_json_int(doc, wok_json_next(doc, wok_json_first(doc, pair)), id) &&
           *id >= 0 && *id < MAX_IDS;
}

static wok_status read_post_processor(struct load *l, const wok_json *doc, wok_json_at post) {
    wok_json_kind kind = wok_json_kind_of(doc, post);
    frame_plain(l->t);
    if (kind == WOK_JSON_ABSENT || kind == WOK_JSON_NULL) return WOK_OK;
    wok_json_at type = wok_json_get(doc, post, "type");
    if (wok_json_is(doc, type, "BertProcessing")) {
        int64_t cls, sep;
        if (!read_named_id(doc, wok_json_get(doc, post, "cls"), &cls) ||
            !read_named_id(doc, wok_json_get(doc, post, "sep"), &sep))
            return damaged(l, "post_processor: BertProcessing without cls and sep");
        frame_bert(l->t, (int32_t)cls, (int32_t)sep);
        return WOK_OK;
    }
    if (!wok_json_is(doc, type, "TemplateProcessing"))
        return wok_ctx_fail(l->ctx, WOK_ERR_UNSUPPORTED, "%s: post_processor %.60s is not one of BERT's", l->what,
                            wok_json_string(doc, type, NULL) ? wok_json_string(doc, type, NULL) : "without a type");
    wok_status status = frame_template(l, doc, post, "single", &l->t->single);
    return status == WOK_OK ? frame_template(l, doc, post, "pair", &l->t->pair) : status;
}

/* ---- tokenizer.json ------------------------------------------------------------------------------------------------------ */

/* The named part must have this type; other types are named in the error. */
static wok_status want_type(struct load *l, const wok_json *doc, wok_json_at part, const char *name, const char *want) {
    wok_json_at type = wok_json_get(doc, part, "type");
    if (wok_json_is(doc, type, want)) return WOK_OK;
    const char *got = wok_json_string(doc, type, NULL);
    return wok_ctx_fail(l->ctx, WOK_ERR_UNSUPPORTED, "%s: %s is %.60s; only %s is supported", l->what, name,
                        got                                              ? got
                        : wok_json_kind_of(doc, part) == WOK_JSON_OBJECT ? "of no type"
                                                                         : "absent",
                        want);
}

static wok_status read_normalizer(struct load *l, const wok_json *doc, wok_json_at part) {
    wok_json_kind kind = wok_json_kind_of(doc, part);
    struct wok_rules *rules = &l->t->rules;
    *rules = (struct wok_rules){0};
    l->strip = WOK_OFF;
    if (kind == WOK_JSON_NULL || kind == WOK_JSON_ABSENT) return WOK_OK;
    wok_status status = want_type(l, doc, part, "normalizer", "BertNormalizer");
    if (status != WOK_OK) return status;
    bool strip = false;
    wok_json_at accents = wok_json_get(doc, part, "strip_accents");
    kind = wok_json_kind_of(doc, accents);
    if (!wok_json_bool(doc, wok_json_get(doc, part, "clean_text"), &rules->clean_text) ||
        !wok_json_bool(doc, wok_json_get(doc, part, "handle_chinese_chars"), &rules->handle_chinese_chars) ||
        !wok_json_bool(doc, wok_json_get(doc, part, "lowercase"), &rules->lowercase) ||
        (kind != WOK_JSON_ABSENT && kind != WOK_JSON_NULL && kind != WOK_JSON_BOOL))
        return damaged(l, "normalizer: clean_text, handle_chinese_chars, strip_accents and lowercase must be booleans");
    l->strip = !wok_json_bool(doc, accents, &strip) ? WOK_AS_FILE : strip ? WOK_ON : WOK_OFF;
    return WOK_OK;
}

static wok_status read_model(struct load *l, const wok_json *doc, wok_json_at model) {
    wok_json_at vocab = wok_json_get(doc, model, "vocab");
    int64_t max_word, id;
    if (wok_json_get(doc, model, "type") >= 0 || wok_json_get(doc, model, "max_input_chars_per_word") < 0) {
        wok_status status = want_type(l, doc, model, "model", "WordPiece");
        if (status != WOK_OK) return status;
    }
    l->unk = wok_json_string(doc, wok_json_get(doc, model, "unk_token"), &l->unk_length);
    l->prefix = wok_json_string(doc, wok_json_get(doc, model, "continuing_subword_prefix"), &l->prefix_length);
    if (!l->unk || !l->prefix || wok_json_kind_of(doc, vocab) != WOK_JSON_OBJECT ||
        !wok_json_int(doc, wok_json_get(doc, model, "max_input_chars_per_word"), &max_word) || max_word < 0)
        return damaged(l, "model: vocab, unk_token, continuing_subword_prefix or max_input_chars_per_word is missing");
    l->t->max_word = (size_t)max_word;
    wok_json_each(doc, key, vocab) {
        size_t length;
        const char *text = wok_json_string(doc, key, &length);
        if (!wok_json_int(doc, wok_json_value(doc, key), &id)) return damaged(l, "model: an id of vocab is no integer");
        wok_status status = add_key(l, text, length, id);
        if (status != WOK_OK) return status;
    }
    return WOK_OK;
}

/* One object of added_tokens (tokenizer.json) or a value of added_tokens_decoder (tokenizer_config.json). */
static wok_status read_added(struct load *l, const wok_json *doc, wok_json_at item) {
    struct wok_added a = {0};
    size_t length = 0;
    a.text = wok_json_string(doc, wok_json_get(doc, item, "content"), &length);
    if (!a.text || !wok_json_bool(doc, wok_json_get(doc, item, "special"), &a.special) ||
        !wok_json_bool(doc, wok_json_get(doc, item, "lstrip"), &a.lstrip) ||
        !wok_json_bool(doc, wok_json_get(doc, item, "rstrip"), &a.rstrip) ||
        !wok_json_bool(doc, wok_json_get(doc, item, "single_word"), &a.single_word) ||
        !wok_json_bool(doc, wok_json_get(doc, item, "normalized"), &a.normalized))
        return damaged(l, "an added token lacks content, special, lstrip, rstrip, single_word or normalized");
    a.length = (uint32_t)length;
    return add_added(l, a);
}

static wok_status read_tokenizer_json(struct load *l, const wok_json *doc) {
    wok_json_at root = wok_json_root(doc), added = wok_json_get(doc, root, "added_tokens");
    if (wok_json_kind_of(doc, root) != WOK_JSON_OBJECT) return damaged(l, "not a tokenizer");
    wok_status status = read_model(l, doc, wok_json_get(doc, root, "model"));
    if (status == WOK_OK) status = read_normalizer(l, doc, wok_json_get(doc, root, "normalizer"));
    if (status == WOK_OK)
        status = want_type(l, doc, wok_json_get(doc, root, "pre_tokenizer"), "pre_tokenizer", "BertPreTokenizer");
    if (status == WOK_OK) status = read_post_processor(l, doc, wok_json_get(doc, root, "post_processor"));
    for (wok_json_at item = wok_json_first(doc, added); item >= 0 && status == WOK_OK; item = wok_json_next(doc, item))
        status = read_added(l, doc, item);
    return status;
}

/* ---- vocab.txt ------------------------------------------------------------------------------------------------------------ */

/* Lines end at LF only (U+2028 and friends are tokens); white space at the end of a line, CR included, is no part. */
static wok_status read_vocab(struct load *l, const char *text, size_t bytes) {
    size_t begin = bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0;
    int64_t id = 0;
    for (size_t i = begin, used; i < bytes; i += used)
        if (wok_utf8_get(text + i, bytes - i, &used) == 0xfffd && used != 3)
            return wok_ctx_fail(l->ctx, WOK_ERR_FORMAT, "%s: not UTF-8 at byte %zu", l->what, i);
    while (begin < bytes) {
        const char *line = text + begin, *newline = memchr(line, '\n', bytes - begin);
        size_t length = newline ? (size_t)(newline - line) : bytes - begin, keep = 0, used;
        for (size_t i = 0; i < length; i += used)
            if (!wok_char_is_space(wok_utf8_get(line + i, length - i, &used))) keep = i + used;
        wok_status status = add_key(l, line, keep, id++);
        if (status != WOK_OK) return status;
        begin += length + 1;
    }
    l->unk = "[UNK]", l->unk_length = 5, l->prefix = "##", l->prefix_length = 2;
    l->t->max_word = 100;
    l->t->rules = (struct wok_rules){.clean_text = true, .handle_chinese_chars = true, .lowercase = true};
    l->strip = WOK_AS_FILE;
    return WOK_OK;
}

/* ---- tokenizer_config.json, special_tokens_map.json ----------------------------------------------------------------------- */

/* "cls_token": "[CLS]" or {"content": "[CLS]", ...} in either file. */
static const char *special_name(const struct load *l, const char *role, const char *standard, size_t *length) {
    const wok_json *docs[] = {l->config, l->map};
    for (int i = 0; i < 2; i++) {
        wok_json_at at = wok_json_get(docs[i], wok_json_root(docs[i]), role);
        if (wok_json_kind_of(docs[i], at) == WOK_JSON_OBJECT) at = wok_json_get(docs[i], at, "content");
        const char *text = wok_json_string(docs[i], at, length);
        if (text) return text;
    }
    *length = strlen(standard);
    return standard;
}

/* tokenizer_class without "Fast" is one whose normaliser follows the configuration. Absent counts as BERT. */
static bool is_bert_class(const struct load *l) {
    static const char *const known[] = {"BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer",
                                        "MobileBertTokenizer"};
    size_t length;
    const char *name =
        wok_json_string(l->config, wok_json_get(l->config, wok_json_root(l->config), "tokenizer_class"), &length);
    if (!name) return true;
    if (length > 4 && !strcmp(name + length - 4, "Fast")) length -= 4;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i]) == length && !memcmp(name, known[i], length)) return true;
    return false;
}

static void apply_config(struct load *l) {
    const wok_json *doc = l->config;
    wok_json_at root = wok_json_root(doc), accents = wok_json_get(doc, root, "strip_accents");
    double most = 0;
    bool strip = false;
    if (is_bert_class(l)) {
        wok_json_bool(doc, wok_json_get(doc, root, "do_lower_case"), &l->t->rules.lowercase);
        wok_json_bool(doc, wok_json_get(doc, root, "tokenize_chinese_chars"), &l->t->rules.handle_chinese_chars);
        if (wok_json_bool(doc, accents, &strip))
            l->strip = strip ? WOK_ON : WOK_OFF;
        else if (wok_json_kind_of(doc, accents) == WOK_JSON_NULL)
            l->strip = WOK_AS_FILE;
    }
    if (wok_json_double(doc, wok_json_get(doc, root, "model_max_length"), &most) && most >= 1 && most < 1e9)
        l->t->max_length = (int32_t)most; /* "no limit" is written as 1e30 */
}

static void apply_switch(wok_switch wanted, bool *rule) {
    if (wanted != WOK_AS_FILE) *rule = wanted == WOK_ON;
}

static void apply_options(struct load *l, const wok_tokenizer_options *o) {
    struct wok_rules *rules = &l->t->rules;
    apply_switch(o->lowercase, &rules->lowercase);
    apply_switch(o->handle_chinese_chars, &rules->handle_chinese_chars);
    apply_switch(o->clean_text, &rules->clean_text);
    if (o->strip_accents != WOK_AS_FILE) l->strip = o->strip_accents;
    rules->strip_accents = l->strip == WOK_AS_FILE ? rules->lowercase : l->strip == WOK_ON;
    wok_rules_apply(l->t);
}

/* ---- packing -------------------------------------------------------------------------------------------------------------- */

static int32_t find(const struct wok_trie *trie, const char *text, size_t length) {
    uint32_t node = 0;
    for (size_t i = 0; i < length; i++) {
        node = wok_trie_step(trie, node, (uint8_t)text[i]);
        if (node == 0) return -1;
    }
    return length > 0 ? trie->nodes[node].value : -1;
}

/* The arena, the table by id, and keys that point into the arena. */
static wok_status pack_texts(struct load *l) {
    wok_tokenizer *t = l->t;
    uint64_t bytes = 0;
    for (size_t i = 0; i < l->count; i++) {
        bytes += (uint64_t)l->keys[i].length + 1;
        if (l->keys[i].value >= t->size) t->size = l->keys[i].value + 1;
    }
    if (bytes > INT32_MAX)
        return wok_ctx_fail(l->ctx, WOK_ERR_LIMIT, "%s: the vocabulary is larger than 2 GiB", l->what);
    t->arena_bytes = (size_t)bytes;
    t->arena = wok_ctx_alloc(l->ctx, t->arena_bytes);
    t->tokens = wok_ctx_alloc(l->ctx, (size_t)t->size * sizeof *t->tokens);
    if (!t->arena || !t->tokens) return WOK_ERR_MEMORY;
    for (int32_t i = 0; i < t->size; i++) t->tokens[i] = (struct wok_token){WOK_NO_TOKEN, 0};
    uint32_t used = 0;
    for (size_t i = 0; i < l->count; i++) {
        struct wok_trie_key *key = &l->keys[i];
        memcpy(t->arena + used, key->text, key->length);
        t->arena[used + key->length] = 0;
        t->tokens[key->value] = (struct wok_token){used, key->length};
        key->text = t->arena + used;
        used += key->length + 1;
    }
    return WOK_OK;
}

static size_t count_values(const struct wok_trie *trie) {
    size_t count = 0;
    for (uint32_t i = 0; i < trie->count; i++) count += trie->nodes[i].value >= 0;
    return count;
}

/* Ids of added tokens, as Hugging Face gives them out: the model's if it has the text, otherwise the next one behind the
 * vocabulary; ids written in the file play no part. Of a repeated text the last entry counts. */
static wok_status number_added(struct load *l, const struct wok_trie *model) {
    int32_t next = (int32_t)count_values(model), highest = -1;
    for (size_t i = 0; i < l->count; i++) /* an empty token is in the vocabulary, but in no trie */
        if (l->keys[i].length == 0) {
            next++;
            break;
        }
    for (size_t i = 0; i < l->added_count; i++) {
        struct wok_added *a = &l->added[i];
        a->id = find(model, a->text, a->length);
        if (a->id < 0) {
            a->id = highest >= next ? highest + 1 : next;
            wok_status status = add_key(l, a->text, a->length, a->id);
            if (status != WOK_OK) return status;
        }
        if (a->id > highest) highest = a->id;
    }
    return WOK_OK;
}

/* Removes earlier entries of a repeated text. */
static wok_status unique_added(struct load *l) {
    struct wok_trie trie = {0};
    if (l->added_count < 2) return WOK_OK;
    size_t bytes = l->added_count * sizeof(struct wok_trie_key), kept = 0;
    struct wok_trie_key *keys = wok_ctx_alloc(l->ctx, bytes);
    if (!keys) return WOK_ERR_MEMORY;
    for (size_t i = 0; i < l->added_count; i++)
        keys[i] = (struct wok_trie_key){l->added[i].text, l->added[i].length, (int32_t)i};
    wok_status status = wok_trie_build(l->ctx, &trie, keys, l->added_count);
    for (size_t i = 0; status == WOK_OK && i < l->added_count; i++)
        if (find(&trie, l->added[i].text, l->added[i].length) == (int32_t)i) l->added[kept++] = l->added[i];
    if (status == WOK_OK) l->added_count = kept;
    wok_trie_free(l->ctx, &trie);
    wok_ctx_release(l->ctx, keys, bytes);
    return status;
}

/* A trie over the added tokens that match text as written, or (by their normalised form) normalised text. */
static wok_status build_added(wok_tokenizer *t, bool normalized, struct wok_trie *trie) {
    struct wok_trie_key *keys = NULL;
    char *forms = NULL;
    wok_encoding *scratch = NULL;
    size_t bytes = t->added_count * sizeof *keys, forms_bytes = 0, used = 0, count = 0;
    for (size_t i = 0; i < t->added_count; i++) {
        count += t->added[i].normalized == normalized;
        forms_bytes += (size_t)t->added[i].length * 12 + 16; /* more than normalising can add */
    }
    if (count == 0) return WOK_OK;
    wok_status status = wok_encoding_create(t, &scratch);
    keys = status == WOK_OK ? wok_ctx_alloc(t->ctx, bytes) : NULL;
    forms = keys ? wok_ctx_alloc(t->ctx, forms_bytes) : NULL;
    if (!forms) status = WOK_ERR_MEMORY;
    count = 0;
    for (size_t i = 0; i < t->added_count && status == WOK_OK; i++) {
        const struct wok_added *a = &t->added[i];
        struct wok_trie_key key = {a->text, a->length, (int32_t)i};
        if (a->normalized != normalized) continue;
        if (normalized) {
            if (!wok_normalize(t, scratch, a->text, a->length, 0)) status = scratch->status;
            if (status != WOK_OK || scratch->normal_used == 0) continue;
            memcpy(forms + used, scratch->normal, scratch->normal_used);
            key.text = forms + used, key.length = (uint32_t)scratch->normal_used;
            used += key.length;
        }
        keys[count++] = key;
    }
    if (status == WOK_OK) status = wok_trie_build(t->ctx, trie, keys, count);
    wok_ctx_release(t->ctx, forms, forms_bytes);
    wok_ctx_release(t->ctx, keys, bytes);
    wok_encoding_free(&scratch);
    return status;
}

static uint32_t node_of(const struct wok_trie *trie, const char *text, size_t length) {
    uint32_t node = 0;
    for (size_t i = 0; i < length; i++)
        if ((node = wok_trie_step(trie, node, (uint8_t)text[i])) == 0) return WOK_NO_NODE;
    return node;
}

/* The special tokens that the configuration names, as BertTokenizerFast adds them to a bare vocabulary. */
static const char *const special_roles[][2] = {{"unk_token", "[UNK]"},
                                               {"sep_token", "[SEP]"},
                                               {"pad_token", "[PAD]"},
                                               {"cls_token", "[CLS]"},
                                               {"mask_token", "[MASK]"}};

static wok_status add_specials(struct load *l) {
    wok_json_at decoder = wok_json_get(l->config, wok_json_root(l->config), "added_tokens_decoder");
    wok_status status = WOK_OK;
    for (wok_json_at key = wok_json_first(l->config, decoder); key >= 0 && status == WOK_OK;
         key = wok_json_next(l->config, key))
        status = read_added(l, l->config, wok_json_value(l->config, key));
    if (l->added_count > 0) return status;
    for (size_t i = 0; i < sizeof special_roles / sizeof *special_roles && status == WOK_OK; i++) {
        size_t length;
        const char *text = special_name(l, special_roles[i][0], special_roles[i][1], &length);
        status = add_added(l, (struct wok_added){.text = text, .length = (uint32_t)length, .special = true});
    }
    return status;
}

static wok_status frame_from_names(struct load *l) {
    size_t cls_length, sep_length;
    const char *cls = special_name(l, "cls_token", "[CLS]", &cls_length);
    const char *sep = special_name(l, "sep_token", "[SEP]", &sep_length);
    int32_t cls_id = wok_tokenizer_id(l->t, cls, cls_length), sep_id = wok_tokenizer_id(l->t, sep, sep_length);
    if (cls_id < 0 || sep_id < 0)
        return wok_ctx_fail(l->ctx, WOK_ERR_FORMAT, "%s: the vocabulary has no %.60s", l->what, cls_id < 0 ? cls : sep);
    frame_bert(l->t, cls_id, sep_id);
    return WOK_OK;
}

/* Packs what was read. Keys are used up by the trie, so the model's own come first, then texts of added tokens. */
static wok_status finish(struct load *l, bool bare) {
    wok_tokenizer *t = l->t;
    size_t length;
    wok_status status = unique_added(l);
    struct wok_trie_key *keys = NULL;
    size_t model_count = l->count, bytes = model_count * sizeof *keys;
    if (status == WOK_OK && !(keys = wok_ctx_alloc(l->ctx, bytes))) status = WOK_ERR_MEMORY;
    if (status == WOK_OK) {
        if (model_count > 0) memcpy(keys, l->keys, bytes);
        status = wok_trie_build(l->ctx, &t->pieces, keys, model_count);
    }
    wok_ctx_release(l->ctx, keys, bytes);
    if (status == WOK_OK) status = number_added(l, &t->pieces);
    if (status == WOK_OK) status = pack_texts(l);
    if (status != WOK_OK) return status;
    t->added = wok_ctx_alloc(l->ctx, l->added_count * sizeof *t->added);
    if (!t->added) return WOK_ERR_MEMORY;
    t->added_count = l->added_count;
    for (size_t i = 0; i < l->added_count; i++) {
        t->added[i] = l->added[i];
        t->added[i].text = t->arena + t->tokens[t->added[i].id].offset;
    }
    t->inner = node_of(&t->pieces, l->prefix, l->prefix_length);
    t->unknown = find(&t->pieces, l->unk, l->unk_length);
    if (t->unknown < 0) return wok_ctx_fail(l->ctx, WOK_ERR_FORMAT, "%s: the vocabulary has no %.60s", l->what, l->unk);
    const char *pad = special_name(l, "pad_token", "[PAD]", &length);
    t->pad = wok_tokenizer_id(t, pad, length);
    if (t->pad < 0) t->pad = 0;
    if (bare) status = frame_from_names(l);
    if (status == WOK_OK) status = build_added(t, false, &t->added_raw);
    return status == WOK_OK ? build_added(t, true, &t->added_normal) : status;
}

/* ---- entry points ----------------------------------------------------------------------------------------------------------- */

enum source { FROM_JSON, FROM_VOCAB };

static wok_status load_text(struct load *l, enum source source, bool in_folder, const char *text, size_t bytes,
                            const wok_tokenizer_options *options) {
    wok_tokenizer_options o;
    wok_json *doc = NULL;
    if (!wok_take_options(&o, sizeof o, options))
        return wok_ctx_fail(l->ctx, WOK_ERR_ARGUMENT, "wok_tokenizer_options.size is not set");
    l->t = wok_ctx_alloc(l->ctx, sizeof *l->t);
    if (!l->t) return WOK_ERR_MEMORY;
    *l->t = (wok_tokenizer){.ctx = l->ctx};
    wok_status status = source == FROM_JSON ? wok_json_parse(l->ctx, text, bytes, l->what, &doc) : WOK_OK;
    if (status == WOK_OK) status = source == FROM_JSON ? read_tokenizer_json(l, doc) : read_vocab(l, text, bytes);
    if (status == WOK_OK && source == FROM_VOCAB && in_folder) {
        size_t length;
        const char *unk = special_name(l, "unk_token", "[UNK]", &length);
        l->unk = unk, l->unk_length = length;
        status = is_bert_class(l) ? add_specials(l) : refuse(l, "tokenizer_class is not a BERT one");
    }
    if (status == WOK_OK) {
        apply_config(l);
        apply_options(l, &o);
        status = finish(l, source == FROM_VOCAB);
    }
    wok_json_free(&doc);
    wok_ctx_release(l->ctx, l->keys, l->keys_bytes);
    wok_ctx_release(l->ctx, l->added, l->added_bytes);
    if (status != WOK_OK) wok_tokenizer_free(&l->t);
    return status;
}

wok_status wok_tokenizer_from_json(wok_ctx *ctx, const char *json, size_t bytes, const wok_tokenizer_options *options,
                                   wok_tokenizer **tokenizer) {
    struct load l = {.ctx = ctx, .what = "tokenizer.json"};
    wok_status status = load_text(&l, FROM_JSON, false, json, bytes, options);
    *tokenizer = l.t;
    return status;
}

wok_status wok_tokenizer_from_vocab(wok_ctx *ctx, const char *lines, size_t bytes, const wok_tokenizer_options *options,
                                    wok_tokenizer **tokenizer) {
    struct load l = {.ctx = ctx, .what = "vocab.txt"};
    wok_status status = load_text(&l, FROM_VOCAB, false, lines, bytes, options);
    *tokenizer = l.t;
    return status;
}

static bool exists(const char *path, bool folder) {
    struct stat info;
    return stat(path, &info) == 0 && (S_ISDIR(info.st_mode) != 0) == folder;
}

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && !strcmp(text + length - tail, end);
}

/* A configuration file beside the vocabulary; absent is fine, damaged is not. */
static wok_status load_beside(wok_ctx *ctx, const char *folder, const char *name, wok_json **doc) {
    char path[MAX_PATH_BYTES];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    *doc = NULL;
    return n > 0 && (size_t)n < sizeof path && exists(path, false) ? wok_json_load(ctx, path, doc) : WOK_OK;
}

/* Which file of the folder is the vocabulary. */
static wok_status choose(wok_ctx *ctx, const char *folder, char path[MAX_PATH_BYTES], enum source *source) {
    static const char *const names[] = {[FROM_JSON] = "tokenizer.json", [FROM_VOCAB] = "vocab.txt"};
    for (int i = FROM_JSON; i <= FROM_VOCAB; i++) {
        int n = snprintf(path, MAX_PATH_BYTES, "%s/%s", folder, names[i]);
        *source = (enum source)i;
        if (n > 0 && n < MAX_PATH_BYTES && exists(path, false)) return WOK_OK;
    }
    return wok_ctx_fail(ctx, WOK_ERR_IO, "%s has neither tokenizer.json nor vocab.txt", folder);
}

wok_status wok_tokenizer_load(wok_ctx *ctx, const char *path, const wok_tokenizer_options *options,
                              wok_tokenizer **tokenizer) {
    char file[MAX_PATH_BYTES];
    char *text = NULL;
    size_t bytes = 0;
    enum source source = ends_with(path, ".json") ? FROM_JSON : FROM_VOCAB;
    bool folder = exists(path, true);
    struct load l = {.ctx = ctx, .what = path};
    *tokenizer = NULL;
    wok_status status = WOK_OK;
    if (folder) {
        status = choose(ctx, path, file, &source);
        if (status == WOK_OK) status = load_beside(ctx, path, "tokenizer_config.json", &l.config);
        if (status == WOK_OK) status = load_beside(ctx, path, "special_tokens_map.json", &l.map);
        l.what = file;
    }
    if (status == WOK_OK) status = wok_file_load(ctx, l.what, MAX_FILE, &text, &bytes);
    if (status == WOK_OK) {
        status = load_text(&l, source, folder, text, bytes, options);
        wok_ctx_release(ctx, text, bytes + 1);
    }
    wok_json_free(&l.config);
    wok_json_free(&l.map);
    *tokenizer = l.t;
    return status;
}

/* ---- the object ------------------------------------------------------------------------------------------------------------- */

void wok_tokenizer_free(wok_tokenizer **tokenizer) {
    if (!tokenizer || !*tokenizer) return;
    wok_tokenizer *t = *tokenizer;
    wok_ctx *ctx = t->ctx;
    wok_trie_free(ctx, &t->pieces);
    wok_trie_free(ctx, &t->added_raw);
    wok_trie_free(ctx, &t->added_normal);
    wok_ctx_release(ctx, t->added, t->added_count * sizeof *t->added);
    wok_ctx_release(ctx, t->arena, t->arena_bytes);
    wok_ctx_release(ctx, t->tokens, (size_t)t->size * sizeof *t->tokens);
    wok_ctx_release(ctx, t, sizeof *t);
    *tokenizer = NULL;
}

int32_t wok_tokenizer_size(const wok_tokenizer *t) {
    return t->size;
}
int32_t wok_tokenizer_max_length(const wok_tokenizer *t) {
    return t->max_length;
}
int32_t wok_tokenizer_pad_id(const wok_tokenizer *t) {
    return t->pad;
}

int32_t wok_tokenizer_id(const wok_tokenizer *t, const char *token, size_t length) {
    int32_t id = find(&t->pieces, token, length);
    for (size_t i = 0; id < 0 && i < t->added_count; i++)
        if (t->added[i].length == length && !memcmp(t->added[i].text, token, length)) id = t->added[i].id;
    return id;
}

const char *wok_tokenizer_token(const wok_tokenizer *t, int32_t id, size_t *length) {
    if (id < 0 || id >= t->size || t->tokens[id].offset == WOK_NO_TOKEN) return NULL;
    if (length) *length = t->tokens[id].length;
    return t->arena + t->tokens[id].offset;
}
