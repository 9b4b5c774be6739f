#!/usr/bin/env bash
# rb_profile_frames() of Ruby names a block like the method around it, and lists a C function twice that gave a C block.
#
# Versions   ruby3.1 and libruby3.1 3.1.7+really3.1.2-0+deb12u1 (Debian 12)
# Seen       in a block that sort_by calls, `caller_locations` has "block in f", "each", "sort_by", "f". Of the same
#            frames rb_profile_frames() and rb_profile_frame_full_label() have "Object#f", "Enumerable#sort_by",
#            "Array#each", "Enumerable#sort_by", "Object#f".
# Cause      the frame is replaced by its method's entry, for blocks too. The control frame of a block that is written
#            in C (sort_by's for each) has the entry of the function that it belongs to, and counts as a call of it.
# Matters    for profilers that use it: a block's time is its method's, and calls of C functions are too many. As an
#            oracle it has the classes that caller_locations lacks; for all else that is the better one.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get -qq download ruby3.1=3.1.7+really3.1.2-0+deb12u1 libruby3.1=3.1.7+really3.1.2-0+deb12u1 \
    libyaml-0-2 libgmp10 libcrypt1 libffi8 zlib1g
for package in *.deb; do dpkg -x "$package" unpacked; done
export LD_LIBRARY_PATH=$folder/unpacked/usr/lib/x86_64-linux-gnu
export RUBYLIB=$folder/unpacked/usr/lib/ruby/3.1.0:$LD_LIBRARY_PATH/ruby/3.1.0

cat >program.rb <<'CODE'
require "fiddle"
LONG, POINTER = Fiddle::TYPE_LONG, Fiddle::TYPE_VOIDP
RUBY = Fiddle.dlopen(nil)
FRAMES = Fiddle::Function.new(RUBY["rb_profile_frames"], [LONG, LONG, POINTER, POINTER], LONG)
LABEL = Fiddle::Function.new(RUBY["rb_profile_frame_full_label"], [LONG], LONG)
def f
  [1, 2].sort_by do |n|
    if n == 1
      room = Fiddle::Pointer.malloc(8 * 100)
      count = FRAMES.call(0, 100, room, 0)
      labels = room[0, 8 * count].unpack("q*").map { |frame| Fiddle.dlunwrap(LABEL.call(frame)) }
      puts "rb_profile_frames: #{labels[1, 5].join(", ")}"
      puts "caller_locations: #{caller_locations(0)[0, 4].map(&:label).join(", ")}"
    end
    n
  end
end
f
CODE
"$folder/unpacked/usr/bin/ruby3.1" --disable=gems program.rb | tee seen
cat >expected <<'TEXT'
rb_profile_frames: Object#f, Enumerable#sort_by, Array#each, Enumerable#sort_by, Object#f
caller_locations: block in f, each, sort_by, f
TEXT
if ! cmp -s seen expected; then
    echo "changed"
    exit 1
fi
