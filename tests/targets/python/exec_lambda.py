"""Code that is compiled at run time, lambdas and comprehensions."""

import sys

from snap import snap

CODE = compile("snap('E{<module> main} ~builtin_exec ~PyEval_EvalCode E{<module> snap} cap')", "<made here>", "exec")


def main():
    exec(CODE, {"snap": snap})
    (lambda: snap("E{<module> main main.<locals>.<lambda> snap} cap"))()
    if sys.version_info >= (3, 12):
        [snap("E{<module> main snap} cap") for _ in (1,)]
    else:
        [snap("E{<module> main main.<locals>.<listcomp> snap} cap") for _ in (1,)]


main()
