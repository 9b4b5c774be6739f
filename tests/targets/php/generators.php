<?php
// Generators: resumed by functions in C and by loops, inside each other, left early.
require_once __DIR__ . '/cap.php';

function numbers(int $n)
{
    cap();
    for ($i = 0; $i < $n; $i++) {
        yield $i;
        cap();
    }
    return $n;
}

function delegates(int $n)
{
    cap();
    $result = yield from numbers($n);
    cap();
    yield $result;
}

function twice()
{
    yield from delegates(1);
    yield from [1, 2];
    cap();
    yield from new ArrayIterator([1]);
    cap();
}

function with_end()
{
    try {
        yield 1;
        yield 2;
    } finally {
        cap();
    }
}

function receives()
{
    while (true) {
        $x = yield;
        cap();
        if ($x === null) {
            return;
        }
    }
}

function catches()
{
    try {
        yield 1;
    } catch (RuntimeException $e) {
        cap();
        yield 2;
    }
}

final class Kind
{
    public function each()
    {
        yield 1;
        cap();
        yield from $this->inner();
    }

    private function inner()
    {
        yield 2;
        cap();
    }
}

foreach (numbers(2) as $x) {
    cap();
}
foreach (delegates(2) as $x) {
}
foreach (twice() as $x) {
}
iterator_to_array(twice(), false);
array_map(fn($x) => iterator_to_array(delegates(1), false), [1]);
foreach (with_end() as $x) {
    break;
}
unset($x);
$open = with_end();
$open->current();
unset($open);
$receives = receives();
$receives->send(1);
$receives->send(null);
$catches = catches();
$catches->current();
$catches->throw(new RuntimeException());
foreach ((new Kind())->each() as $x) {
}
$one = (fn() => yield from numbers(2))();
$two = (function () use ($one) {
    yield from $one;
})();
$three = (function () use ($one) {
    yield from $one;
})();
$two->current();
$three->current();
$two->next();
$three->next();
$two->next();
cap();
