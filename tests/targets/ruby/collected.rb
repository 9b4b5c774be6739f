# Objects that move and die: iseqs, strings and classes at addresses that others had before.
require_relative "cap"

def compiled(n)
  Object.class_eval "class Made#{n}; def f#{n}(x)\n#{"\n" * (n % 7)} yield x\nend; end", "made#{n}.rb", n + 1
  made = Object.const_get("Made#{n}").new
  made.public_send("f#{n}", n) { |x| [x].each { cap } }
  Object.send(:remove_const, "Made#{n}")
end

20.times do |n|
  compiled(n)
  GC.start
  GC.compact if GC.respond_to?(:compact)
end
def stressed = [1].each { |x| [x].map { |y| cap; y.to_s } }
GC.stress = true
[1].each { stressed }
GC.stress = false
GC.compact if GC.respond_to?(:compact)
stressed
