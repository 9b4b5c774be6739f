# cap: writes down the runtime's own view of the stack, then takes a sample of the calling thread.
#
# The oracle is one line of JSON a sample, in the file $UU_TEST_ORACLE:
#   pid, tid   who takes the sample
#   frames     [label with class, path, line, is it a C function], innermost first: rb_profile_frames() for what
#              has a class, caller_locations() for the rest; both list the same frames
#
# All calls of C go through Fiddle, so that no header of Ruby is needed. Its own frames are the innermost ones.
require "fiddle"
require "json"

module Capture
  PTR, INT, LONG = Fiddle::TYPE_VOIDP, Fiddle::TYPE_INT, Fiddle::TYPE_LONG
  LIBRARY = Fiddle.dlopen(ENV.fetch("UU_TEST_CAP"))
  SELF = Fiddle.dlopen(nil)
  CAP = Fiddle::Function.new(LIBRARY["cap"], [], Fiddle::TYPE_VOID)
  # Ruby's own functions are called with its lock held: Fiddle gives it back for a call unless it is told not to.
  PROFILE = Fiddle::Function.new(SELF["rb_profile_frames"], [INT, INT, PTR, PTR], INT, need_gvl: true)
  FULL = Fiddle::Function.new(SELF["rb_profile_frame_full_label"], [LONG], LONG, need_gvl: true)
  ONE_AT_A_TIME = Mutex.new
  ROOM = 20_000
  NIL = 8

  # What rb_profile_frames() finds: labels and lines, innermost first. Its results are addresses of objects that nothing
  # keeps: no garbage is collected meanwhile, so that one thread at a time changes the collector's switch.
  def self.profile
    ONE_AT_A_TIME.synchronize { labels }
  end

  def self.labels
    stress, GC.stress, was_off = GC.stress, false, GC.disable
    frames, lines = Fiddle::Pointer.malloc(8 * ROOM, Fiddle::RUBY_FREE), Fiddle::Pointer.malloc(4 * ROOM, Fiddle::RUBY_FREE)
    count = PROFILE.call(0, ROOM, frames, lines)
    values, numbers = frames[0, 8 * count].unpack("q*"), lines[0, 4 * count].unpack("l*")
    values.zip(numbers).map do |value, line|
      label = FULL.call(value)
      [label == NIL ? nil : Fiddle.dlunwrap(label), line]
    end
  ensure
    GC.enable unless was_off
    GC.stress = stress
  end
end

def cap
  found, places = Capture.profile, caller_locations(0)
  # The innermost ones are those of this method's calls.
  own = ->(label) { label.is_a?(String) && label.match?(/\A((block in )?(Object|Kernel)#)?cap\z/) }
  found = found.drop_while { |label, _| !own.(label) }.drop(1)
  places = places.drop(1)
  frames = places.map do |place|
    # A block that is written in C is listed there, as the method that it belongs to; and so is the frame that ends the
    # main thread's stack.
    found.shift while found[0] && found[0][1] == 0 && found[0][0][/[^#.]+\z/] != place.label
    label, line = found.shift
    is_c = line == 0
    raise "#{label}:#{line} is not #{place}" if !is_c && line != place.lineno
    # Of a block, that has the method's name: the label says that it is a block, and the method's name has the class.
    before = place.label.delete_suffix(place.base_label)
    name = !label.start_with?("#<") && label.end_with?("#" + place.base_label, "." + place.base_label) ? before + label : place.label
    # A class without a name has an address there.
    [is_c ? label.sub(/\A#<.*>[#.]/, "") : name, place.path, place.lineno, is_c]
  end
  line = { pid: Process.pid, tid: File.readlink("/proc/thread-self")[/\d+\z/].to_i, frames: frames }
  File.write(ENV.fetch("UU_TEST_ORACLE"), JSON.generate(line) + "\n", mode: "a")
  Capture::CAP.call
end
