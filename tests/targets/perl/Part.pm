package Part;

sub own { main::cap() }

main::cap();
own();

1;
