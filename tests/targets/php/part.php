<?php
$part = fib(3); #--> fib
if (!function_exists('in_part')) { #--> function_exists
    function in_part(int $n): int
    {
        return fib($n) + (include __DIR__ . '/leaf.php'); #--> fib, {include}
    }
}
array_map(fn($n) => fib($n), [1, 2]); #--> array_map, {closure}, Value::{closure}, fib
return $part;
