#!/usr/bin/env python3
"""Writes loaders/text/unicode_peer.h: where Hugging Face tokenizers' frozen Unicode tables differ from today's Unicode.

A tool, not a test. Needs: tokenizers, regex (its Unicode version should be the newest), and nothing of wok.
Usage: gen_unicode_peer.py > loaders/text/unicode_peer.h

BertNormalizer and BertPreTokenizer ask crates with old category tables, so a mark or a punctuation sign that is younger
than those is an ordinary letter to them. Every code point is put to the peer; where the answer differs from the general
category in this Python's `unicodedata` or in `regex`, an override is written. Overrides are merged into ranges across
code points for which they are right as well.
"""
import sys
import unicodedata
import regex
import tokenizers
from tokenizers import normalizers, pre_tokenizers

CLEAN = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
STRIP = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
LOWER = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=True)
NFD = normalizers.NFD()
SPLIT = pre_tokenizers.BertPreTokenizer()
SPACES = {9, 10, 11, 12, 13, 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CLASSES = [("DROP", regex.compile(r"[\p{Cc}\p{Cf}\p{Co}]")), ("MARK", regex.compile(r"\p{Mn}")),
           ("PUNCT", regex.compile(r"\p{P}"))]


def peer_class(c):
    char = chr(c)
    if CLEAN.normalize_str("a" + char + "b") == "ab":
        return "DROP"
    if STRIP.normalize_str("a" + char) == "a":
        return "MARK"
    words = [w for w, _ in SPLIT.pre_tokenize_str("a" + char + "b")]
    return "PUNCT" if words == ["a", char, "b"] else "OTHER"


def new_class(c):
    return next((name for name, pattern in CLASSES if pattern.match(chr(c))), "OTHER")


def old_class(c):
    category = unicodedata.category(chr(c))
    return ("DROP" if category in ("Cc", "Cf", "Co") else "MARK" if category == "Mn" else
            "PUNCT" if category[0] == "P" else "OTHER")


def peer_reorders(c):
    """Does the peer know a combining class above 1 for this code point?"""
    return NFD.normalize_str("a" + chr(c) + "\u0334") == "a\u0334" + chr(c)


def combines(c):
    return not regex.match(r"\p{ccc=0}", chr(c)) and not regex.match(r"\p{ccc=1}", chr(c))


def overrides():
    """(needed kind or None, kinds that would be right) for every code point."""
    needed, right = {}, {}
    for c in CODES:
        if c < 128 or c in SPACES or c == 0xFFFD:  # handled by rule
            continue
        want = peer_class(c)
        plain = NFD.normalize_str(chr(c)) == chr(c)
        starter = plain and combines(c) and not peer_reorders(c)
        kind = want if want != "OTHER" else "STARTER" if starter or not combines(c) else "OTHER"
        right[c] = {kind} | ({"OTHER"} if want == "OTHER" and not starter else set())
        if {new_class(c), old_class(c)} != {want} and (unicodedata.category(chr(c)) != "Cn" or new_class(c) != want):
            needed[c] = kind
        if starter:
            needed[c] = "STARTER"
    return needed, right


def merge(needed, right):
    ranges = []
    for c in sorted(needed):
        if ranges and ranges[-1][2] == needed[c] and all(
                needed[c] in right.get(x, ()) for x in range(ranges[-1][1] + 1, c)):
            ranges[-1][1] = c
        else:
            ranges.append([c, c, needed[c]])
    return ranges


def lower_ranges():
    """Lower-case pairs that Unicode 15 (utf8proc 2.8) does not have yet: younger than this Python's tables."""
    ranges = []
    for c in CODES:
        low = LOWER.normalize_str(chr(c))
        if len(low) == 1 and low != chr(c) and chr(c).lower() == chr(c):
            delta = ord(low) - c
            if ranges and ranges[-1][1] == c - 1 and ranges[-1][2] == delta:
                ranges[-1][1] = c
            else:
                ranges.append([c, c, delta])
    return ranges


def table(name, kind, comment, rows):
    print(f"/* {comment} */\nstatic const struct {kind} {name}[] = {{")
    for i in range(0, len(rows), 4):
        print("    " + " ".join("{" + row + "}," for row in rows[i:i + 4]))
    print("};\n")


def word_ranges():
    r"""\w of the peer's regular expressions among code points that this Python's tables do not have yet."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0}, unk_token="?"))
    tokenizer.add_tokens([tokenizers.AddedToken("ab", single_word=True, normalized=False)])
    ranges = []
    for c in CODES:
        if unicodedata.category(chr(c)) == "Cn" and len(tokenizer.encode(chr(c) + "ab").ids) == 1:
            if ranges and ranges[-1][1] == c - 1:
                ranges[-1][1] = c
            else:
                ranges.append([c, c])
    return ranges


def main():
    needed, right = overrides()
    print(f"""/* unicode_peer.h - where Hugging Face tokenizers' Unicode tables differ from today's Unicode.
 * Written by tests/gen_unicode_peer.py from tokenizers {tokenizers.__version__}; do not edit. Included by unicode.c only.
 */
""")
    table("peer_classes", "peer_class", "Class of code points as the peer sees them; ascending. STARTER: OTHER, and "
          "combining class 0.", ["0x%X, 0x%X, PEER_%s" % tuple(r) for r in merge(needed, right)])
    table("peer_lower", "peer_lower", "Lower-case pairs younger than Unicode 14: first, last, what to add.",
          ["0x%X, 0x%X, %d" % tuple(r) for r in lower_ranges()])
    table("peer_word", "peer_range", "Letters, marks and digits younger than Unicode 14; ascending.",
          ["0x%X, 0x%X" % tuple(r) for r in word_ranges()])
    # Decompositions younger than the peer's table. Unicode 13: U+11938; Unicode 16: the rest.
    young = [0x105C9, 0x105E4, 0x11383, 0x11385, 0x1138E, 0x11391, 0x113C5, 0x113C7, 0x113C8, 0x11938,
             *range(0x16121, 0x16129), *range(0x16D68, 0x16D6B)]
    assert all(NFD.normalize_str(chr(c)) == chr(c) for c in young)
    runs = []
    for c in young:
        if runs and runs[-1][1] == c - 1:
            runs[-1][1] = c
        else:
            runs.append([c, c])
    table("peer_whole", "peer_range", "Never decomposed by the peer.", ["0x%X, 0x%X" % tuple(r) for r in runs])


if __name__ == "__main__":
    sys.exit(main())
