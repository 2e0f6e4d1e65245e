"""A run with hostile names: markup, scripts, addresses, formulas, and very long text."""

from __future__ import annotations

from samples.simulator import Program

MARK = "tracekitPwned"
"""A property of `window` that any of the names would set if it were ever executed."""
NAMES = (
    f"<script>window.{MARK}=1</script>",
    f'<img src=x onerror="window.{MARK}=2">',
    f"<b>bold</b><a href='javascript:window.{MARK}=3'>press</a>",
    f"javascript:window.{MARK}=4",
    f'"><svg onload=window.{MARK}=5>',
    f"{{{{constructor.constructor('window.{MARK}=6')()}}}}",
    f"</script><script>window.{MARK}=7</script>",
    f"![x](javascript:window.{MARK}=8) <iframe src='javascript:window.{MARK}=9'></iframe>",
    "=cmd|' /C calc'!A0",
    "+1+1",
    "@SUM(A1:A9)",
    "-2+3",
    "n" * 5_000,
    "void at::native::" + "nested<" * 400 + ">" * 400 + "(float*)",
    "\u202eright to left\u202c \u0000\u0007 tab\tline\nend",
    "%s %d {0} ${x} `y` 'z' \\ / ../../etc/passwd?run=x&from=1#page",
)
ATTACK = f"<img src=x onerror=window.{MARK}=1>"
WORDS = ("lanes", "sort", "rank", "row", "q")
"""Such a value, and parameters of an address for it."""
INJECTED = f"""() => [
  ...document.querySelectorAll([
    '#page img[src="x"]', '[onerror]', '[onload]', 'iframe', 'a[href^="javascript" i]',
    'object', 'embed', '#page script', 'svg[onload]',
  ].join(",")),
  ...[...document.querySelectorAll("#page b")].filter((one) => one.textContent === "bold"),
].map((one) => one.outerHTML.slice(0, 200)).concat(window.{MARK} ? [`executed ${{window.{MARK}}}`] : [])"""
"""Finds elements of a page that a name became, and whether one was executed."""
LABEL = f'<img src=x onerror="window.{MARK}=10"> =1+1'


def program() -> Program:
    """Two steps in which ops, kernels, annotations, Python frames, data types and stacks have such names."""
    made = Program(device_name=NAMES[1])
    for _ in range(2):
        with made.step():
            for name in NAMES:
                with (
                    made.annotation(name),
                    made.python(name),
                    made.op(name, shapes=[[4], [4]], dtypes=[NAMES[0], "float"], **{"Call stack": name}),
                ):
                    made.allocate(512)
                    made.copy("H2D", 4_096)
                    made.kernel(name, 9_000)
                    made.kernel(name, 500)
            made.graph([(NAMES[0], 1_000), (NAMES[2], 2_000)])
            with made.annotation("Optimizer.zero_grad#" + NAMES[0]), made.op("aten::zero_"):
                made.memset(1_024, 900)
            made.synchronize()
    return made
