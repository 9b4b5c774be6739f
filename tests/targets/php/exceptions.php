<?php
// What runs while an exception is on its way, and after it was caught.
require_once __DIR__ . '/cap.php';

final class Ends
{
    public function __destruct()
    {
        cap();
    }
}

function raises(): never
{
    throw new RuntimeException('x');
}

function ensures(callable $f): void
{
    try {
        $f();
    } finally {
        cap();
    }
}

function leaves(): void
{
    $ends = new Ends();
    raises();
}

function leaves_nested(): void
{
    $ends = new Ends();
    array_map(function ($x) {
        $inner = new Ends();
        leaves();
    }, [1]);
}

function returns(): int
{
    try {
        return 1;
    } finally {
        cap();
    }
}

function deep(int $n): void
{
    $n === 0 ? raises() : array_map(fn($m) => deep($m), [$n - 1]);
}

foreach (['raises', 'leaves', 'leaves_nested', fn() => ensures('raises'), fn() => deep(5)] as $f) {
    try {
        $f();
    } catch (RuntimeException $e) {
        cap();
    }
    unset($e);
}
returns();
try {
    intdiv(1, 0);
} catch (DivisionByZeroError $e) {
    cap();
}
if (PHP_VERSION_ID >= 80000) {
    try {
        strlen();
    } catch (ArgumentCountError $e) {
        cap();
    }
}
final class Message extends Exception
{
    public function __construct()
    {
        parent::__construct('m');
        cap();
    }
}
try {
    throw new Message();
} catch (Message $e) {
    array_map(fn($x) => cap(), [1]);
}
try {
    (function () {
        try {
            raises();
        } finally {
            ensures(fn() => 1);
        }
    })();
} catch (RuntimeException $e) {
    cap();
}
set_exception_handler(function ($e) {
    cap();
    exit(0);
});
register_shutdown_function(function () {
    cap();
});
deep(2);
