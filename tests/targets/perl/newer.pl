# What Perl has had since 5.36: `try` and `defer`.
use strict;
use feature qw(try defer);
no warnings;
my $one = 1;
try { cap(); die "tried\n" } catch ($e) { inner(1) }
{ defer { cap(); inner(1) } $one = 2; }
for my $n (1) { try { inner(1) } catch ($e) { 1 } defer { eval { cap() } } }
1;
