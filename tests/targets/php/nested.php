<?php
// Functions, methods, closures and functions in C that call each other.
namespace Outer;

use function cap;

require_once __DIR__ . '/cap.php';

trait Mixed_
{
    public function mixed(): void
    {
        cap();
    }

    public static function mixedStatic(): void
    {
        cap();
    }
}

abstract class Base implements \Countable, \IteratorAggregate, \ArrayAccess
{
    public function inherited(): void
    {
        cap();
    }

    public function getIterator(): \Iterator
    {
        cap();
        return new \ArrayIterator([1]);
    }
}

final class Kind extends Base
{
    use Mixed_ {
        mixed as alias;
    }

    public function __construct()
    {
        cap();
    }

    public function plain(): void
    {
        cap();
    }

    public static function still(): void
    {
        cap();
    }

    public static function later(): void
    {
        static::still();
    }

    public function closure(): \Closure
    {
        return function () {
            cap();
        };
    }

    public function inC(): void
    {
        \array_map([$this, 'called'], [1]);
        \usort($GLOBALS['three'], fn($a, $b) => cap() ?? $a <=> $b);
        \array_walk($GLOBALS['three'], function ($x) {
            \array_map(fn($y) => cap(), [1]);
        });
    }

    public function called($x): void
    {
        cap();
    }

    public function __call($name, $arguments)
    {
        cap();
    }

    public static function __callStatic($name, $arguments)
    {
        cap();
    }

    public function __get($name)
    {
        cap();
    }

    public function __toString(): string
    {
        cap();
        return '';
    }

    public function __invoke($x)
    {
        cap();
    }

    public function count(): int
    {
        cap();
        return 1;
    }

    #[\ReturnTypeWillChange]
    public function offsetGet($at)
    {
        cap();
        return 1;
    }

    public function offsetSet($at, $value): void
    {
        cap();
    }

    public function offsetExists($at): bool
    {
        cap();
        return true;
    }

    public function offsetUnset($at): void
    {
        cap();
    }
}

final class Ends
{
    public function __destruct()
    {
        cap();
    }
}

function recursive(int $n): void
{
    $n === 0 ? cap() : recursive($n - 1);
}

function through(int $n): void
{
    $n === 0 ? cap() : \array_map(fn($m) => through($m), [$n - 1]);
}

function leaves(): void
{
    $ends = new Ends();
    $other = new Ends();
}

function over_lines($a, $b): int
{
    cap();
    return 1;
}

function name($x)
{
    cap();
    return true;
}

$three = [3, 1, 2];
$kind = new Kind();
$kind->plain();
Kind::still();
Kind::later();
$kind->closure()();
$kind->inC();
// The runtime of 7.4 looks the other name up for backtraces; the function has its own.
PHP_VERSION_ID >= 80000 && $kind->alias();
$kind->mixed();
Kind::mixedStatic();
$kind->inherited();
$kind->unknown();
Kind::unknownStatic();
$kind->unknownField;
"$kind";
$kind(1);
\count($kind);
$kind[1];
$kind[1] = 2;
isset($kind[1]);
unset($kind[1]);
foreach ($kind as $x) {
}
\array_map([$kind, 'unknown'], [1]);
\array_map('Outer\Kind::still', [1]);
\array_map($kind, [1]);
\call_user_func([$kind, 'plain']);
\call_user_func_array('Outer\recursive', [2]);
\array_filter([1], 'Outer\name');
\preg_replace_callback('/./', function ($match) {
    cap();
    return '';
}, 'ab');
(new \ReflectionMethod($kind, 'plain'))->invoke($kind);
(new \ReflectionFunction('Outer\recursive'))->invoke(1);
\Closure::fromCallable([$kind, 'called'])(1);
\Closure::fromCallable([$kind, 'unknown'])(1);
recursive(20);
through(10);
leaves();
if (PHP_VERSION_ID >= 80100) {
    include __DIR__ . '/defaults.php';
    by_default();
}
new Ends();
$ends = new Ends();
$ends = null;
over_lines(
    over_lines(1, 2),
    over_lines(
        3,
        4,
    ),
);
$anonymous = new class extends Base {
    public function count(): int
    {
        cap();
        return 0;
    }

    #[\ReturnTypeWillChange]
    public function offsetGet($at)
    {
        return 0;
    }

    public function offsetSet($at, $value): void
    {
    }

    public function offsetExists($at): bool
    {
        return true;
    }

    public function offsetUnset($at): void
    {
    }
};
\count($anonymous);
$anonymous->inherited();
eval('cap();');
eval("function evaluated() {\n cap();\n}\n evaluated();");
\array_map(fn($x) => eval('\array_map(fn($y) => cap(), [1]);'), [1]);
include __DIR__ . '/included.php';
of_included_again();
\spl_autoload_register(function ($class) {
    cap();
    eval('class Loaded { public static function made() { cap(); } }');
});
\Loaded::made();
\set_error_handler(function ($number, $text) {
    cap();
    return true;
});
$x = $undefined + 1;
\trigger_error('x');
function of_included_again(): void
{
    \of_included();
}
\ob_start(function ($text) {
    return $text;
});
echo 'x';
\ob_end_clean();
\iterator_to_array(new \CallbackFilterIterator(new \ArrayIterator([1]), fn($x) => cap() ?? true));
\register_shutdown_function(function () {
    cap();
    recursive(1);
});
$GLOBALS['last'] = new Ends();
cap();
