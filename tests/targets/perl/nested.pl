# Every way in which Perl code calls Perl code; each ends in cap().
use strict;
use warnings;
use FindBin qw($Bin);
use lib $FindBin::Bin;
use List::Util qw(first any reduce max);
require "$Bin/cap.pl";

sub inner { my $n = shift; return $n ? inner($n - 1) : cap() }

package Shape;
sub new { my ($class, %own) = @_; return bless {%own}, $class }
sub area { my $self = shift; main::cap(); return $self->{w} }
sub DESTROY { my $self = shift; main::inner(1) }
our $AUTOLOAD;
sub AUTOLOAD { my $self = shift; main::cap(); return 3 }

package Round;
our @ISA = 'Shape';
sub area { my $self = shift; return $self->SUPER::area() + 1 }
sub jump { goto &target }
sub target { main::cap(); return 1 }
sub can_jump { my $code = Round->can('target'); goto $code }

package Number;
use overload '+' => \&plus, '""' => sub { main::cap(); return 'n' }, '<=>' => sub { main::cap(); return 0 },
    'bool' => sub { main::inner(1); return 1 };
sub new { return bless [$_[1]], $_[0] }
sub plus { my ($left, $right) = @_; main::cap(); return 5 }

package Tied;
sub TIESCALAR { my $class = shift; main::cap(); return bless [], $class }
sub FETCH { main::cap(); return 4 }
sub STORE { main::inner(1) }
sub TIEARRAY { return bless [], shift }
sub FETCHSIZE { main::cap(); return 3 }

package main;

sub by_number { cap() if $a == 2; return $a <=> $b }
sub by_prototype($$) { my ($left, $right) = @_; inner(1) if $left == 2; return $left <=> $right }
sub leaves { my $own = Round->new(w => 1); my $other = Shape->new(w => 2); return 2 }
sub values_of { return wantarray ? (cap(), 1) : cap() }
our $assigned;
sub assigned :lvalue { cap(); $assigned }

inner(3);
my $shape = Shape->new(w => 3);
$shape->area;
Round->new(w => 2)->area;
Round::jump(1);
Round::can_jump(2);
$shape->missing(1);
leaves();
my $closure = sub { my $f = sub { cap() }; $f->(); &$f };
$closure->();
&$closure;
my @mapped = map { cap(); $_ + 1 } 1, 2;
my @found = grep { inner(1); $_ > 1 } 1, 2;
my @sorted = sort { cap() if $a == 2; $a <=> $b } 3, 2, 1;
@sorted = sort by_number 3, 2, 1;
@sorted = sort by_prototype 3, 2, 1;
my $named = \&by_number;
@sorted = sort $named 3, 2, 1;
@sorted = sort { inner(1) } 2, 1;
@sorted = sort { my @deep = sort { cap(); $b <=> $a } 1, 2; $a <=> $b } 3, 2;
@sorted = map { my @deep = sort { first { inner(1); $_ } $a, $b; $a <=> $b } 1, 2; @deep } 1;
my $one = first { cap(); $_ > 1 } 1, 2;
$one = reduce { cap(); $a + $b } 1, 2, 3;
$one = any { first { cap(); $_ == 2 } 1, 2 } 1;
$one = any { inner(1); my @deep = sort { cap(); $a <=> $b } 2, 1; $_ } 1;
$one = max(map { cap(); $_ } 1, 2);
eval { cap() };
eval { inner(1); die "no\n" };
eval { eval { die "inner\n" }; cap(); die $@ };
eval { my $own = Round->new(w => 1); die "left\n" };
eval 'cap()';
eval "\n\ninner(2);\nsub made { cap() }\nmade();";
made();
eval "#line 70 \"other.pl\"\ncap();\n1" or die $@;
eval 'BEGIN { inner(1) } cap()';
eval { eval 'eval { inner(1) }; die "x\n"'; cap() };
@sorted = sort { eval { cap(); die "in sort\n" }; inner(1); $a <=> $b } 2, 1;
@sorted = map { eval { cap() }; eval 'inner(1)'; $_ } sort { eval 'cap()'; 0 } 2, 1;
$one = first { eval { cap(); die "x\n" }; cap(); 1 } 1;
my $number = Number->new(3);
$one = $number + 1;
$one = "$number";
$one = $number ? 1 : 2;
@sorted = sort { $a <=> $b } $number, $number;
@sorted = sort { $one = "$a"; 0 } $number, $number;
tie my $scalar, 'Tied';
$one = $scalar + 1;
$scalar = 2;
tie my @array, 'Tied';
$one = @array;
$one = first { $_ } $scalar;
{
    local $SIG{__WARN__} = sub { inner(1) };
    warn "a warning\n";
    my $undefined;
    no warnings;
    use warnings;
    $one = "x$undefined";
    local $SIG{__DIE__} = sub { cap() };
    eval { die "caught\n" };
    eval { $one = 1 / ($one ? 0 : 1) };
    eval 'syntax error here (';
}
{
    local $SIG{USR1} = sub { inner(1) };
    kill 'USR1', $$;
    $one = 1 for 1 .. 10;
}
'abc' =~ /b(?{ cap() })c/;
my $pattern = qr/b(?{ inner(1) })/;
'abc' =~ /a${pattern}c/;
(my $text = 'abc') =~ s/(b)/cap(); uc $1/e;
$text =~ s/(c)/inner(1)/ee;
'aab' =~ /(?:a(?{ first { cap(); 1 } 1 }))+b/;
require Part;
do "$Bin/done.pl" or die;
my @list = values_of();
$one = values_of();
(assigned()) = 3;
{
    package Other;
    our $glob = 1;
    no strict 'refs';
    *{'Other::imported'} = \&main::inner;
    imported(1);
    local *aliased = sub { main::cap() };
    aliased();
}
{
    use utf8;
    no strict 'refs';
    my $narrow = "narrow\xe9";
    *{$narrow} = sub { cap() };
    eval "sub ärger { cap() } ärger(); package Größe; sub ist { main::cap() } ist(); 1" or die $@;
    eval "sub ὕδωρ { cap() } ὕδωρ(); package main::ὕδωρ; sub ist { main::cap() } ist(); 1" or die $@;
}
require "$Bin/newer.pl" if $] >= 5.036;
use feature 'current_sub';
my $recursive = sub { my $n = shift; return $n ? __SUB__->($n - 1) : cap() };
$recursive->(2);
my sub lexical { cap() }
lexical();
use feature 'state';
sub stated { state $once = cap(); return $once }
stated();
if ($one > 100) {
    cap();
}
else { inner(1) }
for my $i (1 .. 2) { inner($i) }
my $deep = 0;
sub alternating { my $n = shift; return $n ? (sort { alternating($n - 1); 0 } 1, 2)[0] : $deep++ ? 1 : cap() }
alternating(5);
sub local_goto { @_ = (1); goto &inner }
local_goto();
my $evaluated = eval { (first { inner(1) } 1) };
Internals::SvREADONLY($one, 0);
utf8::upgrade(my $upgraded = 'x');
undef $shape;
undef $number;
END { $Capture::has_main = $Capture::has_main = 0; cap() }
