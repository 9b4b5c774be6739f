# Threads, Fibers and enumerators, each of which has control frames of its own.
require_relative "cap"

class Work
  def run(n)
    n == 0 ? cap : [n].each { |x| run(x - 1) }
  end
end

threads = (1..3).map { |n| Thread.new { Work.new.run(n) } }
threads.each(&:join)
Thread.new { Thread.new { cap }.join; cap }.join

def in_fiber(n)
  cap
  Fiber.yield n
  [n].each { cap }
end

fiber = Fiber.new { |n| in_fiber(n); :done }
fiber.resume(1)
cap
fiber.resume
outer = Fiber.new do
  inner = Fiber.new { in_fiber(2) }
  inner.resume
  cap
  inner.resume
end
outer.resume

numbers = Enumerator.new do |yielder|
  cap
  yielder << 1
  [2].each { |x| cap; yielder << x }
end
numbers.next
cap
numbers.next
numbers.each { |x| cap }
[4, 5].each_with_index.next
Thread.new { Fiber.new { cap }.resume; cap }.join
cap
