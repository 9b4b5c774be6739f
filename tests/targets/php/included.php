<?php
cap();

function of_included(): void
{
    cap();
}
[1, 2][0] === 1 && array_map(fn($x) => cap(), [1]);
return 1;
