#!/usr/bin/env python3
"""Compares `wok tokenize` with Hugging Face tokenizers on random texts: ids, type ids, offsets.

A tool, not part of the tests (it needs the peer): fuzz_tokenizer_peer.py WOK MODEL_DIR [--count N] [--seed S]
MODEL_DIR holds a tokenizer.json. Exit status 1 if anything differs; the first differences are printed.

Texts are drawn from words, accents in both forms, every Unicode block, controls, unusual spaces, added tokens, and long
runs. Offsets are compared only where NFD reorders nothing: the peer counts places there, wok follows the characters.
Besides the model's own tokenizer, variants of its tokenizer.json are compared: cased, accents kept, accents only,
no cleaning, no CJK, no normaliser, added tokens with every flag, BertProcessing, no post-processor.
"""
import argparse
import copy
import json
import os
import random
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer, normalizers

WORDS = ("the of and unaffable Café naïve résumé ÅNGSTRÖM İstanbul ıssız Straße ẞ ﬁ ﬂ Ǆ ǅ ΑΣΑΣ ΣΑΣ don't e.g. U.S.A. "
         "hello,world 3.14159 1,000,000 C++ [CLS] [SEP] [MASK] [mask] [PAD] [UNK] <tag> ##ing ##s 中国 日本語 カタカナ 한국어 "
         "Привет Ελλάδα עברית العربية हिन्दी ไทย 😊 👩‍👩‍👧 🏳️‍🌈 a\u0301 e\u0301\u0323 a\u0323\u0301 q\u0307\u0323 ﷺ Ⅷ ½ ²").split(" ")
SPACES = [" ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u2028", "\u3000", "\u200b", "\u00ad", "\x0b", "\x85", "\x00", ""]
BLOCKS = [(0x20, 0x7E), (0xA0, 0x24F), (0x250, 0x36F), (0x370, 0x52F), (0x530, 0x7FF), (0x800, 0x109F), (0x10A0, 0x1FFF),
          (0x2000, 0x2BFF), (0x2C00, 0x2FFF), (0x3000, 0x33FF), (0x3400, 0x9FFF), (0xA000, 0xABFF), (0xAC00, 0xD7FF),
          (0xE000, 0xFFFF), (0x10000, 0x11FFF), (0x12000, 0x1BFFF), (0x1B000, 0x1FFFF), (0x20000, 0x2FFFF),
          (0x2B700, 0x2B9FF), (0x300, 0x36F), (0x1DC0, 0x1DFF), (0x8D0, 0x8E3), (0xE0000, 0xE01FF), (0, 0x10FFFF)]


def char(rng):
    low, high = rng.choice(BLOCKS)
    while True:
        c = rng.randint(low, high)
        if not 0xD800 <= c < 0xE000:
            return chr(c)


def text(rng, extra):
    parts = []
    for _ in range(rng.choice([0, 1, 2, 5, 12, 40])):
        kind = rng.random()
        if kind < 0.35:
            parts.append(rng.choice(WORDS))
        elif kind < 0.45:
            parts.append(rng.choice(extra or WORDS))
        elif kind < 0.8:
            parts.append("".join(char(rng) for _ in range(rng.randint(1, 6))))
        elif kind < 0.9:
            low, high = rng.choice(BLOCKS)
            parts.append("".join(chr(rng.randint(low, min(high, low + 40))) for _ in range(rng.randint(2, 8))
                                 if not 0xD7D0 <= low <= 0xDFFF))
        elif kind < 0.92:
            parts.append(rng.choice("aé中#") * rng.choice([99, 100, 101, 150]))
        parts.append(rng.choice(SPACES) if rng.random() < 0.8 else "")
    return "".join(parts).encode("utf-8", "ignore").decode("utf-8")


def variants(base):
    """(name, tokenizer.json, texts of its added tokens)"""
    base["padding"] = base["truncation"] = None
    yield "as it is", base, []
    for name, change in (("cased", dict(lowercase=False)), ("accents kept", dict(strip_accents=False)),
                         ("cased, accents stripped", dict(lowercase=False, strip_accents=True)),
                         ("not cleaned", dict(clean_text=False)),
                         ("not cleaned, cased", dict(clean_text=False, lowercase=False)),
                         ("CJK together", dict(handle_chinese_chars=False))):
        one = copy.deepcopy(base)
        one["normalizer"].update(change)
        yield name, one, []
    one = copy.deepcopy(base)
    one["normalizer"] = None
    yield "no normaliser", one, []
    rng = random.Random(5)
    contents = ["<tag>", "foo bar", "Café", "É", "ab", "abc", "中国", "__x", "x1", "[NEW]", "ß", "🙂", "İx", "the", "-", "a b"]
    for round_ in range(4):
        one = copy.deepcopy(base)
        for i, content in enumerate(contents):
            flags = {k: rng.random() < 0.4 for k in ("special", "lstrip", "rstrip", "single_word", "normalized")}
            one["added_tokens"].append(dict(id=40000 + i, content=content, **flags))
        yield f"added tokens {round_}", one, contents + [c.upper() for c in contents] + [" " + c + " " for c in contents]
    one = copy.deepcopy(base)
    one["post_processor"] = {"type": "BertProcessing", "sep": ["[SEP]", 102], "cls": ["[CLS]", 101]}
    yield "BertProcessing", one, []
    one["post_processor"] = None
    yield "no post-processor", one, []


