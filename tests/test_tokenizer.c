/* test_tokenizer.c - WordPiece against Hugging Face's ids, the tokenizer bugs that users of other libraries reported
 * (public-bugs.md, group C), damaged files, failing memory. */
#define _XOPEN_SOURCE 700 /* mkdtemp, realpath */
#include "json.h"
#include "wok_text.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_DATA WOK_TEST_DATA "/text/"

static wok_ctx *ctx;
static wok_tokenizer *tokenizer;
static wok_encoding *encoding;
static size_t held;

static void setup(void) {
    ctx = wok_ctx_create(NULL);
    held = wok_ctx_memory(ctx, NULL);
}

static void close_tokenizer(void) {
    wok_encoding_free(&encoding);
    wok_tokenizer_free(&tokenizer);
}

static void teardown(void) {
    close_tokenizer();
    size_t now = wok_ctx_memory(ctx, NULL);
    cr_assert_eq(now, held, "%zu bytes were not given back", now - held);
    wok_ctx_free(&ctx);
}
TestSuite(tokenizer, .init = setup, .fini = teardown);

/* ---- helpers ----------------------------------------------------------------------------------------------------------- */

static void opened(wok_status status) {
    cr_assert_eq(status, WOK_OK, "%s", wok_ctx_error(ctx));
    cr_assert_eq(wok_encoding_create(tokenizer, &encoding), WOK_OK);
}

static void use_vocab(const char *lines, const wok_tokenizer_options *options) {
    close_tokenizer();
    opened(wok_tokenizer_from_vocab(ctx, lines, strlen(lines), options, &tokenizer));
}

/* A tokenizer.json of pieces; NULL means the usual one. vocab: tokens separated by blanks, behind the five specials. */
struct parts {
    const char *vocab, *normalizer, *pre_tokenizer, *post_processor, *added, *model;
};
static const char usual_template[] =
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"[CLS]\",\"type_id\":0}},"
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"SpecialToken\":{\"id\":\"[SEP]\",\"type_id\":0}}],"
    "\"pair\":[{\"SpecialToken\":{\"id\":\"[CLS]\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}"
    "},"
    "{\"SpecialToken\":{\"id\":\"[SEP]\",\"type_id\":0}},{\"Sequence\":{\"id\":\"B\",\"type_id\":1}},"
    "{\"SpecialToken\":{\"id\":\"[SEP]\",\"type_id\":1}}],\"special_tokens\":{"
    "\"[CLS]\":{\"id\":\"[CLS]\",\"ids\":[2],\"tokens\":[\"[CLS]\"]},"
    "\"[SEP]\":{\"id\":\"[SEP]\",\"ids\":[3],\"tokens\":[\"[SEP]\"]}}}";
static const char uncased[] = "{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,"
                              "\"strip_accents\":null,\"lowercase\":true}";

static const char *or_usual(const char *given, const char *usual) {
    return given ? given : usual;
}

static size_t write_json(char *out, size_t size, struct parts p) {
    char vocab[4096] = "\"[PAD]\":0,\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3,\"[MASK]\":4", model[6000];
    char copy[2048];
    snprintf(copy, sizeof copy, "%s", or_usual(p.vocab, "hello world"));
    int id = 5;
    char *state = NULL;
    for (char *word = strtok_r(copy, " ", &state); word; word = strtok_r(NULL, " ", &state)) {
        size_t used = strlen(vocab);
        snprintf(vocab + used, sizeof vocab - used, ",\"%s\":%d", word, id++);
    }
    snprintf(model, sizeof model,
             "{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"continuing_subword_prefix\":\"##\","
             "\"max_input_chars_per_word\":100,\"vocab\":{%s}}",
             vocab);
    return (size_t)snprintf(out, size,
                            "{\"version\":\"1.0\",\"truncation\":{\"max_length\":2,\"strategy\":\"LongestFirst\","
                            "\"stride\":0},\"padding\":null,\"added_tokens\":[%s],\"normalizer\":%s,"
                            "\"pre_tokenizer\":%s,\"post_processor\":%s,\"decoder\":null,\"model\":%s}",
                            or_usual(p.added, ""), or_usual(p.normalizer, uncased),
                            or_usual(p.pre_tokenizer, "{\"type\":\"BertPreTokenizer\"}"),
                            or_usual(p.post_processor, usual_template), or_usual(p.model, model));
}

static wok_status load_json(struct parts p) {
    static char text[20000];
    close_tokenizer();
    return wok_tokenizer_from_json(ctx, text, write_json(text, sizeof text, p), NULL, &tokenizer);
}

static void use_json(struct parts p) {
    opened(load_json(p));
}

/* Tokens of a text, blanks between. */
static const char *tokens_of(const char *text, size_t length, const wok_encode_options *options) {
    static char out[8192];
    cr_assert_eq(wok_tokenizer_encode(tokenizer, options, text, length, NULL, 0, encoding), WOK_OK, "%s",
                 wok_encoding_error(encoding));
    size_t used = 0;
    out[0] = 0;
    for (size_t i = 0; i < wok_encoding_size(encoding); i++)
        used += (size_t)snprintf(out + used, sizeof out - used, "%s%s", i ? " " : "",
                                 wok_tokenizer_token(tokenizer, wok_encoding_ids(encoding)[i], NULL));
    return out;
}

static const char *tokens(const char *text) {
    const wok_encode_options options = {.size = sizeof options, .no_special_tokens = true};
    return tokens_of(text, strlen(text), &options);
}

#define TOKENS(text, want)                                                                                             \
    do {                                                                                                               \
        const char *got_ = tokens(text);                                                                               \
        cr_assert_str_eq(got_, want, "<%s> became <%s>, not <%s>", text, got_, want);                                  \
    } while (0)

