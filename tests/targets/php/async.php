<?php
// A program that is sampled at any place. `#--> NAME, ...` lists what a line may call: PHP code, and the functions in C
// through which it is called. A function ends at its indentation's `}`; `lines` has five lines that cost the same.
$seconds = (float) (getenv('UU_TEST_SECONDS') ?: 1); #--> getenv

function lines(int $n): float
{
    $a = 1.5; $b = 2.5; $c = 3.5; $d = 4.5; $e = 5.5; $i = 0;
    while ($i < $n) {
        $a = $a * 0.5 + $b * 0.25;
        $b = $b * 0.5 + $c * 0.25;
        $c = $c * 0.5 + $d * 0.25;
        $d = $d * 0.5 + $e * 0.25;
        $e = $e * 0.5 + $a * 0.25;
        $i++;
    }
    return $a + $b + $c + $d + $e;
}

function fib(int $n): int
{
    if ($n < 2) {
        return $n;
    }
    $x = fib($n - 1); #--> fib
    $y = fib($n - 2); #--> fib
    return $x + $y;
}

final class Value implements ArrayAccess, Countable
{
    public static int $made = 0;

    public int $v;

    public function __construct(int $v)
    {
        $this->v = $v;
        self::$made++;
    }

    public static function make(int $v): self
    {
        return new self($v); #--> Value::__construct
    }

    public static function many(int $n): array
    {
        return array_map([self::class, 'make'], range(1, $n)); #--> array_map, range, Value::make
    }

    public function compare(Value $other): int
    {
        return $this->v <=> $other->v;
    }

    public function __toString(): string
    {
        fib(2); #--> fib
        return 'v';
    }

    public function __call($name, $arguments)
    {
        fib(3); #--> fib
    }

    public static function __callStatic($name, $arguments)
    {
        fib(3); #--> fib
    }

    public function __get($name)
    {
        return fib(3); #--> fib
    }

    public function __invoke(int $n): int
    {
        return fib($n); #--> fib
    }

    public function count(): int
    {
        return fib(2); #--> fib
    }

    #[\ReturnTypeWillChange]
    public function offsetGet($at)
    {
        return fib($at); #--> fib
    }

    public function offsetSet($at, $value): void
    {
        fib(2); #--> fib
    }

    public function offsetExists($at): bool
    {
        return fib(2) > 0; #--> fib
    }

    public function offsetUnset($at): void
    {
        fib(2); #--> fib
    }
}

final class Ends
{
    public function __destruct()
    {
        fib(3); #--> fib
        array_map(fn($n) => fib($n), [1, 2]); #--> array_map, {closure}, Ends::{closure}, fib
    }
}

function leaves(int $n): int
{
    $first = new Ends(); #--> Ends::__destruct
    $second = new Ends(); #--> Ends::__destruct
    return fib($n); #--> fib, Ends::__destruct
}

function recursive(int $n): int
{
    if ($n === 0) {
        return fib(3); #--> fib
    }
    return array_sum(array_map(fn($m) => recursive($m), [$n - 1])); #--> array_sum, array_map, {closure}, recursive
}

function closures(int $n): void
{
    array_map(function ($x) { fib(3); }, [1, 2]); #--> array_map, {closure}, fib
    array_map('fib', [1, 2, 3]); #--> array_map, fib
    $three = [3, 1, 2];
    usort($three, fn($a, $b) => fib($a) <=> $b); #--> usort, {closure}, fib
    array_walk($three, function ($x) { array_filter([1], fn($y) => fib($y)); }); #--> array_walk, {closure}, array_filter, fib
    preg_replace_callback('/./', fn($m) => (string) fib(2), 'abc'); #--> preg_replace_callback, {closure}, fib
    call_user_func('fib', 3); #--> call_user_func, fib
    call_user_func_array('fib', [3]); #--> call_user_func_array, fib
    $f = function ($x) { return fib($x); }; #--> fib
    $f(3); #--> {closure}
    recursive(4); #--> recursive
    array_sum(array_map('strlen', ['a', 'bb'])); #--> array_sum, array_map, strlen
    strrev(str_repeat('ab', 300)); #--> strrev, str_repeat
    leaves(3); #--> leaves, Ends::__destruct
    array_map('leaves', [1, 2]); #--> array_map, leaves, Ends::__destruct
}

