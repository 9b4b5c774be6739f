# A program that is sampled at any place. `#--> NAME, ...` lists what a line may call: subs, and the functions in C
# through which they are called. A sub ends at its indentation's `}`; `lines` has five lines that cost the same.
use strict;
use warnings;
use List::Util qw(first any reduce sum max);
use Scalar::Util qw(blessed);
use Time::HiRes qw(clock);
my $seconds = $ENV{UU_TEST_SECONDS} || 1;

sub lines {
    my $n = shift;
    my ($a, $b, $c, $d, $e) = (1.5, 2.5, 3.5, 4.5, 5.5);
    for my $i (1 .. $n) {
        $a = $a * 0.5 + $b * 0.25;
        $b = $b * 0.5 + $c * 0.25;
        $c = $c * 0.5 + $d * 0.25;
        $d = $d * 0.5 + $e * 0.25;
        $e = $e * 0.5 + $a * 0.25;
    }
    return $a + $b + $c + $d + $e;
}

sub fib {
    my $n = shift;
    return $n if $n < 2;
    my $x = fib($n - 1); #--> main::fib
    my $y = fib($n - 2); #--> main::fib
    return $x + $y;
}

package Value;

use overload
    '""' => \&text,
    '<=>' => \&compare,
    '+' => \&plus,
    'bool' => sub { return 1 };

sub new {
    my ($class, $v) = @_;
    return bless { v => $v }, $class;
}

sub text {
    main::fib(2); #--> main::fib
    return 'v';
}

sub compare {
    my ($left, $right) = @_;
    return $left->{v} <=> $right->{v};
}

sub plus {
    my ($left, $right) = @_;
    return main::fib(3) + $left->{v}; #--> main::fib
}

our $AUTOLOAD;

sub AUTOLOAD {
    @_ = (3);
    goto &main::fib;
}

sub DESTROY {
    return;
}

package Ends;

sub new {
    return bless [], shift;
}

sub DESTROY {
    my $self = shift;
    main::fib(3); #--> main::fib
    my @some = map { main::fib($_) } 1, 2; #--> main::fib
    my $one = List::Util::first { main::fib($_) } 1, 2; #--> List::Util::first, Ends::__ANON__, main::fib
}

package Tied;

sub TIESCALAR {
    return bless [], shift;
}

sub FETCH {
    return main::fib(3); #--> main::fib
}

sub STORE {
    my ($self, $value) = @_;
    main::fib($value); #--> main::fib
}

package main;

sub leaves {
    my $n = shift;
    my $first = Ends->new; #--> Ends::new
    my $second = Ends->new; #--> Ends::new
    return fib($n); #--> main::fib, Ends::DESTROY
}

sub by_value {
    fib(2); #--> main::fib
    return $a <=> $b;
}

sub by_prototype($$) {
    my ($left, $right) = @_;
    return $left <=> $right;
}

sub recursive {
    my $n = shift;
    return fib(3) if $n == 0; #--> main::fib
    my @sorted = sort { recursive($n - 1); 0 } 1, 2; #--> main::recursive
    return 1;
}

sub alternating {
    my $n = shift;
    return fib(2) if $n == 0; #--> main::fib
    my $found = first { alternating($n - 1) || 1 } 1; #--> List::Util::first, main::__ANON__, main::alternating
    return 0;
}

sub sorts {
    my @numbers = map { ($_ * 7919) % 101 } 1 .. 20;
    my @sorted = sort { $a <=> $b } @numbers;
    @sorted = sort { my $x = $a % 7; my $y = $b % 7; $x <=> $y } @numbers;
    @sorted = sort {
        my $x = $a % 5;
        my $y = $b % 5;
        $x <=> $y
    } @numbers;
    @sorted = sort by_value 3, 1, 2; #--> main::by_value
    @sorted = sort by_prototype 3, 1, 2; #--> main::by_prototype
    @sorted = sort { fib($a) <=> fib($b) } 3, 1, 2; #--> main::fib
    @sorted = sort { my @deep = sort by_value 1, 2; $a <=> $b } 3, 1, 2; #--> main::by_value
    @sorted = sort { $a <=> $b } map { Value->new($_) } 3, 1, 2; #--> Value::new, Value::compare
    @sorted = sort map { "$_" } Value->new(1), Value->new(2); #--> Value::new, Value::text
    my @reversed = reverse sort { $b cmp $a } @numbers;
    recursive(3); #--> main::recursive
    return;
}

