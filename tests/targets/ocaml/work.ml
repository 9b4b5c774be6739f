(* Who calls whom is known: in OCaml, in C called by OCaml, and in OCaml called by C. *)
external c_spin : int -> int = "c_spin"
external c_spin_noalloc : int -> int = "c_spin_noalloc" [@@noalloc]
external c_calls : (int -> int) -> int -> int = "c_calls"
exception Found of int

let[@inline never] leaf n =
  let s = ref 0 in
  for i = 0 to n do s := !s + (i lxor (!s lsl 1)) done;
  !s

let[@inline never] inner n = leaf 3000 + n
let[@inline never] outer n =
  let t = ref 0 in
  for i = 0 to n do t := !t + inner i done;
  !t

(* The collector runs. *)
let[@inline never] alloc n =
  let l = ref [] in
  for i = 0 to n do
    l := (i, string_of_int i) :: !l;
    if i land 1023 = 0 then l := []
  done;
  List.length !l

let[@inline never] thrower n = if n land 1 = 1 then raise (Found n) else n
let[@inline never] catcher n =
  let t = ref 0 in
  for i = 0 to n do t := !t + (try thrower i with Found k -> k + 1) done;
  !t

let[@inline never] callback n = inner n + 1
let[@inline never] callbacks n =
  let t = ref 0 in
  for _ = 0 to n do t := !t + c_calls callback 3 done;
  !t

let[@inline never] stubs n =
  let t = ref 0 in
  for _ = 0 to n do t := !t + c_spin 1000 + c_spin_noalloc 1000 done;
  !t

let () =
  let t = outer 20000 + alloc 2000000 + catcher 40000000 + callbacks 6000 + stubs 200000 in
  Gc.full_major ();
  print_endline (if t <> 0 then "done" else "?")