function methods(): void
{
    $a = Value::make(1); #--> Value::make
    $b = new Value(2); #--> Value::__construct
    Value::many(3); #--> Value::many
    $a->compare($b); #--> Value::compare
    $text = "$a $b"; #--> Value::__toString
    $a->unknown(1); #--> Value::__call
    Value::unknown(1); #--> Value::__callStatic
    $a->field; #--> Value::__get
    $a(3); #--> Value::__invoke
    count($a); #--> count, Value::count
    $a[3]; #--> Value::offsetGet
    $a[3] = 4; #--> Value::offsetSet
    isset($a[3]); #--> Value::offsetExists
    unset($a[3]); #--> Value::offsetUnset
    array_map([$a, 'unknown'], [1]); #--> array_map, Value::__call
    array_map($a, [1, 2]); #--> array_map, Value::__invoke
    call_user_func([$a, 'compare'], $b); #--> call_user_func, Value::compare
    implode(',', [$a, $b]); #--> implode, Value::__toString
    eval('fib(3);'); #--> {eval}
    include __DIR__ . '/part.php'; #--> {include}
    in_part(2); #--> in_part
}

function counts(int $n)
{
    for ($i = 0; $i < $n; $i++) {
        fib(2); #--> fib
        yield $i;
    }
    return fib(3); #--> fib
}

function delegates(int $n)
{
    fib(2); #--> fib
    // With opcache, PHP has the line of the next opcode while another generator runs.
    $x = yield from counts($n); #--> counts
    fib(2); #--> fib, counts
    yield $x;
}

function generators(): void
{
    foreach (counts(3) as $x) { #--> counts
        fib(2); #--> fib
    }
    foreach (delegates(2) as $x) { #--> delegates, counts
        fib(2); #--> fib
    }
    iterator_to_array(delegates(2), false); #--> delegates, iterator_to_array, counts
    $g = counts(2); #--> counts
    while ($g->valid()) { #--> Generator::valid, counts
        $g->next(); #--> Generator::next, counts
    }
    $g->getReturn(); #--> Generator::getReturn
}

function raises(int $n): void
{
    $ends = new Ends(); #--> Ends::__destruct
    if ($n === 0) {
        throw new ArgumentCountError('x'); #--> Exception::__construct, Error::__construct, Ends::__destruct
    }
    array_map('raises', [$n - 1]); #--> array_map, raises, Ends::__destruct
}

function exceptions(): void
{
    try {
        raises(3); #--> raises, Ends::__destruct
    } catch (ArgumentCountError $e) {
        fib(3); #--> fib
    } finally {
        fib(2); #--> fib
    }
    try {
        intdiv(1, 0); #--> intdiv
    } catch (DivisionByZeroError $e) {
        fib(2); #--> fib
    }
}

function garbage(int $n): void
{
    for ($i = 0; $i < $n; $i++) {
        $a = new stdClass();
        $a->self = $a;
        $b = [$i, str_repeat('a', 20), [$i => (string) $i]]; #--> str_repeat
    }
}

function all(): void
{
    lines(400); #--> lines
    closures(3); #--> closures
    methods(); #--> methods
    generators(); #--> generators
    exceptions(); #--> exceptions
    garbage(40); #--> garbage
}

function now(): float
{
    return array_sum(array_intersect_key(getrusage(), ['ru_utime.tv_sec' => 1, 'ru_stime.tv_sec' => 1])) #--> array_sum, array_intersect_key, getrusage
        + array_sum(array_intersect_key(getrusage(), ['ru_utime.tv_usec' => 1, 'ru_stime.tv_usec' => 1])) / 1e6; #--> array_sum, array_intersect_key, getrusage
}

$start = now(); #--> now
while (now() - $start < $seconds) { #--> now
    all(); #--> all
}
