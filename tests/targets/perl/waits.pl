# Waits in a comparator of a comparator, until its input ends.
use strict;
use warnings;
use List::Util qw(first);
$| = 1;

package Kind;
sub waits { print "ready\n"; my $line = <STDIN>; return 1 }
sub by_waiting { return waits() }

package main;
sub sorts { my @sorted = sort Kind::by_waiting 1, 2; return 1 }
sub finds { return first { sorts() } 1 }
eval { finds() };
