"""Scripts and styles without what only their readers need."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvreport.publish.browser import script
from kvreport.publish.compact import compact_script, compact_style


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("/* a */\n  const x = 1; // b\n", "const x=1;\n"),
        ('const a = "// no /* comment */";', 'const a="// no /* comment */";\n'),
        ("const b = 'it\\'s // one';", "const b='it\\'s // one';\n"),
        ("a = b ? .5 : - -c + +d; // e", "a=b?.5:- -c + +d;\n"),
        ("if (a in b) return (c) => { d(e, `f, { g }`); };", "if(a in b)return(c)=>{d(e,`f, { g }`);};\n"),
        ("const c = `a\n  // b ${f(`/* ${x} */`, {y: 1})}\n  z`; // d", "const c=`a\n  // b ${f(`/* ${x} */`,{y:1})}\n  z`;\n"),
        ("x = a / b; // c\ny = /[/\"]\\/'/g.test(z) / 2;", "x=a / b;\ny=/[/\"]\\/'/g.test(z)/ 2;\n"),
        ("return /\\/\\*/.test(s);", "return /\\/\\*/.test(s);\n"),
        ("f(() => {\n    g();\n\n\n    h()\n  });", "f(()=>{g();\nh()});\n"),
        ("const {\n  a,\n  b,\n} = c\n  .d(\n    e,\n  );\nlet f = [\n  1,\n];", "const{a,b,}=c.d(e,);\nlet f=[1,];\n"),
        ("a\n++b\n(c)\n- d", "a\n++b\n(c)\n- d\n"),
    ],
)  # fmt: skip
def test_comments_and_indentation_go_and_strings_stay(text: str, left: str) -> None:
    assert compact_script(text) == left
    assert compact_script(left) == left


def test_our_scripts_are_a_tenth_smaller_and_lose_no_code(repository: Path) -> None:
    texts = [path.read_text(encoding="utf-8") for path in (repository / "docs/assets").glob("kv*.js")]
    for text in [script(), *texts]:
        left = compact_script(text)
        assert len(left) < 0.95 * len(text)
        solid = left.replace(" ", "")
        # Whatever is no comment and no blank is still there, in its order.
        for line in text.splitlines():
            bare = line.strip()
            if bare and not bare.startswith(("/*", "//", "*")) and "/*" not in bare and "//" not in bare:
                assert bare.replace(" ", "") in solid or not _is_code(bare, text), bare


def _is_code(line: str, text: str) -> bool:
    """Whether a line stands outside the block comments."""
    before = text[: text.index(line)]
    return before.count("/*") == before.count("*/")


def test_styles_keep_their_rules() -> None:
    assert compact_style("/* a\n b */\n\n.x { color: red; }\n  .y { }\n") == ".x{color:red;}.y{}\n"
    kept = '.x :is(a, b):hover > p::after { content: "a; b, c"; margin: 0 calc(1rem - 2px) }'
    assert (
        compact_style(kept) == '.x :is(a,b):hover > p::after{content:"a; b, c";margin:0 calc(1rem - 2px)}\n'
    )