static void same_row(const wok_json *doc, wok_json_at want, const int32_t *got, size_t count, const char *what) {
    cr_assert_eq((size_t)wok_json_count(doc, want), count, "%s: %zu tokens, not %d", what, count,
                 (int)wok_json_count(doc, want));
    size_t i = 0;
    wok_json_each(doc, item, want) {
        int64_t id = -1;
        cr_assert(wok_json_int(doc, item, &id));
        cr_assert_eq(id, got[i], "%s: token %zu is %d, not %lld", what, i, (int)got[i], (long long)id);
        i++;
    }
}

/* ---- Hugging Face's answers -------------------------------------------------------------------------------------------- */

/* vocab.txt in a folder: with the special tokens that BertTokenizerFast knows in text. */
static void use_bert(void) {
    close_tokenizer();
    char folder[] = "/tmp/wok-tokenizer-XXXXXX", name[64], target[4096];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(name, sizeof name, "%s/vocab.txt", folder);
    cr_assert_not_null(realpath(TEXT_DATA "vocab.txt", target));
    cr_assert_eq(symlink(target, name), 0);
    wok_status status = wok_tokenizer_load(ctx, folder, NULL, &tokenizer);
    unlink(name);
    rmdir(folder);
    opened(status);
}

Test(tokenizer, all_rows_of_wordpiece_jsonl) {
    use_bert();
    FILE *file = fopen(TEXT_DATA "wordpiece.jsonl", "r");
    cr_assert_not_null(file);
    char *line = NULL;
    size_t capacity = 0;
    int rows = 0;
    for (ssize_t n; (n = getline(&line, &capacity, file)) > 0; rows++) {
        wok_json *doc = NULL;
        size_t length = 0;
        cr_assert_eq(wok_json_parse(ctx, line, (size_t)n, "row", &doc), WOK_OK);
        const char *text = wok_json_string(doc, wok_json_get(doc, 0, "text"), &length);
        cr_assert_eq(wok_tokenizer_encode(tokenizer, NULL, text, length, NULL, 0, encoding), WOK_OK);
        same_row(doc, wok_json_get(doc, 0, "ids"), wok_encoding_ids(encoding), wok_encoding_size(encoding), line);
        wok_json_free(&doc);
    }
    cr_assert_eq(rows, 968);
    free(line);
    fclose(file);
}

Test(tokenizer, all_of_wordpiece_pairs_json) {
    use_bert();
    wok_json *doc = NULL;
    cr_assert_eq(wok_json_load(ctx, TEXT_DATA "wordpiece-pairs.json", &doc), WOK_OK);
    int rows = 0;
    wok_json_each(doc, key, 0) wok_json_each(doc, row, wok_json_value(doc, key)) {
        size_t a_length, b_length;
        const char *a = wok_json_string(doc, wok_json_get(doc, row, "a"), &a_length);
        const char *b = wok_json_string(doc, wok_json_get(doc, row, "b"), &b_length);
        int64_t most = 0;
        wok_json_int(doc, wok_json_get(doc, row, "max_length"), &most);
        const wok_encode_options options = {.size = sizeof options, .max_length = (int32_t)most};
        cr_assert_eq(wok_tokenizer_encode(tokenizer, &options, a, a_length, b, b_length, encoding), WOK_OK);
        size_t count = wok_encoding_size(encoding);
        same_row(doc, wok_json_get(doc, row, "ids"), wok_encoding_ids(encoding), count, a);
        same_row(doc, wok_json_get(doc, row, "type_ids"), wok_encoding_type_ids(encoding), count, a);
        rows++;
    }
    cr_assert_eq(rows, 44);
    wok_json_free(&doc);
}

/* ---- group C ------------------------------------------------------------------------------------------------------------- */

#define SPECIALS "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"

Test(tokenizer, B35_lowercase_and_accents_are_tied_unless_told) {
    static const char vocab[] = SPECIALS "cafe\ncaf\xc3\xa9\n";
    static const char *const null = "null", *const no = "false", *const yes = "true";
    const struct {
        const char *lowercase, *strip, *text, *want;
    } cases[] = {{yes, null, "Caf\xc3\xa9", "cafe"},
                 {yes, no, "Caf\xc3\xa9", "caf\xc3\xa9"},
                 {no, null, "caf\xc3\xa9", "caf\xc3\xa9"},
                 {no, yes, "caf\xc3\xa9", "cafe"},
                 {no, null, "cafe\xcc\x81", "[UNK]"}}; /* decomposed: nothing composes it */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char normalizer[200];
        snprintf(normalizer, sizeof normalizer,
                 "{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,"
                 "\"strip_accents\":%s,\"lowercase\":%s}",
                 cases[i].strip, cases[i].lowercase);
        use_json((struct parts){.vocab = "cafe caf\xc3\xa9", .normalizer = normalizer});
        TOKENS(cases[i].text, cases[i].want);
        /* The same rules by options on a bare vocabulary. */
        const wok_tokenizer_options options = {.size = sizeof options,
                                               .lowercase = cases[i].lowercase == yes ? WOK_ON : WOK_OFF,
                                               .strip_accents = cases[i].strip == null  ? WOK_AS_FILE
                                                                : cases[i].strip == yes ? WOK_ON
                                                                                        : WOK_OFF};
        use_vocab(vocab, &options);
        TOKENS(cases[i].text, cases[i].want);
    }
}

