%% Processes of Erlang that compute, and signal handlers of the runtime. Prints what the JIT is called, and a sum.
-module(work).
-export([start/0]).

fib(N) when N < 2 -> N;
fib(N) -> fib(N - 1) + fib(N - 2).

computes(0, Sum) -> Sum;
computes(Rounds, Sum) ->
    Sorted = lists:sort(lists:seq(3000, 1, -1)),
    computes(Rounds - 1, Sum + fib(23) + hd(Sorted)).

start() ->
    Self = self(),
    [spawn_link(fun() -> Self ! {done, computes(400, 0)} end) || _ <- lists:seq(1, 8)],
    Sums = [receive {done, Sum} -> Sum end || _ <- lists:seq(1, 8)],
    io:format("~p ~p~n", [erlang:system_info(emu_flavor), lists:sum(Sums)]),
    halt(0).
