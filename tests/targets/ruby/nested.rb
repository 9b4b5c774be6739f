# Methods, blocks and C functions that call each other.
require_relative "cap"

module Outer
  class Kind
    def plain
      cap
    end

    def with_block
      [1].each { |_| cap }
    end

    def in_c
      [2, 1].sort_by { |n| cap if n == 1; n }
      { a: 1 }.each_pair { |_, _| 1.times { cap } }
      [1].map(&method(:called))
      [3].each(&:through)
    end

    def called(_)
      cap
    end

    def optional(a, b = 2, *rest, key: 3, **more, &block)
      block.call(a)
    end

    def self.singleton
      cap
    end

    class << self
      def in_singleton_class
        tap { cap }
      end
    end

    define_method(:defined) { |x| cap }
    attr_accessor :field

    def method_missing(name, *args)
      cap
    end

    def respond_to_missing?(*)
      false
    end
  end

  module Mixed
    def mixed
      cap
    end
  end

  class Kind
    include Mixed
    def <=>(other)
      cap
      0
    end
    include Comparable
  end
end

class Integer
  def through
    cap
  end
end

def recursive(n)
  n == 0 ? cap : recursive(n - 1)
end

def long(n)
  x = n
  x += 1
  x += 2
  x += 3
  x += 4
  x += 5
  x += 6
  x += 7
  x += 8
  x += 9
  x += 10; y = x * 2; z = y - 1; w = z + y; v = w.to_s + x.to_s; u = [v, w, x].map(&:to_s).join(","); t = u.size + 3
  x += 11; y = x * 2; z = y - 1; w = z + y; v = w.to_s + x.to_s; u = [v, w, x].map(&:to_s).join(","); t = u.size + 3
  x += 12; y = x * 2; z = y - 1; w = z + y; v = w.to_s + x.to_s; u = [v, w, x].map(&:to_s).join(","); t = u.size + 3
  x += 13; y = x * 2; z = y - 1; w = z + y; v = w.to_s + x.to_s; u = [v, w, x].map(&:to_s).join(","); t = u.size + 3
  x += 14; y = x * 2; z = y - 1; w = z + y; v = w.to_s + x.to_s; u = [v, w, x].map(&:to_s).join(","); t = u.size + 3
  x += 15; y = x * 2; z = y - 1; w = z + y; v = w.to_s + x.to_s; u = [v, w, x].map(&:to_s).join(","); t = u.size + 3
  x += 16; y = x * 2; z = y - 1; w = z + y; v = w.to_s + x.to_s; u = [v, w, x].map(&:to_s).join(","); t = u.size + 3

  cap

  x += 17; y = x * 2; z = y - 1; w = z + y; v = w.to_s + x.to_s; u = [v, w, x].map(&:to_s).join(","); t = u.size + 3
  cap
end

kind = Outer::Kind.new
kind.plain
kind.with_block
kind.in_c
kind.optional(1) { |x| cap }
Outer::Kind.singleton
Outer::Kind.in_singleton_class
kind.defined(1)
kind.no_such_method
kind.mixed
kind == Outer::Kind.new
kind.clamp(kind, kind)
kind.send(:plain)
kind.public_send(:called, 1)
kind.instance_eval { cap }
Outer::Kind.class_eval { cap }
kind.instance_exec(1) { |x| cap }
Outer::Kind.class_eval "def from_text\n  cap\nend", "text.rb", 70
kind.from_text
eval "cap"
eval "1.times do\n cap\n end", binding, "evaluated", 10
-> { cap }.call
proc { |x| cap }.(1)
lambda(&kind.method(:called)).call(1)
:through.to_proc.call(1)
recursive(20)
long(3)
catch(:tag) { cap }
anonymous = Class.new { def anonymous = cap; def self.of_anonymous = cap }
anonymous.new.anonymous
anonymous.of_anonymous
odd = Object.new
def odd.singleton_of_object = cap
odd.singleton_of_object
class Outer::Kind
  cap
  [1].each { cap }
end
module Refined
  refine String do
    def refined = cap
  end
end
using Refined
"".refined
[1, 2].lazy.map { |x| cap; x }.first(1)
ObjectSpace.each_object(Class).first(1).each { cap }
def ünïcödé = cap
ünïcödé
cap