Test(tokenizer, B36_word_limit_counts_characters) {
    char vocab[1024] = SPECIALS "a\n##a\n\xc3\xa9\n##\xc3\xa9\n", word[512];
    const wok_tokenizer_options cased = {.size = sizeof cased, .lowercase = WOK_OFF};
    const wok_encode_options plain = {.size = sizeof plain, .no_special_tokens = true};
    use_vocab(vocab, &cased);
    memset(word, 'a', 101);
    tokens_of(word, 100, &plain);
    cr_assert_eq(wok_encoding_size(encoding), 100);
    cr_assert_str_eq(tokens_of(word, 101, &plain), "[UNK]");
    for (int i = 0; i < 101; i++) memcpy(word + 2 * i, "\xc3\xa9", 2);
    tokens_of(word, 120, &plain);
    cr_assert_eq(wok_encoding_size(encoding), 60);
    tokens_of(word, 200, &plain);
    cr_assert_eq(wok_encoding_size(encoding), 100);
    cr_assert_str_eq(tokens_of(word, 202, &plain), "[UNK]");
}

Test(tokenizer, B37_one_unknown_piece_makes_the_word_unknown) {
    use_vocab(SPECIALS "un\n##want\n##ed\n", NULL);
    TOKENS("unwanted", "un ##want ##ed");
    TOKENS("unwantedX", "[UNK]");
    TOKENS("un unwantedX un", "un [UNK] un");
    TOKENS("want", "[UNK]"); /* ##want does not begin a word */
}

Test(tokenizer, B38_cjk_is_split_emoji_is_not) {
    const char *vocab = "hello world \xe4\xb8\xad \xe5\x9b\xbd a b \xc2\xa9";
    use_json((struct parts){.vocab = vocab});
    TOKENS("hello\xe4\xb8\xad\xe5\x9b\xbdworld", "hello \xe4\xb8\xad \xe5\x9b\xbd world");
    TOKENS("hello\xf0\x9f\x98\x8a", "[UNK]");
    TOKENS("\xf0\x9f\x98\x8a\xf0\x9f\x98\x8a", "[UNK]");
    TOKENS("a\xc2\xa9"
           "b",
           "[UNK]");
    TOKENS("\xc2\xa9", "\xc2\xa9");
    use_json((struct parts){.vocab = vocab,
                            .normalizer = "{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":"
                                          "false,\"strip_accents\":null,\"lowercase\":true}"});
    TOKENS("hello\xe4\xb8\xad\xe5\x9b\xbdworld", "[UNK]");
}

Test(tokenizer, B39_newlines_are_spaces_other_controls_vanish) {
    use_vocab(SPECIALS "note\nbook\nnotebook\n", NULL);
    static const char *const spaces[] = {"\n", "\t", "\r", "\xc2\xa0", "\xe2\x80\xa8", "\xe3\x80\x80"};
    static const char *const gone[] = {"\x0b",         "\xc2\x85",     "\xc2\xad",    "\xe2\x80\x8d",
                                       "\xef\xbb\xbf", "\xef\xbf\xbd", "\xee\x80\x80"};
    char text[32];
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
        snprintf(text, sizeof text, "note%sbook", spaces[i]);
        TOKENS(text, "note book");
    }
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) {
        snprintf(text, sizeof text, "note%sbook", gone[i]);
        TOKENS(text, "notebook");
    }
    TOKENS("note\xcd\xb8"
           "book",
           "[UNK]"); /* U+0378 is not assigned: kept */
    const wok_encode_options plain = {.size = sizeof plain, .no_special_tokens = true};
    cr_assert_str_eq(tokens_of("note\0book", 9, &plain), "notebook");
}

static void runs(int a, int b, char *left, char *right) {
    left[0] = right[0] = 0;
    for (int i = 0; i < a; i++) strcat(left, "a ");
    for (int i = 0; i < b; i++) strcat(right, "b ");
}

Test(tokenizer, B40_pair_truncation) {
    static const struct {
        int a, b;
        wok_truncation how;
        int kept_a, kept_b;
    } cases[] = {
        {10, 10, WOK_LONGEST_FIRST, 4, 5}, {3, 10, WOK_LONGEST_FIRST, 3, 6}, {10, 3, WOK_LONGEST_FIRST, 6, 3},
        {7, 8, WOK_LONGEST_FIRST, 4, 5},   {8, 7, WOK_LONGEST_FIRST, 5, 4},  {7, 8, WOK_ONLY_FIRST, 1, 8},
        {7, 8, WOK_ONLY_SECOND, 7, 2},     {4, 5, WOK_LONGEST_FIRST, 4, 5},  {7, 8, WOK_DO_NOT_TRUNCATE, 7, 8}};
    use_vocab(SPECIALS "a\nb\n", NULL);
    char left[64], right[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const wok_encode_options options = {.size = sizeof options, .max_length = 12, .truncation = cases[i].how};
        runs(cases[i].a, cases[i].b, left, right);
        cr_assert_eq(wok_tokenizer_encode(tokenizer, &options, left, strlen(left), right, strlen(right), encoding),
                     WOK_OK);
        const int32_t *ids = wok_encoding_ids(encoding), *types = wok_encoding_type_ids(encoding);
        int kept[2] = {0, 0}, seps = 0;
        for (size_t k = 0; k < wok_encoding_size(encoding); k++) {
            cr_assert_eq(types[k], seps > 0, "types are 0 up to and with the first [SEP]");
            if (ids[k] >= 5) kept[ids[k] - 5]++;
            seps += ids[k] == 3;
        }
        cr_assert(kept[0] == cases[i].kept_a && kept[1] == cases[i].kept_b, "case %zu: %d/%d", i, kept[0], kept[1]);
        cr_assert_eq(wok_encoding_truncated(encoding), kept[0] + kept[1] < cases[i].a + cases[i].b);
    }
}

