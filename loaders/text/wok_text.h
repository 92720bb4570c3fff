/* wok_text.h - from text to token ids, vectors and labels.
 *
 * The tokenizer is WordPiece as Hugging Face's BertTokenizerFast does it, id for id.
 *
 *   wok_tokenizer   vocabulary and rules, read from a model's folder. Immutable: any number of threads may encode.
 *   wok_encoding    one text, or a pair, as ids. Owned by the caller, grows and is reused. One thread at a time.
 *
 *   wok_tokenizer *tokenizer = NULL;  wok_encoding *encoding = NULL;
 *   wok_tokenizer_load(ctx, "minilm-l6", NULL, &tokenizer);
 *   wok_encoding_create(tokenizer, &encoding);
 *   wok_tokenizer_encode(tokenizer, NULL, "Hello, world!", 13, NULL, 0, encoding);
 *   const int32_t *ids = wok_encoding_ids(encoding);          [101 7592 1010 2088 999 102]
 *
 * Text is UTF-8 with a length; zero bytes in it are characters like any other. Bytes that are not UTF-8 count as U+FFFD
 * (one for each maximal part of a sequence, as Python's errors="replace"), which clean_text removes.
 *
 * Unicode. The answer is that of Hugging Face tokenizers 0.23, whose tables are frozen at Unicode 8 for accents and
 * punctuation, Unicode 9 for decompositions, and Unicode 17 for lower case: marks and punctuation signs younger than
 * that stay in their word. Differences from utf8proc's data are listed in unicode_peer.h, checked for every code point.
 *
 * Method: BertNormalizer (clean text, spaces round CJK characters, NFD and removal of accents, lower case), words at
 * white space and punctuation, then greedy longest match first (WordPiece; Wu et al. 2016, Devlin et al. 2018) on a
 * trie: time linear in the text.
 */
#ifndef WOK_TEXT_H
#define WOK_TEXT_H

#include "wok.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct wok_tokenizer wok_tokenizer;
typedef struct wok_encoding wok_encoding;

/* ---- loading ------------------------------------------------------------------------------------------------------ */

typedef enum wok_switch { WOK_AS_FILE = 0, WOK_ON = 1, WOK_OFF = 2 } wok_switch;

typedef struct wok_tokenizer_options {
    size_t size; /* sizeof(wok_tokenizer_options); zero means the default everywhere */
    wok_switch lowercase, strip_accents, handle_chinese_chars, clean_text; /* instead of what the files say */
} wok_tokenizer_options;

/* path: a model's folder (tokenizer.json, else vocab.txt; with tokenizer_config.json and special_tokens_map.json beside
 * them), or one such .json or .txt file alone. As in BertTokenizerFast, do_lower_case, strip_accents and
 * tokenize_chinese_chars of tokenizer_config.json win over tokenizer.json, unless its tokenizer_class is a general one
 * ("PreTrainedTokenizerFast"). strip_accents null means: as lowercase. The truncation and padding blocks of
 * tokenizer.json are ignored; wok_encode_options decide.
 *
 * From a vocab.txt the special tokens named in the configuration ([UNK] [CLS] [SEP] [PAD] [MASK] by default) are
 * recognised in text, as BertTokenizerFast does, and the frame is [CLS] A [SEP] B [SEP].
 *
 * Anything but WordPiece with a BertNormalizer and a BertPreTokenizer is refused: WOK_ERR_UNSUPPORTED, and the sentence
 * in wok_ctx_error names what it is. */
WOK_API wok_status wok_tokenizer_load(wok_ctx *ctx, const char *path, const wok_tokenizer_options *options,
                                      wok_tokenizer **tokenizer);
/* The same from the text of a tokenizer.json, or of a vocab.txt (one token a line, LF or CRLF, the id is the number of
 * the line; of a repeated token the last line counts). The bytes may be freed after the call. From a bare vocabulary no
 * special tokens are recognised in text (nothing names them), but it must hold [UNK], [CLS] and [SEP]. */
WOK_API wok_status wok_tokenizer_from_json(wok_ctx *ctx, const char *json, size_t bytes,
                                           const wok_tokenizer_options *options, wok_tokenizer **tokenizer);
WOK_API wok_status wok_tokenizer_from_vocab(wok_ctx *ctx, const char *lines, size_t bytes,
                                            const wok_tokenizer_options *options, wok_tokenizer **tokenizer);
/* Encodings of the tokenizer must have been freed. */
WOK_API void wok_tokenizer_free(wok_tokenizer **tokenizer);

