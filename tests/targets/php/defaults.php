<?php
// Arguments that are made by code (8.1).
namespace Outer;

use function cap;

function by_default($x = new Ends(), ...$rest): void
{
    cap();
}
