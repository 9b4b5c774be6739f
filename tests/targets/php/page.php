<?php
// A page of a web server.

final class Page
{
    public function render(): array
    {
        return array_map(fn($n) => self::fib($n), [24, 25]);
    }

    private static function fib(int $n): int
    {
        return $n < 2 ? $n : self::fib($n - 1) + self::fib($n - 2);
    }
}

echo implode(',', (new Page())->render());