Test(tokenizer, B40_truncation_that_cannot_be) {
    use_vocab(SPECIALS "a\nb\n", NULL);
    wok_encode_options options = {.size = sizeof options, .max_length = 5, .truncation = WOK_ONLY_FIRST};
    cr_assert_eq(wok_tokenizer_encode(tokenizer, &options, "a a", 3, "b b b b", 7, encoding), WOK_ERR_ARGUMENT);
    cr_assert_neq(wok_encoding_error(encoding)[0], 0);
    cr_assert_eq(wok_encoding_size(encoding), 0);
    options.truncation = WOK_ONLY_SECOND;
    cr_assert_eq(wok_tokenizer_encode(tokenizer, &options, "a a a a a a", 11, NULL, 0, encoding), WOK_ERR_ARGUMENT);
    options = (wok_encode_options){.size = sizeof options, .max_length = 1};
    cr_assert_eq(wok_tokenizer_encode(tokenizer, &options, "a", 1, NULL, 0, encoding), WOK_ERR_ARGUMENT);
    options.max_length = 2;
    cr_assert_str_eq(tokens_of("a b", 3, &options), "[CLS] [SEP]");
    options.max_length = 3;
    cr_assert_eq(wok_tokenizer_encode(tokenizer, &options, "a", 1, "b", 1, encoding), WOK_OK);
    cr_assert_eq(wok_encoding_size(encoding), 3);
    options = (wok_encode_options){.size = 0};
    cr_assert_eq(wok_tokenizer_encode(tokenizer, &options, "a", 1, NULL, 0, encoding), WOK_ERR_ARGUMENT);
    options = (wok_encode_options){.size = sizeof options, .pad_length = -1};
    cr_assert_eq(wok_tokenizer_encode(tokenizer, &options, "a", 1, NULL, 0, encoding), WOK_ERR_ARGUMENT);
}

#define ADDED(id, content, special, flags)                                                                             \
    "{\"id\":" #id ",\"content\":\"" content "\",\"special\":" special "," flags "}"
#define NO_FLAGS "\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false"
static const char bert_added[] = ADDED(3, "[SEP]", "true", NO_FLAGS) "," ADDED(4, "[MASK]", "true", NO_FLAGS);

Test(tokenizer, B41_special_tokens_in_text) {
    static const char text[] = "a [MASK] b [SEP] [mask]";
    use_json((struct parts){.vocab = "a b [ ] mask sep"});
    TOKENS(text, "a [ mask ] b [ sep ] [ mask ]");
    use_json((struct parts){.vocab = "a b [ ] mask sep", .added = bert_added});
    TOKENS(text, "a [MASK] b [SEP] [ mask ]");
    const wok_encode_options safe = {.size = sizeof safe, .no_special_tokens = true, .specials_are_text = true};
    cr_assert_str_eq(tokens_of(text, strlen(text), &safe), "a [ mask ] b [ sep ] [ mask ]");
    use_vocab(SPECIALS "a\nb\n[\n]\nmask\nsep\n", NULL); /* nothing names them */
    TOKENS(text, "a [ mask ] b [ sep ] [ mask ]");
}

Test(tokenizer, B43_vocab_line_handling) {
    static const struct {
        const char *lines;
        int32_t hello, world;
    } cases[] = {{"[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n[MASK]\r\nhello\r\nworld\r\n", 5, 6},
                 {SPECIALS "\xe2\x80\xa8\nhello\nworld", 6, 7},
                 {SPECIALS "hello\nhello\nworld", 6, 7},
                 {SPECIALS "\nhello\nworld\n", 6, 7},
                 {"\xef\xbb\xbf" SPECIALS "hello\nworld", 5, 6}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        use_vocab(cases[i].lines, NULL);
        const wok_encode_options plain = {.size = sizeof plain, .no_special_tokens = true};
        cr_assert_eq(wok_tokenizer_encode(tokenizer, &plain, "hello world", 11, NULL, 0, encoding), WOK_OK);
        const int32_t *ids = wok_encoding_ids(encoding);
        cr_assert(wok_encoding_size(encoding) == 2 && ids[0] == cases[i].hello && ids[1] == cases[i].world, "case %zu",
                  i);
    }
}

/* ---- the rest of the contract --------------------------------------------------------------------------------------------- */

Test(tokenizer, added_tokens_obey_their_flags) {
    use_json((struct parts){.vocab = "hello world x",
                            .added = ADDED(90, "<a>", "false", NO_FLAGS) "," ADDED(
                                91, "<b>", "false",
                                "\"single_word\":false,\"lstrip\":true,\"rstrip\":true,\"normalized\":"
                                "false") "," ADDED(92, "cd", "false",
                                                   "\"single_word\":true,\"lstrip\":false,\"rstrip\":false,"
                                                   "\"normalized\":false") "," ADDED(93, "H\xc3\x89Y", "false",
                                                                                     "\"single_word\":"
                                                                                     "false,\"lstrip\":"
                                                                                     "false,\"rstrip\":"
                                                                                     "false,\"normalized\":"
                                                                                     "true") "," ADDED(94,
                                                                                                       "<a>"
                                                                                                       "b",
                                                                                                       "tru"
                                                                                                       "e",
                                                                                                       NO_FLAGS)});
    TOKENS("hello<a>world", "hello <a> world");
    TOKENS("hello<A>world", "hello [UNK] [UNK] [UNK] world");
    TOKENS("x<a>bx", "x <a>b x"); /* the longest one */
    TOKENS("x cd x", "x cd x");
    TOKENS("xcd cdx _cd .cd.", "[UNK] [UNK] [UNK] [UNK] [UNK] cd [UNK]");
    TOKENS("xh\xc3\xa9yx HEY", "x H\xc3\x89Y x H\xc3\x89Y");
    cr_assert_eq(wok_tokenizer_id(tokenizer, "<a>", 3), 8,
                 "the next id behind the vocabulary, as Hugging Face gives it");
    const wok_encode_options options = {.size = sizeof options, .no_special_tokens = true, .offsets = true};
    tokens_of("x  <b> \t x", 10, &options);
    const wok_text_span *spans = wok_encoding_offsets(encoding);
    cr_assert_eq(wok_encoding_size(encoding), 3);
    cr_assert(spans[1].begin == 1 && spans[1].end == 9, "the token takes the white space along");
    cr_assert(spans[2].begin == 9 && spans[2].end == 10);
}

