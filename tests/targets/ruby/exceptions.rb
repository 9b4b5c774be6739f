# What runs while an exception, a throw or a break is on its way, and after it was caught.
require_relative "cap"

def raises
  raise "x"
end

def ensures
  yield
ensure
  cap
end

def rescues
  raises
rescue => e
  cap
  1.times { cap }
else
  cap
ensure
  cap
end

rescues
begin
  ensures { raises }
rescue
  cap
end
catch(:out) { ensures { throw :out } }
cap
[1, 2].each { |_| ensures { break } }
cap
def returns = [1].each { ensures { return 1 } }
returns
cap
def retries
  tries = 0
  begin
    tries += 1
    raises if tries < 3
  rescue
    cap
    retry
  end
  cap
end
retries
begin
  [1].each { |x| [2].each { |y| Integer("no number") } }
rescue ArgumentError
  cap
end
def deep(n) = n == 0 ? raises : [n].each { deep(n - 1) }
begin
  deep(10)
rescue
  cap
end
def overflow(n) = overflow(n + 1)
begin
  overflow(0)
rescue SystemStackError
  cap
end
loop { cap; raise StopIteration }
begin
  raise Class.new(StandardError) { def message = (cap; "m") }
rescue => e
  e.message
end
at_exit { cap }
ObjectSpace.define_finalizer("x".dup, proc { })
cap
exit
