# cap: writes down the runtime's own view of the stack, then takes a sample of the calling thread.
#
# The oracle is one line of JSON a sample, in the file $UU_TEST_ORACLE:
#   pid, tid   who takes the sample
#   frames     [name with package, path, line], innermost first, by `caller`: files that are required are (require),
#              the program itself is (main)
#
# The sample is the signal SIGPROF, sent to oneself by system calls (getpid, gettid, tgkill).
package Capture;

# Is the program itself on the stack? Not while it is compiled, and not in a thread.
our $has_main = 1;

sub quoted { my $text = shift; utf8::encode($text) if utf8::is_utf8($text) || $text =~ /[^\x00-\x7f]/; $text =~ s/(["\\])/\\$1/g; return "\"$text\"" }

sub main::cap {
    my (@frames, @place);
    for (my $at = 0; my @found = caller($at); $at++) {
        my $name = $found[7] ? '(require)' : $found[3];
        push @frames, [$name, @place] if @place;
        @place = @found[1, 2];
    }
    push @frames, ['(main)', @place] if $has_main;
    my $tid = syscall(186);
    my @shown = map { '[' . quoted($_->[0]) . ',' . quoted($_->[1]) . ",$_->[2]]" } @frames;
    open(my $out, '>>', $ENV{UU_TEST_ORACLE}) or die $!;
    print $out "{\"pid\":$$,\"tid\":$tid,\"frames\":[" . join(',', @shown) . "]}\n";
    close $out;
    my ($pid, $signal) = ($$ + 0, 27);
    syscall(234, $pid, $tid, $signal);
}

1;