Test(tokenizer, offsets_are_bytes_of_the_source) {
    use_bert();
    static const char text[] = "Caf\xc3\xa9 \xe5\x8c\x97 unaffable!";
    static const struct {
        uint32_t begin, end;
    } want[] = {{0, 0}, {0, 5}, {6, 9}, {10, 13}, {13, 16}, {16, 19}, {19, 20}, {0, 0}};
    const wok_encode_options options = {.size = sizeof options, .offsets = true};
    cr_assert_str_eq(tokens_of(text, strlen(text), &options), "[CLS] cafe \xe5\x8c\x97 una ##ffa ##ble ! [SEP]");
    const wok_text_span *spans = wok_encoding_offsets(encoding);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        cr_assert(spans[i].begin == want[i].begin && spans[i].end == want[i].end, "token %zu: %u..%u", i,
                  spans[i].begin, spans[i].end);
    tokens("hello");
    cr_assert_null(wok_encoding_offsets(encoding));
}

Test(tokenizer, padding) {
    use_vocab(SPECIALS "a\n", NULL);
    wok_encode_options options = {.size = sizeof options, .pad_length = 5};
    cr_assert_str_eq(tokens_of("a", 1, &options), "[CLS] a [SEP] [PAD] [PAD]");
    static const int32_t mask[] = {1, 1, 1, 0, 0};
    cr_assert_eq(memcmp(wok_encoding_attention_mask(encoding), mask, sizeof mask), 0);
    cr_assert_str_eq(tokens_of("a a a a a", 9, &options), "[CLS] a a a a a [SEP]");
    options = (wok_encode_options){.size = sizeof options, .pad_multiple = 4};
    tokens_of("a a", 3, &options);
    cr_assert_eq(wok_encoding_size(encoding), 4);
    tokens_of("a a a", 5, &options);
    cr_assert_eq(wok_encoding_size(encoding), 8);
}

Test(tokenizer, bytes_that_are_not_utf8_vanish) {
    use_vocab(SPECIALS "note\nbook\nnotebook\n", NULL);
    static const char *const bad[] = {
        "\xff", "\x80", "\xc0\x80", "\xe4\xb8", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf0\x9f\x98", "\xfe\xff\xbf"};
    char text[32];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text, "note%sbook", bad[i]);
        TOKENS(text, "notebook");
        snprintf(text, sizeof text, "notebook%s", bad[i]);
        TOKENS(text, "notebook");
    }
}

/* All bytes, at every length, with offsets: no fault (sanitizers watch), spans inside the text. */
Test(tokenizer, survives_random_bytes) {
    use_bert();
    uint32_t seed = 1;
    char text[600];
    const wok_encode_options options = {.size = sizeof options, .offsets = true};
    for (int round = 0; round < 3000; round++) {
        size_t length = (size_t)round % sizeof text;
        for (size_t i = 0; i < length; i++) {
            seed = seed * 1664525u + 1013904223u;
            text[i] = (char)(round % 3 == 0 ? seed >> 24 : round % 3 == 1 ? 0xcc + (seed >> 30) : 0x80 | (seed >> 25));
        }
        cr_assert_eq(wok_tokenizer_encode(tokenizer, &options, text, length, text, length / 2, encoding), WOK_OK);
        for (size_t i = 0; i < wok_encoding_size(encoding); i++) {
            wok_text_span span = wok_encoding_offsets(encoding)[i];
            cr_assert(span.begin <= span.end && span.end <= length);
        }
    }
}

/* Time linear in the text: what a quadratic step anywhere would turn into minutes. */
Test(tokenizer, long_texts_take_linear_time, .timeout = 60) {
    use_bert();
    size_t length = 4 << 20;
    char *text = malloc(length);
    static const char *const units[] = {"a",   "##", "[MASK", "\xcc\x81\xcc\xa3", "e\xcc\x81", " ", "\xf0\x9f\x98\x8a",
                                        "the "};
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        size_t step = strlen(units[u]), used = 0;
        for (; used + step <= length; used += step) memcpy(text + used, units[u], step);
        cr_assert_eq(wok_tokenizer_encode(tokenizer, NULL, text, used, NULL, 0, encoding), WOK_OK);
    }
    free(text);
}

