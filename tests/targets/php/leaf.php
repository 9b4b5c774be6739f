<?php
return fib(2); #--> fib
