"""tests/lint finds what it is there to find: each offence, alone in a small tree, is named with its file and line."""

import shutil
import subprocess

import pytest

from lib.devserver import ROOT

OFFENCES = {
    "a higher layer": ("src/log.c", '/* One two three. */\n#include "denpyo/window.h"\n',
                       "src/log.c:2: base includes denpyo/window.h of the higher layer domain"),
    "another driver's library": ("src/window.c", "/* One two three. */\n#include <libpq-fe.h>\n",
                                 "src/window.c:2: libpq-fe.h may be included by"),
    "a driver in a pure module": ("src/retry.c", '/* One two three. */\n#include "denpyo/loop.h"\n',
                                  "src/retry.c:2: retry is to stay pure"),
    "an unknown module": ("src/stray.c", "/* One two three. */\n", "src/stray.c:1: module stray has no layer"),
    "a foreign prefix": ("src/log.c", "/* One two three. */\nint helper(void) {\n}\n",
                         "src/log.c:2: helper is exported without the prefix log_"),
    "a foreign macro": ("include/denpyo/log.h", "/* One two three. */\n#define MIN(a, b) 0\n",
                        "include/denpyo/log.h:2: MIN is exported"),
    "a long file": ("src/log.c", "/* One two three. */\n" + "\n" * 500, "src/log.c:500: 501 lines"),
    "a long header": ("include/denpyo/log.h", "/* One two three. */\n" + "\n" * 120, "log.h:120: 121 lines"),
    "a long C function": ("src/log.c", "/* One two three. */\nint log_x(void) {\n" + "    ;\n" * 59 + "}\n",
                          "src/log.c:2: log_x has 61 lines"),
    "a long Python function": ("tests/x.py", '"""One two three."""\ndef f():\n' + "    pass\n" * 60,
                               "tests/x.py:2: f has 61 lines"),
    "a long shell function": ("tests/x", "#!/bin/sh\n# One two three.\nf() {\n" + "    :\n" * 59 + "}\n",
                              "tests/x:3: f has 61 lines"),
    "no first sentence": ("schemas/0009_x.sql", "select 1;\n", "schemas/0009_x.sql:1: opens without"),
    "a name instead of a sentence": ("src/log.c", "/* log.c: */\n", "src/log.c:1: opens without"),
    "a borrowed sentence": ("src/log.c", "/* Clean and of its own. */\n", "opens with the sentence of"),
    "a stray top folder": ("lib/x.md", "x\n", "lib:1: does not belong"),
    "unfinished work": ("README.md", "x\n\nTO" + "DO: more\n", "README.md:3: unfinished"),
    "a registry": ("README.md", "https://pypi" + ".org/x\n", "README.md:1: names the registry"),
}


def lint(tree, files):
    subprocess.run(["git", "init", "-q", tree], check=True)
    for name, text in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    shutil.copy(ROOT / "tests" / "lint", tree / "tests" / "lint")
    return subprocess.run([tree / "tests" / "lint"], capture_output=True, text=True)


CLEAN = {
    "tests/clean.py": '"""Clean and of its own."""\n',
    "src/window.c": '/* Reads what pleases the lint. */\n#include "denpyo/log.h"\n\nstatic int helper;\n\n'
                    "int window_open(void) {\n    return helper;\n}\n",
}


def test_a_clean_tree_passes(tmp_path):
    done = lint(tmp_path, CLEAN)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(" passed, 0 failed\n")


@pytest.mark.parametrize("offence", OFFENCES)
def test_an_offence_is_named(tmp_path, offence):
    name, text, finding = OFFENCES[offence]
    done = lint(tmp_path, CLEAN | {name: text})
    assert done.returncode == 1, done.stdout
    assert finding in done.stdout
    assert done.stdout.endswith(" passed, 1 failed\n")