Test(tokenizer, requests_in_json) {
    use_bert();
    static const struct {
        const char *request;
        wok_status status;
        size_t count;
    } cases[] = {{"{\"text\":\"hello world\"}", WOK_OK, 4},
                 {"{\"text\":\"hello\",\"pair\":\"world\"}", WOK_OK, 5},
                 {"{\"text\":\"hello\",\"pair\":null,\"max_length\":null,\"truncation\":null}", WOK_OK, 3},
                 {"{\"text\":\"a b c d\",\"max_length\":4}", WOK_OK, 4},
                 {"{\"text\":\"a b c d\",\"max_length\":4,\"truncation\":false}", WOK_OK, 6},
                 {"{\"text\":\"a b c d\",\"max_length\":4,\"truncation\":\"do_not_truncate\"}", WOK_OK, 6},
                 {"{\"text\":\"a b c d\",\"truncation\":true}", WOK_OK, 6},
                 {"{\"text\":\"a b\",\"pair\":\"c d e\",\"max_length\":6,\"truncation\":\"only_second\"}", WOK_OK, 6},
                 {"{\"text\":\"a\",\"add_special_tokens\":false}", WOK_OK, 1},
                 {"{\"text\":\"a\\u0000b\"}", WOK_OK, 3},
                 {"{\"text\":7}", WOK_ERR_FORMAT, 0},
                 {"{\"pair\":\"a\"}", WOK_ERR_FORMAT, 0},
                 {"[\"a\"]", WOK_ERR_FORMAT, 0},
                 {"{\"text\":\"a\",\"max_length\":0}", WOK_ERR_FORMAT, 0},
                 {"{\"text\":\"a\",\"truncation\":\"shortest\"}", WOK_ERR_FORMAT, 0},
                 {"{\"text\":\"a\",\"maxlength\":3}", WOK_ERR_FORMAT, 0},
                 {"{\"text\":\"a\"", WOK_ERR_FORMAT, 0},
                 {"", WOK_ERR_FORMAT, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wok_status status = wok_tokenizer_encode_json(tokenizer, cases[i].request, strlen(cases[i].request), encoding);
        cr_assert_eq(status, cases[i].status, "%s: %s", cases[i].request, wok_encoding_error(encoding));
        cr_assert_eq(wok_encoding_size(encoding), cases[i].count, "%s", cases[i].request);
        cr_assert_eq(status == WOK_OK, wok_encoding_error(encoding)[0] == 0);
    }
}

/* ---- files ------------------------------------------------------------------------------------------------------------------ */

static void write_file(const char *folder, const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
}

static void drop_folder(const char *folder) {
    static const char *const names[] = {"vocab.txt", "tokenizer.json", "tokenizer_config.json",
                                        "special_tokens_map.json"};
    char path[256];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

static wok_status load_folder(const char *vocab, const char *json, const char *config, const char *map) {
    char folder[] = "/tmp/wok-tokenizer-XXXXXX";
    close_tokenizer();
    cr_assert_not_null(mkdtemp(folder));
    if (vocab) write_file(folder, "vocab.txt", vocab);
    if (json) write_file(folder, "tokenizer.json", json);
    if (config) write_file(folder, "tokenizer_config.json", config);
    if (map) write_file(folder, "special_tokens_map.json", map);
    wok_status status = wok_tokenizer_load(ctx, folder, NULL, &tokenizer);
    drop_folder(folder);
    return status;
}

Test(tokenizer, configuration_decides_as_in_transformers) {
    static const char vocab[] = SPECIALS "hello\nHello\n[\n]\nmask\n\xe4\xb8\xad\xe4\xb8\xad\n\xe4\xb8\xad\n";
    static char json[20000];
    opened(load_folder(vocab, NULL, NULL, NULL));
    TOKENS("Hello [MASK]", "hello [MASK]");
    cr_assert_eq(wok_tokenizer_max_length(tokenizer), 0);
    opened(load_folder(vocab, NULL,
                       "{\"do_lower_case\":false,\"model_max_length\":512,\"tokenize_chinese_chars\":false}", NULL));
    TOKENS("Hello \xe4\xb8\xad\xe4\xb8\xad", "Hello \xe4\xb8\xad\xe4\xb8\xad");
    cr_assert_eq(wok_tokenizer_max_length(tokenizer), 512);
    opened(load_folder(vocab, NULL, "{\"model_max_length\":1000000000000000019884624838656}", NULL));
    cr_assert_eq(wok_tokenizer_max_length(tokenizer), 0);
    /* tokenizer.json says lower case; BertTokenizerFast takes the configuration's word, a general class does not. */
    write_json(json, sizeof json, (struct parts){.vocab = "hello Hello"});
    opened(load_folder(NULL, json, "{\"do_lower_case\":false,\"tokenizer_class\":\"BertTokenizerFast\"}", NULL));
    TOKENS("Hello", "Hello");
    opened(load_folder(NULL, json, "{\"do_lower_case\":false,\"tokenizer_class\":\"PreTrainedTokenizerFast\"}", NULL));
    TOKENS("Hello", "hello");
    /* Names of special tokens: plain or as objects, in either file. */
    static const char named[] = "<pad>\n<unk>\n<s>\n</s>\nhello\n";
    opened(load_folder(named, NULL, "{\"cls_token\":\"<s>\",\"sep_token\":{\"content\":\"</s>\"}}",
                       "{\"unk_token\":\"<unk>\",\"pad_token\":{\"content\":\"<pad>\"},\"cls_token\":\"[CLS]\"}"));
    cr_assert_str_eq(tokens_of("hello you", 9, NULL), "<s> hello <unk> </s>");
    cr_assert_eq(wok_tokenizer_pad_id(tokenizer), 0);
}

Test(tokenizer, folders_that_hold_no_tokenizer) {
    cr_assert_eq(load_folder(NULL, NULL, NULL, NULL), WOK_ERR_IO);
    cr_assert_not_null(strstr(wok_ctx_error(ctx), "neither tokenizer.json nor vocab.txt"));
    cr_assert_eq(wok_tokenizer_load(ctx, "/no/such/folder", NULL, &tokenizer), WOK_ERR_IO);
    cr_assert_eq(load_folder("hello\nworld\n", NULL, NULL, NULL), WOK_ERR_FORMAT); /* no [UNK] */
    cr_assert_eq(load_folder("[UNK]\nhello\n", NULL, NULL, NULL), WOK_OK, "[CLS] and [SEP] are added");
    close_tokenizer();
    cr_assert_eq(load_folder("", NULL, NULL, NULL), WOK_ERR_FORMAT);
    cr_assert_eq(load_folder(SPECIALS "\xff\n", NULL, NULL, NULL), WOK_ERR_FORMAT);
    cr_assert_eq(load_folder(SPECIALS, NULL, "{", NULL), WOK_ERR_FORMAT);
    cr_assert_eq(load_folder(SPECIALS, NULL, "{\"tokenizer_class\":\"RobertaTokenizer\"}", NULL), WOK_ERR_UNSUPPORTED);
    cr_assert_eq(wok_tokenizer_from_vocab(ctx, "[UNK]\nhello\n", 12, NULL, &tokenizer), WOK_ERR_FORMAT);
}

Test(tokenizer, what_is_not_bert_is_refused_by_name) {
    static const struct {
        struct parts parts;
        wok_status status;
        const char *says;
    } cases[] = {
        {{.model = "{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}"}, WOK_ERR_UNSUPPORTED, "BPE"},
        {{.model = "{\"type\":\"Unigram\",\"vocab\":[]}"}, WOK_ERR_UNSUPPORTED, "Unigram"},
        {{.model = "null"}, WOK_ERR_UNSUPPORTED, "model"},
        {{.normalizer = "{\"type\":\"NFC\"}"}, WOK_ERR_UNSUPPORTED, "NFC"},
        {{.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[]}"}, WOK_ERR_UNSUPPORTED, "Sequence"},
        {{.normalizer = "{\"type\":\"BertNormalizer\",\"clean_text\":true}"}, WOK_ERR_FORMAT, "normalizer"},
        {{.pre_tokenizer = "{\"type\":\"ByteLevel\"}"}, WOK_ERR_UNSUPPORTED, "ByteLevel"},
        {{.pre_tokenizer = "null"}, WOK_ERR_UNSUPPORTED, "pre_tokenizer"},
        {{.post_processor = "{\"type\":\"RobertaProcessing\"}"}, WOK_ERR_UNSUPPORTED, "RobertaProcessing"},
        {{.post_processor = "{\"type\":\"BertProcessing\"}"}, WOK_ERR_FORMAT, "cls"},
        {{.post_processor = "{\"type\":\"TemplateProcessing\",\"single\":[],\"pair\":[],\"special_tokens\":{}}"},
         WOK_ERR_FORMAT,
         "template"},
        {{.added = "{\"id\":9,\"content\":\"x\"}"}, WOK_ERR_FORMAT, "added token"},
        {{.model = "{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"continuing_subword_prefix\":\"##\","
                   "\"max_input_chars_per_word\":100,\"vocab\":{\"a\":0}}"},
         WOK_ERR_FORMAT,
         "[UNK]"},
        {{.model = "{\"type\":\"WordPiece\",\"unk_token\":\"a\",\"continuing_subword_prefix\":\"##\","
                   "\"max_input_chars_per_word\":100,\"vocab\":{\"a\":-1}}"},
         WOK_ERR_FORMAT,
         "id"},
        {{.model = "{\"type\":\"WordPiece\",\"unk_token\":\"a\",\"continuing_subword_prefix\":\"##\","
                   "\"max_input_chars_per_word\":100,\"vocab\":{\"a\":4294967296}}"},
         WOK_ERR_FORMAT,
         "id"},
        {{.model = "{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}"}, WOK_ERR_FORMAT, "unk_token"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert_eq(load_json(cases[i].parts), cases[i].status, "case %zu: %s", i, wok_ctx_error(ctx));
        cr_assert_null(tokenizer);
        cr_assert_not_null(strstr(wok_ctx_error(ctx), cases[i].says), "case %zu: %s", i, wok_ctx_error(ctx));
    }
}

Test(tokenizer, frames_of_all_kinds) {
    use_json(
        (struct parts){.post_processor = "{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\",3],\"cls\":[\"[CLS]\",2]}"});
    cr_assert_str_eq(tokens_of("hello", 5, NULL), "[CLS] hello [SEP]");
    use_json((struct parts){.post_processor = "null"});
    cr_assert_str_eq(tokens_of("hello", 5, NULL), "hello");
    cr_assert_eq(wok_tokenizer_encode(tokenizer, NULL, "hello", 5, "world", 5, encoding), WOK_OK);
    cr_assert(wok_encoding_size(encoding) == 2 && wok_encoding_type_ids(encoding)[1] == 1);
    cr_assert_eq(wok_tokenizer_encode(tokenizer, NULL, NULL, 0, NULL, 0, encoding), WOK_OK);
    cr_assert_eq(wok_encoding_size(encoding), 0);
    cr_assert_not_null(wok_encoding_ids(encoding));
}

Test(tokenizer, tokens_and_ids) {
    use_bert();
    cr_assert_eq(wok_tokenizer_size(tokenizer), 30522);
    cr_assert_eq(wok_tokenizer_id(tokenizer, "hello", 5), 7592);
    cr_assert_eq(wok_tokenizer_id(tokenizer, "##ble", 5), 3468);
    cr_assert_eq(wok_tokenizer_id(tokenizer, "nosuchtoken", 11), -1);
    cr_assert_eq(wok_tokenizer_id(tokenizer, "", 0), -1);
    size_t length = 0;
    cr_assert_str_eq(wok_tokenizer_token(tokenizer, 102, &length), "[SEP]");
    cr_assert_eq(length, 5);
    cr_assert_null(wok_tokenizer_token(tokenizer, -1, NULL));
    cr_assert_null(wok_tokenizer_token(tokenizer, 30522, NULL));
}

/* Every cut and many changed bytes of a tokenizer.json: a tokenizer or a sentence. */
Test(tokenizer, survives_damaged_json) {
    static char text[20000], copy[20000];
    size_t length = write_json(text, sizeof text, (struct parts){.vocab = "a ##b hello", .added = bert_added});
    for (size_t n = 0; n < length; n++) {
        cr_assert_neq(wok_tokenizer_from_json(ctx, text, n, NULL, &tokenizer), WOK_OK);
        cr_assert_neq(wok_ctx_error(ctx)[0], 0);
        memcpy(copy, text, length);
        copy[n] = (char)(copy[n] ^ (1 << n % 8));
        if (wok_tokenizer_from_json(ctx, copy, length, NULL, &tokenizer) == WOK_OK) {
            cr_assert_eq(wok_encoding_create(tokenizer, &encoding), WOK_OK);
            cr_assert_eq(wok_tokenizer_encode(tokenizer, NULL, "Hello ab [MASK]", 15, "b", 1, encoding), WOK_OK);
        }
        close_tokenizer();
    }
}

/* ---- threads ------------------------------------------------------------------------------------------------------------------ */

static void *encode_in_thread(void *user) {
    wok_encoding *mine = NULL;
    const char *text = user;
    bool same = wok_encoding_create(tokenizer, &mine) == WOK_OK;
    for (int i = 0; i < 300 && same; i++) {
        same = wok_tokenizer_encode(tokenizer, NULL, text, strlen(text), NULL, 0, mine) == WOK_OK &&
               wok_encoding_size(mine) == wok_encoding_size(encoding) &&
               !memcmp(wok_encoding_ids(mine), wok_encoding_ids(encoding), 4 * wok_encoding_size(mine));
    }
    wok_encoding_free(&mine);
    return same ? user : NULL;
}

Test(tokenizer, many_threads_share_one_tokenizer) {
    use_bert();
    static char text[] = "Caf\xc3\xa9 na\xc3\xafve \xe5\x8c\x97\xe4\xba\xac "
                         "\xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82, unaffable [MASK]!";
    cr_assert_eq(wok_tokenizer_encode(tokenizer, NULL, text, strlen(text), NULL, 0, encoding), WOK_OK);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) cr_assert_eq(pthread_create(&threads[i], NULL, encode_in_thread, text), 0);
    for (int i = 0; i < 4; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        cr_assert_eq(result, text);
    }
}

/* ---- failing memory ------------------------------------------------------------------------------------------------------------- */

static long left, live;
static void *failing_alloc(void *user, size_t bytes, size_t alignment) {
    (void)user;
    if (left-- <= 0) return NULL;
    live++;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
static void failing_free(void *user, void *ptr, size_t bytes) {
    (void)user, (void)bytes;
    live--;
    free(ptr);
}

static wok_status load_and_encode(const char *json, size_t length) {
    static const char text[] = "Hello \xe4\xb8\xad caf\xc3\xa9 <x> h\xe0\xa3\xa3\xe0\xa3\x98\xe0\xa3\x99 [MASK]";
    const wok_encode_options options = {.size = sizeof options, .offsets = true, .pad_length = 40};
    wok_tokenizer *t = NULL;
    wok_encoding *e = NULL;
    wok_status status = wok_tokenizer_from_json(ctx, json, length, NULL, &t);
    if (status != WOK_OK) cr_assert_null(t);
    if (status == WOK_OK) status = wok_encoding_create(t, &e);
    if (status == WOK_OK) status = wok_tokenizer_encode(t, &options, text, strlen(text), "world", 5, e);
    wok_encoding_free(&e);
    wok_tokenizer_free(&t);
    return status;
}

Test(tokenizer_memory, every_allocation_may_fail) {
    static char json[20000];
    size_t length =
        write_json(json, sizeof json,
                   (struct parts){.added = ADDED(4, "[MASK]", "true", NO_FLAGS) "," ADDED(
                                      9, "<X>", "false",
                                      "\"single_word\":false,\"lstrip\":true,\"rstrip\":false,\"normalized\":true")});
    wok_allocator allocator = {failing_alloc, failing_free, NULL};
    wok_ctx_options options = {.size = sizeof options, .allocator = &allocator, .threads = 1};
    left = 1000;
    ctx = wok_ctx_create(&options);
    long before = live, failures = 0;
    for (long n = 0;; n++, failures++) {
        left = n;
        wok_status status = load_and_encode(json, length);
        cr_assert_eq(live, before, "allocation %ld leaks", n);
        if (status == WOK_OK) break;
        cr_assert_eq(status, WOK_ERR_MEMORY, "allocation %ld: %s", n, wok_status_name(status));
    }
    cr_assert_geq(failures, 20);
    left = 1000;
    wok_ctx_free(&ctx);
    cr_assert_eq(live, 0);
}

/* Once the buffers have grown, encoding allocates nothing. */
Test(tokenizer_memory, a_used_encoding_allocates_nothing) {
    wok_allocator allocator = {failing_alloc, failing_free, NULL};
    wok_ctx_options options = {.size = sizeof options, .allocator = &allocator, .threads = 1};
    static const char text[] = "hello \xe4\xb8\xad\xe4\xb8\xad caf\xc3\xa9";
    left = 1000;
    ctx = wok_ctx_create(&options);
    use_vocab(SPECIALS "hello\n", NULL);
    cr_assert_eq(wok_tokenizer_encode(tokenizer, NULL, text, strlen(text), text, strlen(text), encoding), WOK_OK);
    left = 0;
    for (int i = 0; i < 100; i++)
        cr_assert_eq(
            wok_tokenizer_encode(tokenizer, NULL, text, strlen(text), text, (size_t)i % strlen(text), encoding),
            WOK_OK);
    close_tokenizer();
    wok_ctx_free(&ctx);
    cr_assert_eq(live, 0);
}
