"""Writes docs/operators.md and docs/kernels.md from the .def files; with --check only says whether they are current.
usage: python3 tools/docs_tables.py [--check]"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LINE = re.compile(r"^WOK_OP\((\w+), \"([\w.]*)\", (\d+), (\d+), (\w+), (\w+)\)", re.M)


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def operators():
    rows = []
    for name, domain, first, last, _, implementations in LINE.findall(read("graph/ops.def")):
        if domain == "wok":
            continue  # made by rewrites, never in a file
        rows.append((domain, re.sub("^ms_", "", name), first, last, implementations))
    out = ["# Operators", "", "Made from `graph/ops.def` by `python3 tools/docs_tables.py`. A node of an operator set newer than the",
           "second number runs if the operator has not changed since. Operators that only wok's rewrites make are left out.", "",
           "| operator | domain | operator sets | implementations (`graph/ops`) |", "|---|---|---|---|"]
    for domain, name, first, last, implementations in sorted(rows):
        out.append(f"| {name} | {domain or 'ONNX'} | {first} - {last} | `wok_impls_{implementations}` |")
    out += ["", f"{len(rows)} operators.", ""]
    return "\n".join(out)


def kernels():
    out = ["# Kernels", "", "Made from `kernels/*/*.def` by `python3 tools/docs_tables.py`; best first, the reference last. `wok cpu` shows",
           "which of them this machine uses, `checkwok --bench` how they compare.", "",
           "| family | what it computes | variants |", "|---|---|---|"]
    for family, text in re.findall(r"^WOK_FAMILY\((\w+), \"([^\"]+)\"\)", read("kernels/wok_families.def"), re.M):
        variants = re.findall(r"^WOK_VARIANT\((\w+), (\w+)\)", read(f"kernels/{family}/{family}.def"), re.M)
        out.append(f"| `{family}` | {text} | " + ", ".join(f"`{symbol}`" for _, symbol in variants) + " |")
    return "\n".join(out + [""])


def main():
    stale = []
    for path, text in (("docs/operators.md", operators()), ("docs/kernels.md", kernels())):
        full = os.path.join(ROOT, path)
        if os.path.exists(full) and read(path) == text:
            continue
        stale.append(path)
        if "--check" not in sys.argv:
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)
    print("written: " + " ".join(stale) if stale and "--check" not in sys.argv else
          "not current: " + " ".join(stale) if stale else "docs tables: current")
    sys.exit(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    main()
