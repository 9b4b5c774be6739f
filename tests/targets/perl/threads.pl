# Threads, each of which has an interpreter of its own; what `caller` says ends at the eval that a thread begins with.
use strict;
use warnings;
use threads;
use FindBin qw($Bin);
require "$Bin/cap.pl";

sub inner { my $n = shift; return $n ? inner($n - 1) : cap() }
sub by_number { cap() if $a == 2; return $a <=> $b }

sub run {
    my $n = shift;
    $Capture::has_main = 0;
    inner($n);
    my @sorted = sort by_number 3, 2, 1;
    eval { inner(1); die "no\n" };
    eval 'inner(2)';
    return $n;
}

inner(1);
for my $n (1 .. 3) {
    my $thread = threads->create(\&run, $n);
    $thread->join;
}
threads->create(sub { run(4); threads->create('run', 5)->join })->join;
inner(2);
