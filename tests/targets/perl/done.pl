main::cap();
main::inner(2);
7;