def request(rng, extra):
    r = {"text": text(rng, extra), "offsets": True}
    if rng.random() < 0.3:
        r["pair"] = text(rng, extra)
    if rng.random() < 0.3:
        r["max_length"] = rng.choice([3, 4, 5, 6, 7, 8, 12, 20, 33])
        r["truncation"] = rng.choice(["longest_first", "longest_first", "only_first", "only_second"])
    if rng.random() < 0.1:
        r["add_special_tokens"] = False
    return r


def peer(tokenizer, r):
    tokenizer.no_truncation()
    if "max_length" in r:
        tokenizer.enable_truncation(r["max_length"], strategy=r["truncation"])
    try:
        e = tokenizer.encode(r["text"], r.get("pair"), add_special_tokens=r.get("add_special_tokens", True))
    except Exception as error:  # the peer raises plain Exceptions
        return str(error)
    places = []
    for text_ in (r["text"], r.get("pair", "")):
        sizes = [0]
        for c in text_:
            sizes.append(sizes[-1] + len(c.encode()))
        places.append(sizes)
    spans = [[places[s][a], places[s][b]] if s is not None else [0, 0] for (a, b), s in zip(e.offsets, e.sequence_ids)]
    return {"ids": e.ids, "type_ids": e.type_ids, "offsets": spans}


def reorders(r):
    nfd = normalizers.NFD().normalize_str
    clean = normalizers.BertNormalizer(handle_chinese_chars=False, strip_accents=False, lowercase=False).normalize_str
    return any(nfd(t) != "".join(map(nfd, t)) for t in map(clean, (r["text"], r.get("pair", ""))))


def ask_wok(wok, folder, requests):
    lines = "".join(json.dumps(r) + "\n" for r in requests)
    done = subprocess.run([wok, "tokenize", folder, "--jsonl"], input=lines, text=True, capture_output=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return answers, done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wok")
    parser.add_argument("model")
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with open(os.path.join(args.model, "tokenizer.json"), encoding="utf-8") as file:
        base = json.load(file)
    all_variants, total, bad = list(variants(base)), 0, 0
    for name, tokenizer_json, extra in all_variants:
        tokenizer = Tokenizer.from_str(json.dumps(tokenizer_json))
        count = args.count // 2 if name == "as it is" else args.count // (2 * (len(all_variants) - 1))
        requests = [request(rng, extra) for _ in range(count)]
        wanted = [peer(tokenizer, r) for r in requests]
        # Where the peer refuses (too short to truncate that way), wok must too; such a line ends its run.
        good = [(r, w) for r, w in zip(requests, wanted) if not isinstance(w, str)]
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
                json.dump(tokenizer_json, file)
            answers, error = ask_wok(args.wok, folder, [r for r, _ in good])
            refused = [r for r, w in zip(requests, wanted) if isinstance(w, str)][:20]
            accepted = [r for r in refused if ask_wok(args.wok, folder, [r])[0]]
        different = {k: [(r, w[k], a[k]) for (r, w), a in zip(good, answers) if w[k] != a[k] and not (k == "offsets" and reorders(r))]
                     for k in ("ids", "type_ids", "offsets")}
        missing = len(good) - len(answers)
        wrong = sum(map(len, different.values())) + missing + len(accepted)
        print(f"{name}: {len(good)} texts, {sum(len(w['ids']) for _, w in good)} tokens, " +
              ", ".join(f"{len(v)} {k} differ" for k, v in different.items()) +
              f", {missing} missing {error.strip()}, {len(refused)} refusals checked, {len(accepted)} of them accepted")
        for key, cases in different.items():
            for r, want, got in cases[:2]:
                print(f"  {key}: {json.dumps(r)}\n    peer {want}\n    wok  {got}")
        total += len(requests)
        bad += wrong
    print(f"{total} texts, {bad} differences, seed {args.seed}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