sub lists {
    my $found = first { $_ > 5 } 1 .. 8; #--> List::Util::first, main::__ANON__
    $found = first { fib($_) > 1 } 1 .. 4; #--> List::Util::first, main::__ANON__, main::fib
    $found = reduce { $a + $b } 1 .. 8; #--> List::Util::reduce, main::__ANON__
    $found = any { any { fib($_) } 1 } 1; #--> List::Util::any, main::__ANON__, main::fib
    $found = sum(1 .. 8); #--> List::Util::sum
    $found = sum(Value->new(1), Value->new(2)); #--> List::Util::sum, Value::new, Value::plus
    $found = max(map { fib($_) } 1, 2); #--> List::Util::max, main::fib
    $found = blessed(Value->new(3)); #--> Scalar::Util::blessed, Value::new
    alternating(3); #--> main::alternating
    return $found;
}

sub evals {
    my $n = eval { fib(3) }; #--> (eval), main::fib
    eval { fib(2); die "left\n" }; #--> (eval), main::fib
    eval { leaves(2); die "left\n" }; #--> (eval), main::leaves
    eval { my $end = Ends->new; die "left\n" }; #--> (eval), Ends::new, Ends::DESTROY
    eval { eval { die "inner\n" }; fib(2); die $@ }; #--> (eval), main::fib
    $n = eval 'fib(3)'; #--> (eval)
    my @sorted = sort { eval { die "x\n" }; eval { fib(2) }; 0 } 1, 2; #--> (eval), main::fib
    $n = first { eval { die "x\n" }; fib(2) } 1; #--> List::Util::first, main::__ANON__, (eval), main::fib
    return $n;
}

sub methods {
    my $one = Value->new(1); #--> Value::new
    my $text = "$one"; #--> Value::text
    my $sum = $one + 1; #--> Value::plus
    my $auto = Value->missing; #--> Value::AUTOLOAD, main::fib
    my $code = sub { my $x = shift; return fib($x) }; #--> main::fib
    $code->(3); #--> main::__ANON__
    &$code(2); #--> main::__ANON__
    tie my $tied, 'Tied'; #--> Tied::TIESCALAR
    $sum = $tied + 1; #--> Tied::FETCH
    $tied = 2; #--> Tied::STORE
    untie $tied;
    leaves(3); #--> main::leaves, Ends::DESTROY
    return $sum;
}

sub texts {
    my $text = 'abc' x 20;
    $text =~ s/(b)/fib(2) . $1/ge; #--> main::fib
    'abcabd' =~ /ab(?{ fib(2) })d/; #--> main::fib
    my @words = map { ucfirst } split /c/, $text;
    my $joined = join ',', @words;
    local $SIG{__WARN__} = sub { fib(2) }; #--> main::fib
    warn "a warning\n"; #--> main::__ANON__
    return length $joined;
}

sub all {
    lines(20); #--> main::lines
    fib(7); #--> main::fib
    sorts(); #--> main::sorts
    lists(); #--> main::lists
    evals(); #--> main::evals
    methods(); #--> main::methods
    texts(); #--> main::texts
    lines(300); #--> main::lines
    return;
}

my $end = clock() + $seconds; #--> Time::HiRes::clock
for (;;) {
    all(); #--> main::all
    last if clock() > $end; #--> Time::HiRes::clock
}