/* One more than the highest id. */
WOK_API int32_t wok_tokenizer_size(const wok_tokenizer *tokenizer);
/* model_max_length of tokenizer_config.json; 0 if none is given. Not applied by itself: set max_length. */
WOK_API int32_t wok_tokenizer_max_length(const wok_tokenizer *tokenizer);
/* Id of a token as it stands in the vocabulary ("##ing"), added tokens included; -1 if there is none. */
WOK_API int32_t wok_tokenizer_id(const wok_tokenizer *tokenizer, const char *token, size_t length);
/* Text of an id, zero-terminated as well; NULL if there is none. `length` may be NULL. */
WOK_API const char *wok_tokenizer_token(const wok_tokenizer *tokenizer, int32_t id, size_t *length);
WOK_API int32_t wok_tokenizer_pad_id(const wok_tokenizer *tokenizer);

/* ---- encoding ----------------------------------------------------------------------------------------------------- */

typedef enum wok_truncation {
    WOK_LONGEST_FIRST = 0, /* the longer text loses tokens until both fit */
    WOK_ONLY_FIRST = 1,    /* an error if the first text is too short to lose that many */
    WOK_ONLY_SECOND = 2,
    WOK_DO_NOT_TRUNCATE = 3 /* max_length is ignored */
} wok_truncation;

typedef struct wok_encode_options {
    size_t size;               /* sizeof(wok_encode_options); zero means the default everywhere */
    bool no_special_tokens;    /* leave out [CLS] and [SEP] */
    bool specials_are_text;    /* "[SEP]" in the text is four words, not the token: for text of unknown origin.
                                  Default: the token, as tokenizer.json's added_tokens say and Hugging Face does.
                                  Added tokens that are not special stay recognised. */
    bool offsets;              /* record where every token stands in the text */
    int32_t max_length;        /* tokens at most, special ones included; 0: no limit */
    wok_truncation truncation; /* how max_length is kept: tokens are taken off the end */
    int32_t pad_length;        /* pad at the end to this many tokens; 0: do not */
    int32_t pad_multiple;      /* pad at the end to a multiple of this; 0: do not */
} wok_encode_options;

/* Bytes [begin, end) of the token's text. Where NFD has to reorder combining characters, spans follow the characters
 * (Hugging Face's follow places, so that a span may cover a neighbour there). */
typedef struct wok_text_span {
    uint32_t begin, end;
} wok_text_span;

WOK_API wok_status wok_encoding_create(const wok_tokenizer *tokenizer, wok_encoding **encoding);
WOK_API void wok_encoding_free(wok_encoding **encoding);

/* Encodes text, or text and pair (pair NULL: none; an empty pair is a pair). Options may be NULL. Texts hold at most
 * 1 GiB. Failure: WOK_ERR_MEMORY; WOK_ERR_LIMIT (text too long); WOK_ERR_ARGUMENT (max_length leaves no room for the
 * special tokens, only_second without a pair, too short to truncate that way); the encoding is empty then and
 * wok_encoding_error has the sentence. The encoding must be of this tokenizer. */
WOK_API wok_status wok_tokenizer_encode(const wok_tokenizer *tokenizer, const wok_encode_options *options,
                                        const char *text, size_t length, const char *pair, size_t pair_length,
                                        wok_encoding *encoding);

/* A request in JSON, as `wok tokenize --jsonl` and servers get it: {"text": "...", "pair": "...", "max_length": 12,
 * "truncation": "longest_first" | "only_first" | "only_second" | "do_not_truncate" | true | false,
 * "add_special_tokens": true, "offsets": false}. Only "text" is needed. As in transformers: max_length alone truncates
 * longest first, truncation alone at the tokenizer's own maximum. Unknown members and wrong types are errors
 * (WOK_ERR_FORMAT). */
WOK_API wok_status wok_tokenizer_encode_json(const wok_tokenizer *tokenizer, const char *json, size_t bytes,
                                             wok_encoding *encoding);

/* Of the last call that encoded, valid until the next one. Arrays of wok_encoding_size elements. */
WOK_API size_t wok_encoding_size(const wok_encoding *encoding);
WOK_API const int32_t *wok_encoding_ids(const wok_encoding *encoding);
/* 0 for the first text and its frame, 1 for the second. Padding: 0. */
WOK_API const int32_t *wok_encoding_type_ids(const wok_encoding *encoding);
/* 1 for tokens, 0 for padding. */
WOK_API const int32_t *wok_encoding_attention_mask(const wok_encoding *encoding);
/* NULL unless options->offsets. Special tokens of the frame and padding: 0, 0. */
WOK_API const wok_text_span *wok_encoding_offsets(const wok_encoding *encoding);
/* Did tokens fall off? */
WOK_API bool wok_encoding_truncated(const wok_encoding *encoding);
WOK_API const char *wok_encoding_error(const wok_encoding *encoding);

