# A program that is sampled at any place. `#--> NAME, ...` lists what a line may call: Ruby code, and the C functions
# through which it is called. A method ends at its indentation's `end`; `lines` has five lines that cost the same.
SECONDS = (ARGV[0] || ENV["UU_TEST_SECONDS"] || 1).to_f #--> [], String#to_f

def lines(n) #--> Module#method_added
  a, b, c, d, e, i = 1.5, 2.5, 3.5, 4.5, 5.5, 0
  while i < n
    a = a * 0.5 + b * 0.25
    b = b * 0.5 + c * 0.25
    c = c * 0.5 + d * 0.25
    d = d * 0.5 + e * 0.25
    e = e * 0.5 + a * 0.25
    i += 1
  end
  a + b + c + d + e
end

def fib(n) #--> Module#method_added
  return n if n < 2
  x = fib(n - 1) #--> Object#fib
  y = fib(n - 2) #--> Object#fib
  x + y
end

def blocks(n) #--> Module#method_added
  n.times do |i| #--> Integer#times, block in Object#blocks
    fib(4) #--> Object#fib
    [1, 2].each { |x| fib(3) } #--> Array#each, block (2 levels) in Object#blocks, Object#fib
  end
  [3, 1, 2].sort_by { |v| fib(v) } #--> Enumerable#sort_by, Array#each, block in Object#blocks, Object#fib
  (1..3).inject { |s, v| s + fib(v) } #--> Enumerable#inject, Range#each, block in Object#blocks, Object#fib
  { a: 1, b: 2 }.each_pair { |_, v| fib(v) } #--> Hash#each_pair, block in Object#blocks, Object#fib
  "abc".gsub(/./) { |c| fib(2).to_s } #--> String#gsub, block in Object#blocks, Object#fib, Integer#to_s
end

class Value #--> <class:Value>, Class#inherited
  include Comparable #--> Module#include, Module#append_features, Module#included
  attr_reader :v #--> Module#attr_reader, Module#method_added

  def initialize(v) #--> Module#method_added
    @v = v
  end

  def <=>(other) #--> Module#method_added
    v - other.v
  end

  def to_s #--> Module#method_added
    fib(2) #--> Object#fib
    "v"
  end

  def method_missing(name, *args) #--> Module#method_added
    fib(3) #--> Object#fib
  end

  def respond_to_missing?(name, all) #--> Module#method_added
    false
  end

  def self.make(v) #--> BasicObject#singleton_method_added
    new(v) #--> Class#new, Value#initialize
  end

  def with(a, b = fib(2), *c, k: fib(3), **m) #--> Object#fib, Module#method_added
    yield a #--> block in Object#methods_of_all_kinds, Object#fib
  end

  define_method(:defined) { |x| fib(x) } #--> Object#fib, Module#define_method, Module#method_added
end

def methods_of_all_kinds(n) #--> Module#method_added
  a = Value.make(1) #--> Value.make
  b = Value.new(2) #--> Class#new, Value#initialize
  a < b #--> Comparable#<, Value#<=>
  [b, a].sort #--> Array#sort, Value#<=>
  [a, b].max #--> Array#max, Value#<=>
  "#{a} #{b}" #--> Value#to_s
  a.unknown(1) #--> Value#method_missing
  a.with(1) { |x| fib(x) } #--> Value#with, Object#fib
  a.with(1, 2, 3, k: 4, z: 5) { |x| fib(3) } #--> Value#with, Object#fib
  a.defined(3) #--> block in <class:Value>
  a.send(:defined, 2) #--> block in <class:Value>
  a.instance_eval { fib(2) } #--> BasicObject#instance_eval, block in Object#methods_of_all_kinds, Object#fib
  f = ->(x) { fib(x) } #--> Object#fib, lambda
  f.call(3) #--> block in Object#methods_of_all_kinds, Object#fib
  [1, 2].map(&f) #--> Array#map, block in Object#methods_of_all_kinds, Object#fib
  [1, 2].map(&method(:fib)) #--> Kernel#method, Method#to_proc, lambda, Array#map, Object#fib
  [a, b].each(&:to_s) #--> Array#each, Value#to_s
  eval("fib(3)") #--> Kernel#eval, Object#methods_of_all_kinds, Object#fib
  Hash.new { |h, k| fib(k) }[3] #--> Class#new, Hash#initialize, Hash#[], block in Object#methods_of_all_kinds, Object#fib
end

def raises(n) #--> Module#method_added
  fib(2) #--> Object#fib
  raise ArgumentError, "x" if n == 0 #--> Kernel#raise, Exception.exception, Exception#initialize, Exception#exception
  [n].each { |x| raises(n - 1) } #--> Array#each, block in Object#raises, Object#raises
end

def exceptions #--> Module#method_added
  begin #--> rescue in Object#exceptions, ensure in Object#exceptions, Object#fib, Module#===
    raises(4) #--> Object#raises, rescue in Object#exceptions, ensure in Object#exceptions
  rescue ArgumentError => e #--> Module#===, rescue in Object#exceptions, Object#fib
    fib(3) #--> rescue in Object#exceptions, Object#fib
  ensure
    fib(4) #--> Object#fib, ensure in Object#exceptions
  end
  catch(:tag) do #--> Kernel#catch, block in Object#exceptions
    [1, 2].each { |x| fib(3); throw :tag } #--> Array#each, block (2 levels) in Object#exceptions, Object#fib, Kernel#throw
  end
  [1, 2, 3].each { |x| break if x > 1; fib(2) } #--> Array#each, block in Object#exceptions, Object#fib
  begin #--> rescue in Object#exceptions, ensure in Object#exceptions, Object#fib, Module#===
    Integer("x") #--> Kernel#Integer, String#inspect, Class#new, Exception.exception, Exception#exception, Exception#initialize, rescue in Object#exceptions
  rescue ArgumentError #--> Module#===, rescue in Object#exceptions, Object#fib
    fib(2) #--> rescue in Object#exceptions, Object#fib
  end
end

def garbage(n) #--> Module#method_added
  i = 0
  while i < n
    ("x" * 40).to_sym.to_proc if i % 50 == 0 #--> String#to_sym, Symbol#to_proc, String#*
    [i, "a" * 20, { i => i.to_s }] #--> String#*, Integer#to_s
    i += 1
  end
end

def all #--> Module#method_added
  lines(400) #--> Object#lines
  blocks(3) #--> Object#blocks
  methods_of_all_kinds(2) #--> Object#methods_of_all_kinds
  exceptions #--> Object#exceptions
  garbage(40) #--> Object#garbage
end

def now = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) #--> Process.clock_gettime, Module#method_added

start = now #--> Object#now
while now - start < SECONDS #--> Object#now
  all #--> Object#all
end