/* ---- pipelines: text in, vectors or probabilities out ------------------------------------------------------------- */

/* A model with its tokenizer. One thread at a time; wok_text_clone makes another that shares model and tokenizer.
 *
 *   wok_text *pipeline = NULL;
 *   wok_text_load(ctx, "minilm-l6", WOK_TEXT_EMBED, NULL, &pipeline);
 *   float *vectors = malloc(2 * wok_text_width(pipeline) * sizeof *vectors);
 *   wok_text_run(pipeline, (wok_text_item[]){{"a cat", 5}, {"a dog", 5}}, 2, vectors);
 */
typedef struct wok_text wok_text;

typedef enum wok_text_task {
    WOK_TEXT_EMBED = 0,   /* a vector a text */
    WOK_TEXT_CLASSIFY = 1 /* a probability a label */
} wok_text_task;

typedef struct wok_text_options {
    size_t size;            /* sizeof(wok_text_options); zero means the default everywhere */
    int batch;              /* texts that run together; 0: 32. Changes time and memory, never a bit of the result */
    int32_t max_length;     /* tokens at most instead of what the files say; 0: as they say */
    bool specials_are_text; /* as in wok_encode_options */
} wok_text_options;

/* path: a Hugging Face folder (config.json, model.safetensors), or an .onnx file, or a folder with model.onnx or
 * onnx/model.onnx in place of model.safetensors. Tokenizer and configuration lie in that folder, beside the .onnx file,
 * or, if there are none, in the folder above it.
 *
 * Inputs are recognised by name (input_ids, attention_mask, token_type_ids, position_ids and their usual other names; a
 * single input of any name is the ids) and are given only where the model has them, as int64, int32 or float32. Fixed
 * batch and sequence sizes are kept by padding. Texts are cut to the smallest of: options->max_length, or
 * sentence_bert_config.json's max_seq_length, or the tokenizer's model_max_length; the position table; a fixed sequence.
 *
 * EMBED pools the last hidden states as modules.json and the Pooling module's config.json say (cls, max, mean, mean by
 * the square root of the length; several are concatenated in this order; other modules are refused) and scales to
 * length 1 only if there is a Normalize module. Without modules.json: mean, not scaled. A model whose only float output
 * has rank 2 gives its vectors itself. CLASSIFY takes the logits through a softmax, or a sigmoid for
 * "multi_label_classification" and for one label, as transformers' pipeline does; "regression" leaves them alone. */
WOK_API wok_status wok_text_load(wok_ctx *ctx, const char *path, wok_text_task task, const wok_text_options *options,
                                 wok_text **pipeline);
/* Another pipeline for another thread. The model stays until the last of them is freed. */
WOK_API wok_status wok_text_clone(const wok_text *pipeline, wok_text **clone);
WOK_API void wok_text_free(wok_text **pipeline);

/* Numbers that a text gets: elements of its vector, or labels. */
WOK_API size_t wok_text_width(const wok_text *pipeline);
/* Label of number i, from config.json's id2label, else "LABEL_i"; NULL outside the range or for EMBED. */
WOK_API const char *wok_text_label(const wok_text *pipeline, size_t index);
/* Tokens at most, special ones included; 0: nothing limits them. */
WOK_API int32_t wok_text_max_length(const wok_text *pipeline);
/* Owned by the pipeline and its clones. */
WOK_API wok_model *wok_text_model(const wok_text *pipeline);
WOK_API const wok_tokenizer *wok_text_tokenizer(const wok_text *pipeline);

typedef struct wok_text_item {
    const char *text;
    size_t length;
    const char *pair; /* NULL: none */
    size_t pair_length;
} wok_text_item;

/* out: [count, width]. The numbers of a text do not depend on the others, on their order, or on the batch size: the same
 * bits as alone. On failure `out` is undefined and wok_text_error has the sentence; the pipeline stays usable. */
WOK_API wok_status wok_text_run(wok_text *pipeline, const wok_text_item *items, size_t count, float *out);
WOK_API const char *wok_text_error(const wok_text *pipeline);

#ifdef __cplusplus
}
#endif
#endif
